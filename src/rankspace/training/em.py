"""Expectation maximisation for models without a network."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor

from rankspace.errors import RankspaceError
from rankspace.models import Model
from rankspace.models.direct import Direct
from rankspace.training.epochs import Share
from rankspace.training.processes import Processes
from rankspace.training.sections import EMConfig
from rankspace.training.step import Task, memory_for, nothing
from rankspace.training.watch import Watch


class EMStep:
    """EM. "full": counts of an epoch are added up, and its end sets the tables. "mini": stepwise EM (Cappé, Moulines
    2009; Liang, Klein 2009), in which running counts s of a sentence follow those of each batch,

        s <- (1 - eta) s + eta counts / sentences,  eta = (k + offset)^-decay at step k = 1, 2, ...

    and set the tables at once. They begin as the first tables, so nothing that a batch lacks becomes impossible.
    """

    def __init__(self, model: Model, config: EMConfig, processes: Processes) -> None:
        if not isinstance(model, Direct):
            raise RankspaceError(f"train: EM needs a model named direct, not {model.NAME}.")
        self.model, self.config, self.processes = model, config, processes
        self.watch = Watch(processes.device, "a count")
        self.num_steps = 0
        tables = model.tables()
        start = {name: table.exp() for name, table in tables.items()}
        self.counts = start if config.batch == "mini" else {name: torch.zeros_like(t) for name, t in tables.items()}

    def __call__(self, shares: Sequence[Share], learning_rate: float, meanwhile: Task = nothing) -> None:
        self.num_steps += 1
        with memory_for(self.watch.place, self.model, shares):
            self._learn_from(shares)

    def _learn_from(self, shares: Sequence[Share]) -> None:
        found = {name: torch.zeros_like(count) for name, count in self.counts.items()}
        for share in shares:
            if share.stands_in:
                continue
            counts, log_prob = self.model.counts(share.words, share.lengths)
            self.watch.losses(-log_prob, share.counts, share.predictions)
            for name, count in counts.items():
                found[name] += count
        found = {name: self.processes.total(count) for name, count in found.items()}
        self.watch.finite(torch.stack([count.sum() for count in found.values()]).sum())
        self._learn(found, sum(share.num_sentences for share in shares))

    def _learn(self, found: Mapping[str, Tensor], num_sentences: int) -> None:
        if self.config.batch == "full":
            for name, count in found.items():
                self.counts[name] += count
            return
        eta = (self.num_steps + self.config.offset) ** -self.config.decay
        for name, count in found.items():
            self.counts[name].mul_(1 - eta).add_(count, alpha=eta / num_sentences)
        self.model.set_counts(self.counts, self.config.pseudo_count)

    def settle(self) -> None:
        pass

    def frees_memory(self) -> bool:
        return False

    def end_epoch(self) -> None:
        if self.config.batch == "full":
            self.model.set_counts(self.counts, self.config.pseudo_count)
            for count in self.counts.values():
                count.zero_()

    def evaluated_weights(self) -> AbstractContextManager[None]:
        return nullcontext()

    def tensors(self) -> dict[str, Tensor]:
        counts = {f"counts.{name}": count for name, count in self.counts.items()}
        return {**counts, "em.num_steps": torch.tensor(self.num_steps)}

    def load_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        self.num_steps = int(tensors["em.num_steps"])
        for name, count in self.counts.items():
            count.copy_(tensors[f"counts.{name}"])
