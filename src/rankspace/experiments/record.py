"""The record of a table, one JSON object, made from the folders of its runs and nothing else."""

import datetime
import json
from itertools import groupby
from typing import Any

import torch

from rankspace.experiments.datasets import SYNTHETIC_NOTE
from rankspace.experiments.jobs import SHARING, Job, Request, begun
from rankspace.experiments.statistics import of_runs
from rankspace.experiments.tables import Table
from rankspace.files import whole_file
from rankspace.training import Config, RunDirectory
from rankspace.training.config import config_from_text, flat
from rankspace.training.data_source import SYNTHETIC
from rankspace.training.machine import environment
from rankspace.training.run_directory import FINAL, TRAINING

KEPT = ("step", "epoch", "elapsed", "perplexity", "f1", "corpus_f1", "num_impossible")  # of evaluations
OF_THE_MACHINE = ("data.source", "run.track", "run.seed")  # options that are not the row's


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
    groups = groupby(begun(request), key=lambda job: (job.data, job.row.name))
    rows = [_row(table, list(jobs)) for _, jobs in groups]
    return {
        "table": table.name,
        "title": table.title,
        "quick": request.quick,
        "date": datetime.date.today().isoformat(),
        "environment": environment(torch.device(device)),
        "note": SYNTHETIC_NOTE if any(row["data"] == SYNTHETIC for row in rows) else "",
        "peers": [{**peer, "minutes": peer["steps"] * peer["milliseconds"] / 60_000} for peer in table.peers],
        "data": _data(rows),
        "rows": [{name: value for name, value in row.items() if name != "card"} for row in rows],
    }


def _row(table: Table, jobs: list[Job]) -> dict[str, Any]:
    row, runs = jobs[0].row, [_run(job) for job in jobs]
    first = RunDirectory.open(jobs[0].folder)
    return {
        "name": row.name,
        "title": row.title,
        "about": row.about,
        "data": jobs[0].data,
        "ablation_of": row.ablation_of,
        "paper": row.paper,
        "reproduction": row.reproduction,
        "config": options_of_row(config_from_text(first.config, str(first.path))),
        "weights": first.card["model"]["weights"],
        "planned_seeds": list(row.seeds),
        "runs": runs,
        "statistics": of_runs(runs, table.target_of(row)),
        "card": first.card["data"],
    }


def options_of_row(config: Config) -> dict[str, Any]:
    """The options of a run that are those of its row, by section.key."""
    return {key: value for key, value in flat(config).items() if key not in OF_THE_MACHINE}


def _run(job: Job) -> dict[str, Any]:
    run = RunDirectory.open(job.folder)
    results, metrics, entry = run.card["results"], run.metrics(), job.entry or {}
    valid = [each for each in metrics if each.get("split", TRAINING) != TRAINING and not each.get(FINAL)]
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
        "evaluations": [{name: each[name] for name in KEPT if name in each} for each in valid],
        "scores": entry.get("scores", {}),
    }


def _data(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """What the data of the rows are, by name."""
    return {row["data"]: row["card"] for row in rows}
