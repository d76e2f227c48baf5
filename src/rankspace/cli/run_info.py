"""What `rankspace info` tells of a run, of a folder of seeds, and of the models of the package."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rankspace.cli.output import print_line, print_pairs, print_table
from rankspace.errors import FormatError

SCORES = {"perplexity": "perplexity", "corpus_f1": "corpus F1", "s_f1": "S-F1"}
BOUNDS = {
    "right_branching": "S-F1, right-branching",
    "left_branching": "S-F1, left-branching",
    "random": "S-F1, random trees",
    "oracle": "S-F1, binarised gold",
}


def run_info(name: Path) -> dict[str, Any]:
    """The card of a run, its configuration, its checkpoints and the number of weights of the first that is whole."""
    from rankspace.training import RunDirectory
    from rankspace.training.config import config_from_text, flat
    from rankspace.training.run_directory import CONFIG, NAMES
    from rankspace.training.shipped import find_run

    path = find_run(name)
    run = RunDirectory.open(path)
    run.vocabulary()  # raises for one that is not the model's
    checkpoints = {each: _checkpoint(run, each) for each in NAMES if _has(run, each)}
    counts = [entry.pop("num_weights") for entry in checkpoints.values() if "num_weights" in entry]
    config = flat(config_from_text(run.config, str(path / CONFIG)))
    num_weights = run.card.get("model", {}).get("weights") or next(iter(counts), None)
    places = {"run": str(name), "folder": str(path)}
    return {**places, **run.card, "num_weights": num_weights, "config": config, "checkpoints": checkpoints}


def seeds_info(path: Path) -> dict[str, Any]:
    """The runs of a folder that `train --seeds` writes, how far each is, and the statistics of their figures, which
    there are when all have ended."""
    import json

    from rankspace.training import RunDirectory
    from rankspace.training.run_directory import CARD
    from rankspace.training.runs import SUMMARY

    try:
        summary = json.loads((path / SUMMARY).read_bytes())
    except FileNotFoundError:
        summary = None
    except ValueError:
        raise FormatError(f"{path / SUMMARY}: is damaged (no JSON); train again with --resume.") from None
    runs = sorted((card.parent for card in path.glob(f"*/{CARD}")), key=_by_seed)
    cards = {str(run): RunDirectory.open(run).card.get("results", {}) for run in runs}
    seeds = [
        {"run": name, "finished": results.get("finished", False), **_best(results)} for name, results in cards.items()
    ]
    return {"directory": str(path), "runs": list(cards), "seeds": seeds, "summary": summary}


def _by_seed(run: Path) -> tuple[int, str]:
    from rankspace.training.run_directory import seed_of

    seed = seed_of(run)
    return (-1 if seed is None else seed, run.name)


def _best(results: Mapping[str, Any]) -> dict[str, Any]:
    """What is told of a run beside others: its best evaluation so far."""
    best = results.get("best", {})
    return {name: best[name] for name in ("step", "perplexity", "f1") if name in best}


def shipped_info() -> list[dict[str, Any]]:
    """The models of the package: name, model, and what their cards say of scores and licence."""
    from rankspace.training import RunDirectory
    from rankspace.training.shipped import ENTRY, FOLDER, shipped_names

    cards = {name: RunDirectory.open(FOLDER / name).card for name in shipped_names()}
    return [
        {"name": name, "model": card["model"]["name"], "scores": _scores(card), "licence": card[ENTRY]["licence"]}
        for name, card in cards.items()
    ]


def has_seeds(path: Path) -> bool:
    """Whether a folder has several runs, ended or not."""
    from rankspace.training.run_directory import CARD, begun_seeds
    from rankspace.training.runs import SUMMARY

    return not (path / CARD).exists() and ((path / SUMMARY).is_file() or bool(begun_seeds(path)))


def _has(run: Any, name: str) -> bool:
    """Whether there is a checkpoint of this very name."""
    return bool(run.name_of(name) == name and run.found(name).exists())


def _checkpoint(run: Any, name: str) -> dict[str, Any]:
    try:
        found = run.read(name)
    except FormatError as error:
        return {"problem": str(error)}
    return {"step": found.step, "num_weights": sum(tensor.numel() for tensor in found.weights.values())}


def _scores(card: Mapping[str, Any]) -> Mapping[str, Any]:
    """The scores of the best checkpoint by split, of runs of `rankspace experiment` and of models of the package."""
    found: Mapping[str, Any] = card.get("experiment", {}).get("scores", {})
    return found


def show_run(result: Mapping[str, Any]) -> None:
    model, data, shipped = (result.get(name, {}) for name in ("model", "data", "shipped"))
    weights = result["num_weights"]
    print_pairs(
        [
            ("run", result["run"]),
            *([("folder", result["folder"])] if result["folder"] != result["run"] else []),
            ("model", f"{model.get('name')}, {'unknown' if weights is None else f'{weights:,}'} weights"),
            ("settings", settings_text(model.get("settings", {}))),
            ("data", result["config"]["data.source"] or data.get("preset") or "unknown"),
            ("preprocessing", settings_text(_chosen(data.get("preprocessing", {})))),
            ("trained", settings_text(result.get("environment", {}))),
            ("precision", _precision(result)),
            *((name, _value(value)) for name, value in shipped.items()),
        ]
    )
    if splits := data.get("splits"):
        counts = ("num_sentences", "num_words")
        rows = [[name, *(f"{entry[key]:,}" for key in counts)] for name, entry in splits.items()]
        print_table(["split", "sentences", "words"], rows)
    if scores := _scores(result):
        _show_scores(scores)
    if result.get("results"):
        _show_results(result["results"])
    checkpoints = result["checkpoints"].items()
    rows = [[name, str(entry.get("step", "")), entry.get("problem", "whole")] for name, entry in checkpoints]
    print_table(["checkpoint", "step", "state"], rows)


def _precision(result: Mapping[str, Any]) -> str:
    """What the run was trained in; of one that went on in another, after which step."""
    first, *others = result.get("precision") or [{"precision": result["config"]["run.precision"]}]
    return ", ".join([first["precision"], *(f"{each['precision']} after step {each['step']:,}" for each in others)])


def _show_scores(scores: Mapping[str, Any]) -> None:
    """A column for each split; of grammars S-F1 above the S-F1 of trivial trees."""
    found = {title: [each.get(key) for each in scores.values()] for key, title in SCORES.items()}
    for key, title in BOUNDS.items():
        found[title] = [each.get("bounds", {}).get(key, {}).get("s_f1") for each in scores.values()]
    rows = [[title, *map(_figure, values)] for title, values in found.items() if any(values)]
    print_table(["scores", *scores], rows)


def _show_results(results: Mapping[str, Any]) -> None:
    """A row for each evaluation, then what it took."""
    if rows := [_evaluation(name, results[name]) for name in evaluations_shown(results)]:
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


def evaluations_shown(results: Mapping[str, Any]) -> list[str]:
    """Which evaluations of a run's results are rows: the last only if it is not the best."""
    last = () if results.get("best") == results.get("last") else ("last",)
    return [name for name in ("best", "held-out", *last, "test") if name in results]


