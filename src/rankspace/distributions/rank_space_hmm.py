"""The HMM whose transition and emission are one factor, decomposed around a rank (section 5)."""

from dataclasses import replace
from functools import cached_property, lru_cache
from typing import Any, ClassVar, NoReturn

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from rankspace.distributions.chain_results import ChainPath, ChainSample, PathTables, only, split_paths
from rankspace.distributions.chains import ChainDistribution, Lengths, Observed, no_viterbi, word_vectors
from rankspace.distributions.contract import Backend, Batch, Order, Parameters
from rankspace.distributions.hmm import HMM
from rankspace.distributions.memory import within_memory
from rankspace.inference.chain.forward import Recursion
from rankspace.inference.chain.incremental import Stepper
from rankspace.inference.chain.log_space import LogRecursion, forward_table
from rankspace.inference.chain.messages import Messages, at_the_end, filtered, largest_at_the_end
from rankspace.inference.chain.paths import (
    Choose,
    Draw,
    Trace,
    best,
    choose_before,
    choose_between,
    choose_often,
    max_product,
    trace,
)
from rankspace.inference.chain.prior import Generated
from rankspace.inference.exponentials import product_of_exponentials
from rankspace.inference.links import DenseLink, FactoredLink, Link, Precision
from rankspace.inference.logarithms import LogProduct, exact_log_product, log_matrix_product, log_sum_exp
from rankspace.inference.ragged import Ragged
from rankspace.lowrank.planner import Plan, plan


