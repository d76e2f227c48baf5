"""Where a run stands: its place, and what the evaluations so far amount to."""

from dataclasses import dataclass, field

from rankspace.training.watch import Sums


@dataclass
class Progress:
    """Where a run is, as plain numbers: with the tensors of a checkpoint, all that resuming needs."""

    step: int = 0
    epoch: int = 0  # from 0; the number of epochs once all are done
    best: list[float] | None = None  # the measure that schedule and patience compare with; None before a finite one
    kept: list[float] | None = None  # the measure of the best checkpoint; None before a finite one
    best_step: int = 0  # of the best checkpoint
    kept_held_out: list[float] | None = None  # the measure of the checkpoint that held-out text chose, likewise
    held_out_step: int = 0  # of that checkpoint
    evaluated_step: int = -1
    num_judged: int = 0  # evaluations that schedule and patience have seen
    num_bad: int = 0  # those since the best one
    stopped: str = ""  # why training ended before its last epoch
    num_words: int = 0  # since the last record
    sums: Sums = field(default_factory=Sums)  # since the last record, of all processes
    seconds: float = 0.0  # of training, evaluation included

    def is_best(self, measure: list[float] | None) -> bool:
        """Whether the weights of an evaluation become the best checkpoint, as those of the first do."""
        found = self.best_step == 0 or _is_better(measure, self.kept)
        if found:
            self.kept, self.best_step = measure, self.step
        return found

    def is_best_held_out(self, measure: list[float] | None) -> bool:
        """Whether the weights of an evaluation become the checkpoint that held-out text chooses."""
        found = self.held_out_step == 0 or _is_better(measure, self.kept_held_out)
        if found:
            self.kept_held_out, self.held_out_step = measure, self.step
        return found

    def improved(self, measure: list[float] | None) -> bool:
        """Whether a planned evaluation is better than those before it, as the first is; counts those that are not."""
        found = self.num_judged == 0 or _is_better(measure, self.best)
        self.num_judged += 1
        self.num_bad = 0 if found else self.num_bad + 1
        if found:
            self.best = measure
        return found


def _is_better(measure: list[float] | None, than: list[float] | None) -> bool:
    return measure is not None and (than is None or measure < than)
