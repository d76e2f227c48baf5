"""The record of a table, one JSON object, made from the folders of its runs, and what the table plans beside it."""

import datetime
import json
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any

import torch

from rankspace.experiments import runs_together
from rankspace.experiments.damage import made_again
from rankspace.experiments.datasets import PTB, PTB_TEXT, SYNTHETIC_NOTE, WSJ
from rankspace.experiments.jobs import SHARING, Job, Request, by_row
from rankspace.experiments.statistics import by_epoch, of_runs
from rankspace.experiments.tables import Row, Table
from rankspace.files import whole_file
from rankspace.models import create
from rankspace.training import Config, RunDirectory
from rankspace.training.config import config_from_text, flat
from rankspace.training.data_source import SYNTHETIC
from rankspace.training.machine import environment
from rankspace.training.run_directory import CONFIG, FINAL

KEPT = ("step", "epoch", "elapsed", "perplexity", "f1", "corpus_f1", "num_impossible")  # of evaluations
PENN = (PTB_TEXT, PTB, WSJ)  # the data that figures of others are of
OF_THE_MACHINE = ("data.source", "data.held_out", "run.track", "run.seed")  # options that are not the row's


def write_record(request: Request, device: str) -> dict[str, Any]:
    """Writes the record of a table whole or not at all, and returns it."""
    found = table_record(request, device)
    request.file.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(request.file) as file:
        file.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return found


def table_record(request: Request, device: str) -> dict[str, Any]:
    """What is known of a table: every row with runs, with all its seeds and epochs, and where and when it was made."""
    table = request.table()
    groups = by_row(request)
    with made_again(*(job.folder for _, jobs in groups for job in jobs)):
        rows = [_row(table, jobs) for _, jobs in groups]
        together = {data: runs_together.known(jobs) for data, jobs in runs_together.of_data_sets(groups).items()}
    return {
        **_heading(table),
        "quick": request.quick,
        "date": datetime.date.today().isoformat(),
        "environment": environment(torch.device(device)),
        "note": SYNTHETIC_NOTE if any(row["data"] == SYNTHETIC for row in rows) else "",
        "data": _data(rows),
        "together": {data: found for data, found in together.items() if found is not None},
        "rows": [{name: value for name, value in row.items() if name != "card"} for row in rows],
    }


def planned_record(table: Table, found: Mapping[str, Any] | None) -> dict[str, Any]:
    """A record with every row that the table plans, on each of its data sets, whether it has runs or not; synthetic
    sentences are none of them. `found` is what has been made.

    What the table says of itself and of its rows is as it says now. `weights_now`: the number of weights of the model
    as it is, which is another than `weights` where runs had a model that has changed since; None without runs.
    """
    found = found or {"rows": [], "data": {}, "note": ""}
    made = {(row["name"], row["data"]): row for row in found["rows"] if row["data"] != SYNTHETIC}
    rows = []
    for row in table.rows:
        for data in dict.fromkeys([*row.data, *(data for name, data in made if name == row.name)]):
            nothing: dict[str, Any] = {"config": options_of_row(row.config), "weights": None, "runs": []}
            entry = row_entry(table, row, data, made.get((row.name, data), nothing))
            rows.append({**entry, "weights_now": _weights_now(entry, found["data"][data]) if entry["runs"] else None})
    return {**found, **_heading(table), "rows": rows}


def _heading(table: Table) -> dict[str, Any]:
    """What a record says of its table."""
    peers = [{**peer, "minutes": peer["steps"] * peer["milliseconds"] / 60_000} for peer in table.peers]
    return {"table": table.name, "title": table.title, "peers": peers}


def row_entry(table: Table, row: Row, data: str, found: Mapping[str, Any]) -> dict[str, Any]:
    """A row of a record: what the table says of it, and what is `found`: its config, weights and runs, and what the
    finished ones parse together, or several of them."""
    together = found.get("together")
    finished = {run["seed"] for run in found["runs"] if run["state"] == "finished"}
    return {
        "name": row.name,
        "title": row.title,
        "about": row.about,
        "data": data,
        "ablation_of": row.ablation_of,
        "paper": row.paper if data in PENN else {},
        "reproduction": row.reproduction if data in PENN else {},
        **{name: found[name] for name in ("config", "weights", "runs")},
        "planned_seeds": list(row.seeds),
        "statistics": of_runs(found["runs"], table.target_of(row)),
        "together": together if together and _are_several(together["runs"].get(row.name, ()), finished) else None,
    }


def _are_several(seeds: Sequence[int], of: Set[int]) -> bool:
    return len(seeds) > 1 and of >= set(seeds)


def _row(table: Table, jobs: list[Job]) -> dict[str, Any]:
    first = RunDirectory.open(jobs[0].folder)
    config = options_of_row(config_from_text(first.config, str(first.path / CONFIG)))
    found = {
        "config": config,
        "weights": first.card["model"]["weights"],
        "runs": [_run(job) for job in jobs],
        "together": runs_together.known(jobs),
    }
    return {**row_entry(table, jobs[0].row, jobs[0].data, found), "card": first.card["data"]}


def options_of_row(config: Config) -> dict[str, Any]:
    """The options of a run that are those of its row, by section.key."""
    return {key: value for key, value in flat(config).items() if key not in OF_THE_MACHINE}


def complete(config: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a row of a record; those that there were not when it was made have their defaults."""
    return options_of_row(Config().changed(config))


def _weights_now(row: Mapping[str, Any], card: Mapping[str, Any]) -> int:
    """How many weights the model of a row has as it is, with the words of its data. Nothing is allocated."""
    sizes = {key.removeprefix("model."): value for key, value in row["config"].items() if key.startswith("model.")}
    with torch.device("meta"):
        model = create(sizes.pop("name"), vocabulary=card["vocabulary"]["num_words"], **sizes)
    return model.num_weights


def _run(job: Job) -> dict[str, Any]:
    run = RunDirectory.open(job.folder)
    results, metrics, entry = run.card["results"], run.metrics(), job.entry or {}
    splits = config_from_text(run.config, str(run.path / CONFIG)).data
    valid, held_out = (_evaluations(metrics, split) for split in (splits.valid, splits.held_out))
    last = max((each["step"] for each in metrics), default=0)
    return {
        "seed": job.seed,
        "state": "failed" if "failed" in entry else "finished" if entry else "under way",
        "failed": entry.get("failed", ""),
        "environment": run.card["environment"],
        "precision": run.card.get("precision", []),
        "steps": results.get("steps", last),
        "seconds": results.get("seconds", valid[-1]["elapsed"] if valid else 0.0),
        "sharing": run.card.get(SHARING, 1),
        "memory_mb": max((each.get("memory_mb", 0) for each in metrics), default=0),
        "chosen": {name: results["best"][name] for name in ("step", "epoch")} if "best" in results else None,
        "training": by_epoch(metrics),
        "evaluations": valid,
        "held_out": held_out,
        "scores": entry.get("scores", {}),
        **({"by_text": entry["by_text"]} if "by_text" in entry else {}),
    }


def _evaluations(metrics: Iterable[Mapping[str, Any]], split: str) -> list[dict[str, Any]]:
    """Of a split, in their order; that of the end, of the best checkpoint, is none of them."""
    own = (each for each in metrics if each.get("split") == split and not each.get(FINAL))
    return [{name: each[name] for name in KEPT if name in each} for each in own]


def _data(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """What the data of the rows are, by name."""
    return {row["data"]: row["card"] for row in rows}