class RankSpaceHMM(ChainDistribution):
    """p(T_t, w_t | T_{t-1}) = sum_q state_to_rank[T_{t-1}, q] rank_to_state[q, T_t] emission[q, w_t],  T_0 ~ start.

    `log_start` [state], `log_state_to_rank` [state, rank] (U of the paper), `log_rank_to_state` [rank, state] (V) and
    `log_emission` [rank, vocab] (W) sum to one over their last axes. `eos` is the word that ends a sentence, if there
    is one: `sample` stops there.

    For n words, m states and rank r: order="rank" multiplies the link out, r^2 m once per batch, and then costs
    O(n r^2); order="state" goes through the states at O(n m r); "auto" takes what is cheaper for the batch, and
    `explain` tells which and why. A derivation of a sentence is T_0, q_1, T_1, ..., T_{n-1}, q_n: the state T_n that
    follows the last word has no influence on it and is summed out of gradients, counts and entropies. It is part of
    `state_marginals`, of samples and of `viterbi_joint`.
    """

    AXES: ClassVar = {
        "log_start": ("state",),
        "log_state_to_rank": ("state", "rank"),
        "log_rank_to_state": ("rank", "state"),
        "log_emission": ("rank", "vocab"),
    }
    WIDTH: ClassVar = "rank"

    def __init__(
        self,
        log_start: Float[Tensor, "_"],
        log_state_to_rank: Float[Tensor, "_ _"],
        log_rank_to_state: Float[Tensor, "_ _"],
        log_emission: Float[Tensor, "_ _"],
        eos: int | None = None,
        *,
        order: Order = "auto",
        precision: Precision = "highest",
        backend: Backend = "auto",
        validate: bool = True,
    ) -> None:
        parameters = {
            "log_start": log_start,
            "log_state_to_rank": log_state_to_rank,
            "log_rank_to_state": log_rank_to_state,
            "log_emission": log_emission,
        }
        super().__init__(parameters, eos=eos, order=order, precision=precision, backend=backend, validate=validate)

    @property
    def vocabulary(self) -> int:
        return self.sizes["vocab"]

    def _recursion(self, parameters: Parameters, batch: Batch) -> Recursion:
        """Vectors over ranks: start s U, link V U (figure 5c), words W."""
        log_words, index = word_vectors(parameters["log_emission"], batch)
        log_start, log_to_rank = parameters["log_start"], parameters["log_state_to_rank"]
        if self._order_for(batch.lengths) == "state":
            to_rank, to_state = log_to_rank.exp(), parameters["log_rank_to_state"].exp()
            link: Link = FactoredLink(to_rank.T, to_state.T, self.precision)
            return Recursion(log_start.exp() @ to_rank, log_words, link, index, batch.layout)
        log_lefts = parameters["log_rank_to_state"], log_start[None]
        found = product_of_exponentials(log_lefts, log_to_rank, self.precision)
        return Recursion(found[-1], log_words, DenseLink(found[:-1].T, self.precision), index, batch.layout)

    def _log_recursion(self, parameters: Parameters, batch: Batch) -> LogRecursion:
        log_words, index = word_vectors(parameters["log_emission"], batch)
        to_rank, to_state = parameters["log_state_to_rank"].T, parameters["log_rank_to_state"].T
        log_start = log_sum_exp(parameters["log_start"] + to_rank)
        return LogRecursion(log_start, log_words, (to_state, to_rank), index, batch.layout)

    def _order_for(self, lengths: tuple[int, ...]) -> Order:
        return self._plan(lengths).order if self.order == "auto" else self.order

    def _plan(self, lengths: tuple[int, ...]) -> Plan:
        sizes, width = self.sizes, self.dtype.itemsize
        ordered = tuple(sorted(n for n in lengths if n > 0))
        return _plan(sizes["state"], sizes["rank"], sizes["vocab"], ordered, width)

    def explain(self, words: Tensor, lengths: Lengths = None) -> str:
        """Which order a batch is computed in, and why: the planner's account of both, or that it was asked for."""
        found = self._plan(self._batch(words, lengths).lengths)
        if self.order == "auto":
            return found.explain()
        return f'order="{self.order}" was asked for; the planner\'s account:\n{found.explain()}'

    def collapse(self) -> HMM:
        """The same distribution over sentences as an HMM whose states are the ranks; exact and differentiable.

        Start s U, transition V U, emission W. Costs r^2 m.
        """
        to_rank, to_state = self.parameters["log_state_to_rank"], self.parameters["log_rank_to_state"]
        return HMM(
            log_sum_exp(self.parameters["log_start"] + to_rank.T),
            log_matrix_product(to_state, to_rank),
            self.parameters["log_emission"],
            self.eos,
            precision=self.precision,
            backend=self.backend,
            validate=self.validate,
        )

    # Queries: vectors are over ranks, states lie between them.

    def _query_recursion(self, batch: Batch) -> LogRecursion:
        recursion = super()._query_recursion(batch)
        return self._joined(recursion, exact_log_product) if self._order_for(batch.lengths) == "rank" else recursion

    def _joined(self, recursion: LogRecursion, product: LogProduct) -> LogRecursion:
        """With one link from ranks to ranks."""
        to_state, to_rank = recursion.log_links
        return replace(recursion, log_links=(product(to_state.T)(to_rank),))

    @cached_property
    def _stepper(self) -> Stepper:
        return replace(self._prior, log_links=(exact_log_product(self._to_state)(self._to_rank.T),))

    @property
    def _to_rank(self) -> Float[Tensor, "state rank"]:
        return self.parameters["log_state_to_rank"].detach().double()

    @property
    def _to_state(self) -> Float[Tensor, "rank state"]:
        return self.parameters["log_rank_to_state"].detach().double()

    def _state_posterior(self, messages: Messages, rows: Int[Tensor, "row"]) -> Float[Tensor, "row state"]:
        """p(T_t | sentence) = (V^T forward_t)[T] * (U arriving_{t+1})[T]; the last one is V^T forward_n."""
        layout = messages.recursion.layout
        following = layout.following[rows]
        later = following >= 0
        log_joint = exact_log_product(self._to_state.T)(messages.forward[rows])
        log_joint[later] += exact_log_product(self._to_rank)(messages.arriving[following[later]])
        return messages.normalised(log_joint, rows)

    def _filtered_states(self, log_vectors: Float[Tensor, "row rank"]) -> Float[Tensor, "row state"]:
        return filtered(log_vectors) @ self._to_state.exp()

    def viterbi(self, *_: Any, **__: Any) -> NoReturn:
        """Not available: see `viterbi_joint`."""
        raise no_viterbi("RankSpaceHMM")

    @within_memory
    def viterbi_joint(
        self, words: Int[Tensor, "batch length"], lengths: Lengths = None, observed: Observed = None
    ) -> list[ChainPath | None]:
        """The likeliest joint assignment of states T_0 .. T_n and ranks of each sentence; None for an impossible one.

        The likeliest states alone are not available: their probability is a sum over ranks, and the maximum over
        states does not commute with it. In rank order r^2 m once, then O(n r^2); in state order O(n m r); no matrix
        products in either.
        """
        with torch.no_grad():
            batch = self._sentences(words, lengths, observed)
            recursion = self._max_recursion(batch)
            forward, log_end = forward_table(recursion, max_product), self._to_state.amax(1)
            found = trace(recursion, forward, max_product, best, log_end=log_end)
            possible = self._possible(at_the_end(recursion.layout, (forward + log_end).amax(1)))
            return only(self._paths(recursion, found, best, possible))

    def _max_recursion(self, batch: Batch) -> LogRecursion:
        """For maxima over states as well as ranks."""
        recursion = super()._query_recursion(batch)
        recursion = replace(recursion, log_start=(self._log_first[:, None] + self._to_rank).amax(0))
        return self._joined(recursion, max_product) if self._order_for(batch.lengths) == "rank" else recursion

    def _largest(self, batch: Batch) -> Float[Tensor, "batch"]:
        recursion = self._max_recursion(batch)
        return largest_at_the_end(recursion.layout, forward_table(recursion, max_product))

    @property
    def _log_first(self) -> Float[Tensor, "state"]:
        return self.parameters["log_start"].detach().double()

    def _paths(
        self, recursion: LogRecursion, found: Trace, choose: Choose, possible: Bool[Tensor, "batch"]
    ) -> list[ChainPath | None]:
        """Ranks were traced; states T_1 .. T_{n-1} too in state order. The others are chosen given the ranks."""
        layout, ranks, num = recursion.layout, found.vectors, found.vectors.shape[1]
        states = found.between[0].clone() if found.between else torch.full_like(ranks, -1)
        if not found.between and len(layout.previous):
            before, after = ranks[layout.previous].flatten(), ranks[layout.alive[1] :].flatten()
            chosen = choose_between(self._to_state.T, self._to_rank.T, before, after, choose)
            states[layout.previous] = chosen.reshape(len(layout.previous), num)
        last = (layout.following < 0).nonzero()[:, 0]
        flat = self._log_first.new_zeros(len(last), self.sizes["state"])
        states[last] = choose_before(flat, self._to_state, ranks[last], choose)
        first = self._chosen_first(layout, ranks, choose)
        log_joint = self._log_joint(recursion, states, ranks, first)
        self._possible(log_joint)  # the last state is no part of log Z, nor the first of an empty sentence
        tables = PathTables(states, log_joint.to(self.dtype), ranks, first)
        return split_paths(layout, tables, possible)

    def _chosen_first(self, layout: Ragged, ranks: Tensor, choose: Choose) -> Int[Tensor, "batch num"]:
        """T_0 given the first rank; from the start alone if there is no word."""
        count = layout.alive[1]
        start = self._log_first.expand(len(layout.lengths), -1)
        given = choose_before(start[:count], self._to_rank.T, ranks[:count], choose)
        return torch.cat([given, choose_often(start[count:], ranks.shape[1], choose)])

    def _log_joint(
        self, recursion: LogRecursion, states: Tensor, ranks: Tensor, first: Tensor
    ) -> Float[Tensor, "batch num"]:
        """log p(words, states, ranks) by place."""
        layout, count = recursion.layout, recursion.layout.alive[1]
        before = torch.cat([first[:count], states[layout.previous]])
        rows = recursion.log_words[recursion.index].gather(1, ranks)
        rows = rows + self._to_rank[before, ranks] + self._to_state[ranks, states]
        return layout.unpack(rows).sum(1)[layout.sentence_at] + self._log_first[first]

    def _with_paths(self, sample: ChainSample, made: Generated, draw: Draw) -> ChainSample:
        steps = torch.arange(made.words.shape[1], device=self.device)
        last = draw(self._to_state[made.vectors.gather(1, made.lengths[:, None] - 1)])
        states = torch.where(steps == made.lengths[:, None] - 1, last, made.between[0])
        first = draw(self._log_first + self._to_rank.T[made.vectors[:, 0]])
        beyond = steps >= made.lengths[:, None]
        ranks = made.vectors.masked_fill(beyond, -1)
        return sample._replace(states=states.masked_fill(beyond, -1), ranks=ranks, first=first)


@lru_cache(maxsize=256)
def _plan(states: int, rank: int, vocabulary: int, lengths: tuple[int, ...], width: int) -> Plan:
    """Training sees the same lengths again."""
    return plan("chain", states=states, rank=rank, vocabulary=vocabulary, length=lengths, bytes_per_number=width)
