"""Whether costs grow as claimed: each term by itself, over sizes at which it is the largest.

For each term one size is varied and the power fitted, in log-log, to the operations the engine carried out (exact, the
same in every run) and to the time it spent in those of the term's phase (which also shows caches, threads and whatever
else runs on the machine).
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import mean
from typing import Any

from torch import Tensor

from rankspace.bench.comparison import Task
from rankspace.bench.operations import operations
from rankspace.bench.profiling import Phase, phase_milliseconds


@dataclass(frozen=True)
class Term:
    """A term of a cost, at tasks that differ in one of its sizes."""

    formula: str
    varied: str
    power: int  # claimed
    phase: Phase  # the operations that make the term
    log_prob: Callable[..., Tensor]
    make_tasks: Sequence[Callable[[], Task]]  # at least four


def measure(term: Term, repeats: int, tick: Callable[[], None]) -> dict[str, Any]:
    """The fitted powers and what they were fitted to. `tick` is called `repeats` times for each task."""
    tasks = [make_task() for make_task in term.make_tasks]
    times = [_fastest(task, term, repeats, tick) for task in tasks]
    found = count(term)
    return {**found, "timed": fitted_power(found["values"], times), "milliseconds": times}


def count(term: Term) -> dict[str, Any]:
    """The power fitted to the numbers of operations alone."""
    tasks = [make_task() for make_task in term.make_tasks]
    values = [task.sizes[term.varied] for task in tasks]
    counts = [operations(partial(task.run, term.log_prob))[term.phase] for task in tasks]
    return {
        "term": term.formula,
        "varied": term.varied,
        "claimed": term.power,
        "counted": fitted_power(values, counts),
        "values": values,
        "operations": counts,
        "sizes": {name: size for name, size in tasks[0].sizes.items() if name != term.varied},
    }


def fitted_power(values: Sequence[int], costs: Sequence[int | float]) -> float:
    """The slope of the least-squares line through (log value, log cost)."""
    x, y = [math.log(value) for value in values], [math.log(cost) for cost in costs]
    centre, level = mean(x), mean(y)
    covariance = sum((a - centre) * (b - level) for a, b in zip(x, y, strict=True))
    return covariance / sum((a - centre) ** 2 for a in x)


def _fastest(task: Task, term: Term, repeats: int, tick: Callable[[], None]) -> float:
    """Milliseconds in the term's phase: the least of the repeats, which others on the machine disturb least."""
    found = []
    for _ in range(repeats):
        found.append(phase_milliseconds(lambda: task.run(term.log_prob), task.device)[term.phase])
        tick()
    return min(found)
