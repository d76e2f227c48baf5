"""Several runs from different seeds, of which the one that explains held-out text best is kept. No trees are needed."""

import math
import multiprocessing
import os
import shutil
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import NamedTuple

from rankspace.errors import RankspaceError
from rankspace.training.config import Config
from rankspace.training.runs import Outcome, train

CANDIDATES = "candidates"


def train_restarts(
    config: Config,
    output: Path | str,
    seeds: Sequence[int],
    workers: int = 0,
    tick: Callable[[str], None] = lambda _: None,
    device: str = "cpu",
    first_epochs: int = 0,
    finalists: int = 1,
) -> Outcome:
    """Trains once for each seed and keeps as `output` the run with the lowest perplexity of the validation
    split; the others are removed. `tick` is told of each that is done.

    With `first_epochs` all are trained for that long, and only those `finalists` that have the lowest perplexity by
    then to the end. Runs are processes of one thread each, `workers` at a time (0: as many as there are CPUs). Each
    result is that of `train` with its seed. Raises RankspaceError for a folder that exists, and what `train` raises.
    """
    target = Path(output)
    if not seeds:
        raise RankspaceError("train_restarts: there are no seeds; give at least one.")
    if target.exists():
        raise RankspaceError(f"{target}: exists already; choose another name.")
    folder = target.with_name(f"{target.name}-{CANDIDATES}")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        plan = _Plan(folder, workers or _num_cpus(), tick, device)
        if first_epochs:
            early = _all(config.changed({"run.epochs": first_epochs}), seeds, plan)
            seeds = sorted(seeds, key=lambda seed: _perplexity(early[seed]))[:finalists]
        outcomes = _all(config, seeds, plan)
        best = min(seeds, key=lambda seed: _perplexity(outcomes[seed]))
        outcomes[best].directory.rename(target)
        return Outcome(target, outcomes[best].results)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class _Plan(NamedTuple):
    """Where runs go and how they are made."""

    folder: Path
    workers: int
    tick: Callable[[str], None]
    device: str


def _all(config: Config, seeds: Sequence[int], plan: _Plan) -> dict[int, Outcome]:
    """Runs that begin, or go on where they have begun."""
    spawn = multiprocessing.get_context("spawn")  # torch's threads do not survive a fork
    found: dict[int, Outcome] = {}
    with ProcessPoolExecutor(min(plan.workers, len(seeds)), mp_context=spawn, initializer=_one_thread) as pool:
        running = {
            pool.submit(_candidate, config.changed({"run.seed": seed}), plan.folder / f"seed-{seed}", plan.device): seed
            for seed in seeds
        }
        for done in as_completed(running):
            found[running[done]] = done.result()
            told = f"validation perplexity {_perplexity(found[running[done]]):.2f} after {config.run.epochs} epochs"
            plan.tick(f"seed {running[done]}: {told}")
    return found


def _num_cpus() -> int:
    """Those that this process may use, where the system tells."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _one_thread() -> None:
    import torch

    torch.set_num_threads(1)


def _candidate(config: Config, path: Path, device: str) -> Outcome:
    return train(config, path, device=device, resume=True)


def _perplexity(outcome: Outcome) -> float:
    """Infinite as text in records."""
    return float(outcome.results.get("best", {}).get("perplexity", math.inf))
