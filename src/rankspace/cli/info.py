"""`rankspace info`: what is installed, which models and presets there are, what is in a run."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from rankspace.cli.output import print_json, print_line, print_pairs, print_table
from rankspace.cli.run_info import (
    has_seeds,
    run_info,
    seeds_info,
    settings_text,
    shipped_info,
    show_run,
    show_seeds,
    show_shipped,
)
from rankspace.cli.run_options import AsJson
from rankspace.errors import RankspaceError

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
        Path | None,
        typer.Argument(metavar="RUN", help="The folder of a run, or of several seeds; or a model of the package."),
    ] = None,
    models: Annotated[
        bool,
        typer.Option("--models", help="List the models with their settings, and the trained models of the package."),
    ] = False,
    presets: Annotated[bool, typer.Option("--presets", help="List the presets for training.")] = False,
    as_json: AsJson = False,
) -> None:
    """Describe a run or a folder of seeds; list models or presets; or print versions, devices and optional packages.

    Examples:

    rankspace info my-run

    rankspace info craft-small

    rankspace info --models
    """
    if (run is not None) + models + presets > 1:
        raise RankspaceError("info: RUN, --models and --presets are different questions; ask one at a time.")
    if run is not None:
        result, show = (seeds_info(run), show_seeds) if has_seeds(run) else (run_info(run), show_run)
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


def model_info() -> dict[str, Any]:
    """Every model of the registry, and the trained ones of the package."""
    from rankspace.models import describe
    from rankspace.models.registry import MODELS

    found = [describe(name) for name in MODELS]
    entries = [
        {"name": one.name, "kind": one.kind, "description": one.about, "settings": one.settings} for one in found
    ]
    return {"models": entries, "shipped": shipped_info()}


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
        print_line(f"    {settings_text(model['settings'])}")
    show_shipped(result["shipped"])


def _show_presets(result: Mapping[str, Any]) -> None:
    for preset in result["presets"]:
        config = preset["config"]
        changed = {key: config[key] for key in preset["changed"] if key != "model.name" and key in config}
        print_line(f"{preset['name']}: {config['model.name']}")
        print_line(f"    {settings_text(changed)}")
