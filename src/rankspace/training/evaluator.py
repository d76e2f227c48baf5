"""Evaluating a model on a split while it trains: perplexity and, with gold trees, S-F1."""

import math
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch

from rankspace.data.batches import Batch, Batches
from rankspace.data.corpus import Corpus
from rankspace.devices import is_gpu
from rankspace.errors import RankspaceError
from rankspace.evaluation import ParseScores, Perplexity, chain_perplexity, score, tree_perplexity
from rankspace.models import Model
from rankspace.training.machine import EVALUATION_LIMITS, enough_memory
from rankspace.training.processes import Processes
from rankspace.trees import Tree

SEED = 0  # of what evaluation draws, the same each time


class Scored(NamedTuple):
    """What was found of one sentence."""

    number: int
    log_prob: float
    tree: Tree | None


class Evaluated(NamedTuple):
    """The result of an evaluation."""

    perplexity: Perplexity
    scores: ParseScores | None  # None for chains, and where there are no gold trees
    num_left_out: int  # longer than asked for
    seconds: float

    def measure(self, name: str) -> list[float] | None:
        """What is better the lower it is; None where there is nothing finite.

        Fewer impossible sentences are better than any perplexity of the possible ones.
        """
        if name == "perplexity":
            found = [float(self.perplexity.num_impossible), self.perplexity.of_possible]
            return found if math.isfinite(found[1]) else None
        return None if self.scores is None or self.scores.s_f1 is None else [-self.scores.s_f1]

    def record(self) -> dict[str, Any]:
        """For metrics.jsonl; infinite perplexities as text."""
        plain = self.perplexity.to_json()
        found = {name: plain[name] for name in ("perplexity", "num_sentences", "num_impossible", "num_skipped")}
        if self.perplexity.num_impossible:
            found["perplexity_of_possible"] = plain["of_possible"]
        if self.scores is not None:
            found |= {"f1": self.scores.s_f1, "corpus_f1": self.scores.corpus_f1}
        return {**found, "num_left_out": self.num_left_out, "seconds": round(self.seconds, 3)}


class Evaluator:
    """Evaluates on a corpus, batches shared by the processes. Draws no random numbers of the training."""

    def __init__(
        self,
        corpus: Corpus,
        kind: str,
        processes: Processes,
        *,
        max_tokens: int = 2048,
        max_length: int = 0,
        parse: bool = True,
    ) -> None:
        self.corpus, self.is_tree, self.processes = corpus, kind == "tree", processes
        self.parses = parse and self.is_tree and corpus.gold is not None
        self._batches = Batches(
            corpus, max_tokens=max_tokens, max_length=max_length or None, eos=not self.is_tree, shuffle=False
        )

    def __call__(self, model: Model) -> Evaluated:
        begin, was_training = time.perf_counter(), model.training
        model.eval()
        devices = [self.processes.device] if is_gpu(self.processes.device) else []
        try:
            with torch.no_grad(), torch.random.fork_rng(devices):
                torch.manual_seed(SEED)
                own = [scored for batch in self._own() for scored in self._within_memory(model, batch)]
        finally:
            model.train(was_training)
        found = sorted(self.processes.gathered(own))
        return Evaluated(
            self._perplexity(found),
            self._scores(found) if self.parses else None,
            self._batches.num_left_out,
            time.perf_counter() - begin,
        )

    def check_scores(self, split: str, model: str) -> None:
        """Raises RankspaceError if there is no S-F1 to measure by."""
        what = f"{model} is a chain" if not self.is_tree else f"the split {split!r} has no gold trees"
        if not self.parses:
            raise RankspaceError(f"train: evaluation.measure is 's_f1' but {what}; measure by perplexity.")

    def _own(self) -> Iterator[Batch]:
        plan = self._batches.plan()
        for numbers in plan[self.processes.rank :: self.processes.world]:
            yield self._batches.batch(numbers)

    def _within_memory(self, model: Model, batch: Batch) -> list[Scored]:
        shape = tuple(batch.words.shape)
        with enough_memory("evaluation", model, [shape], EVALUATION_LIMITS, learns=False, parses=self.parses):
            return self._scored(model, batch)

    def _scored(self, model: Model, batch: Batch) -> list[Scored]:
        words, lengths = batch.words.to(self.processes.device), batch.lengths.tolist()
        trees: list[Tree | None] = [None] * len(lengths)
        if not self.parses:
            log_prob = model.log_prob(words, lengths)
        else:
            posed = model.pose(words, lengths)
            query: Any = posed.distribution
            trees = query.mbr(posed.words, posed.lengths)
            log_prob = model.log_prob(words, lengths) if model.BOUND else query.log_prob(posed.words, posed.lengths)
        return [Scored(*each) for each in zip(batch.numbers.tolist(), log_prob.tolist(), trees, strict=True)]

    def _perplexity(self, found: list[Scored]) -> Perplexity:
        lengths = [int(self.corpus.lengths[one.number]) for one in found]
        log_probs = [one.log_prob for one in found]
        if self.is_tree:
            return tree_perplexity(log_probs, lengths)
        return chain_perplexity(log_probs, [length + 1 for length in lengths])

    def _scores(self, found: list[Scored]) -> ParseScores:
        gold = [self.corpus.spans(one.number) or [] for one in found]
        return score(gold, [one.tree for one in found], [int(self.corpus.lengths[one.number]) for one in found])