def _evaluation(name: str, record: Mapping[str, Any]) -> list[str]:
    split = record.get("split", name)
    counts = [f"{record[key]:,}" if key in record else "-" for key in ("step", "num_sentences")]
    figures = [_figure(record.get(key)) for key in ("perplexity", "f1", "corpus_f1")]
    return [name if name == split else f"{split}, {name}", counts[0], *figures, counts[1]]


def show_seeds(result: Mapping[str, Any]) -> None:
    print_pairs([("folder", result["directory"])])
    rows = [
        [
            Path(each["run"]).name,
            f"{each['step']:,}" if "step" in each else "-",
            *(_figure(each.get(name)) for name in ("perplexity", "f1")),
            _value(each["finished"]),
        ]
        for each in result["seeds"]
    ]
    print_table(["run", "best step", "perplexity", "S-F1", "finished"], rows)
    if result["summary"] is None:
        print_line("")
        print_line("mean and deviation are computed when all runs have ended; go on with rankspace train --resume.")
        return
    figures = ("mean", "deviation", "best", "worst")
    rows = [
        [name.replace("f1", "S-F1"), *(_figure(each.get(key)) for key in figures), str(each.get("num", "-"))]
        for name, each in result["summary"].items()
    ]
    print_table(["", "mean", "standard deviation", "best", "worst", "runs"], rows)


def show_shipped(models: list[dict[str, Any]]) -> None:
    """A line for each model of the package, with its scores on the last split, the test."""
    figures = [list(each["scores"].values())[-1] for each in models]
    rows = [
        [each["name"], each["model"], _figure(found.get("perplexity")), _figure(found.get("s_f1"))]
        for each, found in zip(models, figures, strict=True)
    ]
    print_table(["model of the package", "is a", "perplexity, test", "S-F1, test"], rows)


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


def settings_text(settings: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {_value(value)}" for name, value in settings.items()) or "none"


def _value(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "none"}[value]
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list | tuple):
        return " ".join(map(str, value)) or "none"
    return f"{value:,}" if isinstance(value, int) else str(value)
