"""What `rankspace bench chain` and `rankspace bench tree` have in common: comparisons, then growth, as one record."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from rankspace.bench.comparison import Implementation, Task, compare, num_ticks
from rankspace.bench.growth import Term, measure
from rankspace.bench.measurement import circumstances


@dataclass(frozen=True)
class Comparison:
    """A task, made when its turn comes, and who does it."""

    make_task: Callable[[], Task]
    implementations: Mapping[str, Implementation]


@dataclass(frozen=True)
class Suite:
    """All that one command measures."""

    name: str
    device: torch.device
    repeats: int
    rank_space: Sequence[Comparison]
    dense: Sequence[Comparison]
    terms: Sequence[Term]
    missing: Sequence[str]  # one line for each comparison that cannot be made

    @property
    def num_runs(self) -> int:
        """How often `run` calls `tick`."""
        compared = sum(num_ticks(len(each.implementations), self.repeats) for each in (*self.rank_space, *self.dense))
        return compared + self.repeats * sum(len(term.make_tasks) for term in self.terms)

    def run(self, tick: Callable[[], None] = lambda: None) -> dict[str, Any]:
        """The record, a JSON object. Raises RankspaceError if results do not agree."""
        return {
            "benchmark": self.name,
            **circumstances(self.device),
            "missing": list(self.missing),
            "rank_space": [self.compared(each, tick) for each in self.rank_space],
            "dense": [self.compared(each, tick) for each in self.dense],
            "growth": [measure(term, self.repeats, tick) for term in self.terms],
        }

    def compared(self, comparison: Comparison, tick: Callable[[], None] = lambda: None) -> dict[str, Any]:
        """The part of the record that is one comparison."""
        return compare(self.name, comparison.make_task(), comparison.implementations, self.repeats, tick)
