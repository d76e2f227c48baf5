"""`rankspace info`: what is installed, which models and presets there are, what is in a run."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from rankspace.cli.output import print_json, print_line, print_pairs, print_table
from rankspace.cli.run_options import AsJson
from rankspace.errors import FormatError, RankspaceError

OPTIONAL = {  # packages, and what they are for
    "matplotlib": "pictures as .png, rules of grammars",
    "nltk": "Tree.to_nltk, nltk:treebank",
    "tensorly": "fitting decompositions",
    "triton": "kernels on a GPU",
    "tensorboard": "tracking",
    "wandb": "tracking",
}


def info(
    run: Annotated[
        Path | None, typer.Argument(metavar="RUN", help="The folder of a run, or of several by seeds.")
    ] = None,
    models: Annotated[bool, typer.Option("--models", help="List the models and their settings.")] = False,
    presets: Annotated[bool, typer.Option("--presets", help="List the presets of training.")] = False,
    as_json: AsJson = False,
) -> None:
    """Print what is in a run or a folder of seeds; or models, or presets; or versions, devices, optional packages.

    Examples:

    rankspace info my-run

    rankspace info --models
    """
    if (run is not None) + models + presets > 1:
        raise RankspaceError("info: RUN, --models and --presets are different questions; ask one at a time.")
    if run is not None:
        result, show = (seeds_info(run), _show_seeds) if _has_seeds(run) else (run_info(run), _show_run)
    elif models:
        result, show = model_info(), _show_models
    elif presets:
        result, show = preset_info(), _show_presets
    else:
        result, show = system_info(), _show_system
    if as_json:
        print_json(result)
    else:
        show(result)


def run_info(path: Path) -> dict[str, Any]:
    """The card of a run, its configuration, its checkpoints and the number of weights of the first that is whole."""
    from rankspace.training import RunDirectory
    from rankspace.training.config import config_from_text, flat
    from rankspace.training.run_directory import CONFIG

    run = RunDirectory.open(path)
    checkpoints = {name: _checkpoint(run, name) for name in ("best", "last", "previous") if _has(run, name)}
    counts = [entry.pop("num_weights") for entry in checkpoints.values() if "num_weights" in entry]
    config = flat(config_from_text(run.config, str(path / CONFIG)))
    num_weights = run.card.get("model", {}).get("weights") or next(iter(counts), None)
    return {"run": str(path), **run.card, "num_weights": num_weights, "config": config, "checkpoints": checkpoints}


def seeds_info(path: Path) -> dict[str, Any]:
    """The runs of a folder that `train --seeds` wrote, and the statistics of their figures."""
    import json

    from rankspace.training.run_directory import CARD
    from rankspace.training.runs import SUMMARY

    try:
        summary = json.loads((path / SUMMARY).read_bytes())
    except ValueError:
        raise FormatError(f"{path / SUMMARY}: is damaged (no JSON); train again with --resume.") from None
    runs = sorted(str(card.parent) for card in path.glob(f"*/{CARD}"))
    return {"directory": str(path), "runs": runs, "summary": summary}


def model_info() -> dict[str, Any]:
    """Every model of the registry."""
    from rankspace.models import describe
    from rankspace.models.registry import MODELS

    found = [describe(name) for name in MODELS]
    entries = [
        {"name": one.name, "kind": one.kind, "description": one.about, "settings": one.settings} for one in found
    ]
    return {"models": entries}


def preset_info() -> dict[str, Any]:
    """Every preset of training, with all its keys."""
    from rankspace.training.config import Config, flat, load_preset, preset_names

    entries = []
    for name in preset_names():
        config = load_preset(name)
        changed = config.differences(Config().changed({"model.name": config.model.name}))
        entries.append({"name": name, "config": flat(config), "changed": changed})
    return {"presets": entries}


def system_info() -> dict[str, Any]:
    """Versions, devices and threads."""
    import platform

    import numpy
    import torch

    from rankspace import __version__

    places = range(torch.cuda.device_count()) if torch.cuda.is_available() else range(0)
    properties = [torch.cuda.get_device_properties(place) for place in places]
    return {
        "rankspace": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        "platform": platform.platform(),
        "device": "cuda" if properties else "cpu",
        "gpus": [{"name": each.name, "memory_gib": round(each.total_memory / 2**30, 1)} for each in properties],
        "threads": torch.get_num_threads(),
        "packages": {name: _version(name) for name in OPTIONAL},
    }


def _version(package: str) -> str | None:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _has_seeds(path: Path) -> bool:
    from rankspace.training.run_directory import CARD
    from rankspace.training.runs import SUMMARY

    return (path / SUMMARY).is_file() and not (path / CARD).exists()


def _has(run: Any, name: str) -> bool:
    """Whether there is a checkpoint of this very name."""
    return bool(run.found(name).name.removeprefix(".") == name and run.found(name).exists())


def _checkpoint(run: Any, name: str) -> dict[str, Any]:
    try:
        found = run.read(name)
    except FormatError as error:
        return {"problem": str(error)}
    return {"step": found.step, "num_weights": sum(tensor.numel() for tensor in found.weights.values())}


def _show_system(result: Mapping[str, Any]) -> None:
    gpus = ", ".join(f"{gpu['name']} ({gpu['memory_gib']} GiB)" for gpu in result["gpus"])
    names = ("rankspace", "python", "torch", "numpy", "platform", "device")
    pairs = [(name, str(result[name])) for name in names]
    print_pairs([*pairs, ("GPUs", gpus or "none"), ("threads", str(result["threads"]))])
    rows = [[name, result["packages"][name] or "not installed", use] for name, use in OPTIONAL.items()]
    print_table(["optional package", "version", "for"], rows)


def _show_models(result: Mapping[str, Any]) -> None:
    for model in result["models"]:
        print_line(f"{model['name']} ({model['kind']}): {model['description']}")
        print_line(f"    {_settings(model['settings'])}")


def _show_presets(result: Mapping[str, Any]) -> None:
    for preset in result["presets"]:
        config = preset["config"]
        changed = {key: config[key] for key in preset["changed"] if key != "model.name" and key in config}
        print_line(f"{preset['name']}: {config['model.name']}")
        print_line(f"    {_settings(changed)}")


def _show_run(result: Mapping[str, Any]) -> None:
    model, data = result.get("model", {}), result.get("data", {})
    weights = result["num_weights"]
    print_pairs(
        [
            ("run", result["run"]),
            ("model", f"{model.get('name')}, {'unknown' if weights is None else f'{weights:,}'} weights"),
            ("settings", _settings(model.get("settings", {}))),
            ("data", result["config"]["data.source"] or "unknown"),
            ("preprocessing", _settings(_chosen(data.get("preprocessing", {})))),
            ("trained", _settings(result.get("environment", {}))),
        ]
    )
    if splits := data.get("splits"):
        counts = ("num_sentences", "num_words")
        rows = [[name, *(f"{entry[key]:,}" for key in counts)] for name, entry in splits.items()]
        print_table(["split", "sentences", "words"], rows)
    if result.get("results"):
        _show_results(result["results"])
    checkpoints = result["checkpoints"].items()
    rows = [[name, str(entry.get("step", "")), entry.get("problem", "whole")] for name, entry in checkpoints]
    print_table(["checkpoint", "step", "state"], rows)


def _show_results(results: Mapping[str, Any]) -> None:
    """A row for each evaluation, then what it took."""
    names = ("best", "test") if results.get("best") == results.get("last") else ("best", "last", "test")
    rows = [_evaluation(name, results[name]) for name in names if name in results]
    print_table(["", "step", "perplexity", "S-F1", "corpus F1", "sentences"], rows)
    pairs = {
        "steps": f"{results['steps']:,}" if "steps" in results else "",
        "epochs": _value(results.get("epochs", "")),
        "seconds": f"{results['seconds']:,.1f}" if "seconds" in results else "",
        "finished": _value(results.get("finished", "")),
        "stopped": _value(results.get("stopped", "")),
    }
    print_line("")
    print_pairs([(name, text) for name, text in pairs.items() if text])


def _evaluation(name: str, record: Mapping[str, Any]) -> list[str]:
    split = record.get("split", name)
    counts = [f"{record[key]:,}" if key in record else "-" for key in ("step", "num_sentences")]
    figures = [_figure(record.get(key)) for key in ("perplexity", "f1", "corpus_f1")]
    return [name if name == split else f"{split}, {name}", counts[0], *figures, counts[1]]


def _show_seeds(result: Mapping[str, Any]) -> None:
    print_pairs([("folder", result["directory"]), ("runs", " ".join(result["runs"]) or "none")])
    figures = ("mean", "deviation", "best", "worst")
    rows = [
        [name.replace("f1", "S-F1"), *(_figure(each.get(key)) for key in figures), str(each.get("num", "-"))]
        for name, each in result["summary"].items()
    ]
    print_table(["", "mean", "standard deviation", "best", "worst", "runs"], rows)


def _figure(value: float | str | None) -> str:
    """Two digits; what is not finite is text already."""
    return "-" if value is None else value if isinstance(value, str) else f"{value:.2f}"


def _chosen(preprocessing: Mapping[str, Any]) -> dict[str, Any]:
    """The options that do something: a --min-count of 1, for one, does not."""
    is_idle = {"min_count": 1}
    return {
        name.replace("_", " "): value
        for name, value in preprocessing.items()
        if value and value != "keep" and value != is_idle.get(name)
    }


def _settings(settings: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {_value(value)}" for name, value in settings.items()) or "none"


def _value(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "none"}[value]
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list | tuple):
        return " ".join(map(str, value)) or "none"
    return f"{value:,}" if isinstance(value, int) else str(value)
