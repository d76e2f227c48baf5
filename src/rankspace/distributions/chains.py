"""Distributions over sentences that are chains: the queries that HMMs of every kind share."""

from functools import cached_property

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from rankspace.distributions.chain_recursion import Lengths, Observed, RecursiveDistribution, word_vectors
from rankspace.distributions.chain_results import ChainPath, ChainSample, PathTables, only, split_paths
from rankspace.distributions.chain_state import ChainState, empty_state
from rankspace.distributions.contract import Batch
from rankspace.distributions.memory import within_memory
from rankspace.distributions.parameters import is_integral, nan_error
from rankspace.errors import RankspaceError, ShapeError
from rankspace.inference.chain.incremental import Stepper
from rankspace.inference.chain.log_space import LogRecursion, forward_table
from rankspace.inference.chain.messages import Messages, at_the_end, filtered, largest_at_the_end, surprisals
from rankspace.inference.chain.paths import Choose, Draw, Trace, best, log_weight, max_product, trace
from rankspace.inference.chain.prior import Generated, generate, mass_without
from rankspace.inference.logarithms import CHUNK, exact_log_product

__all__ = ["ChainDistribution", "Lengths", "Observed", "no_viterbi", "padded_rows", "word_vectors"]


class ChainDistribution(RecursiveDistribution):
    """Queries on chains. All but `log_prob` and what follows from it are answered from messages in float64 logarithms,
    exact in every entry, and have no derivatives."""

    @within_memory
    def state_marginals(
        self,
        words: Int[Tensor, "batch length"],
        lengths: Lengths = None,
        observed: Observed = None,
        positions: Int[Tensor, "position 2"] | None = None,
    ) -> Float[Tensor, "batch length state"] | Float[Tensor, "position state"]:
        """p(T_t | sentence); T_t is the state that emits word t (RankSpaceHMM: the state that follows word t's rank).

        Zeros in padding and in impossible sentences. With `positions`, pairs (sentence, time), only these rows are
        made, and not the table of all.
        """
        with torch.no_grad():
            batch = self._sentences(words, lengths, observed)
            messages = self._messages(batch)
            if positions is not None:
                return self._marginals(messages, self._rows(batch, positions))
            rows = self._marginals(messages, torch.arange(batch.layout.num_tokens, device=self.device))
            return padded_rows(batch, rows)

    def _marginals(self, messages: Messages, rows: Int[Tensor, "row"]) -> Float[Tensor, "row state"]:
        """In pieces, for they are computed in float64."""
        parts = rows.split(max(1, CHUNK // self.sizes["state"]))
        return torch.cat([self._state_posterior(messages, part).to(self.dtype) for part in parts])

    def _state_posterior(self, messages: Messages, rows: Int[Tensor, "row"]) -> Float[Tensor, "row state"]:
        return messages.posterior(rows)

    def _rows(self, batch: Batch, positions: Int[Tensor, "position 2"]) -> Int[Tensor, "position"]:
        if positions.dim() != 2 or positions.shape[1] != 2 or not is_integral(positions):
            raise ShapeError(
                f"{type(self).__name__}: positions are {positions.dtype} {tuple(positions.shape)}; give integers "
                f"[position, 2]: pairs (sentence, time)."
            )
        sentence, time = positions.to(self.device, torch.int64).unbind(1)
        lengths = torch.tensor(batch.lengths, device=self.device)
        inside = (sentence >= 0) & (sentence < len(lengths)) & (time >= 0)
        inside &= time < lengths[sentence.where(inside, 0)] if len(lengths) else False
        if not bool(inside.all()):
            wrong = positions[int((~inside).nonzero()[0])].tolist()
            raise RankspaceError(
                f"{type(self).__name__}: position {tuple(wrong)} is not a word of the batch; give pairs (sentence, "
                f"time) with times below the sentence's length."
            )
        return batch.layout.row(batch.layout.place_of[sentence], time, 1)

    @within_memory
    def filter(
        self, words: Int[Tensor, "batch length"], lengths: Lengths = None, observed: Observed = None
    ) -> Float[Tensor, "batch length state"]:
        """p(T_t | words up to t) for every t; T_t as in `state_marginals`. Zeros in padding and once impossible."""
        with torch.no_grad():
            batch = self._sentences(words, lengths, observed)
            rows = self._filtered_states(self._messages(batch).forward)
            return padded_rows(batch, rows.to(self.dtype))

    def _filtered_states(self, log_vectors: Float[Tensor, "row size"]) -> Float[Tensor, "row state"]:
        return filtered(log_vectors)

    @within_memory
    def surprisal(
        self, words: Int[Tensor, "batch length"], lengths: Lengths = None, observed: Observed = None
    ) -> Float[Tensor, "batch length"]:
        """- log p(w_t | words before it), in nats; inf from the first word that cannot follow on, 0 in padding.

        Of a word that was not observed it is 0.
        """
        with torch.no_grad():
            batch = self._sentences(words, lengths, observed)
            return padded_rows(batch, surprisals(self._messages(batch)).to(self.dtype))

    @within_memory
    def next_word(
        self, words: Int[Tensor, "batch length"], lengths: Lengths = None, observed: Observed = None
    ) -> Float[Tensor, "batch vocab"]:
        """log p(next word | prefix) for each prefix, which may be empty; -inf throughout if it is impossible.

        Reads the whole emission table: size * vocab operations for each prefix.
        """
        with torch.no_grad():
            batch = self._sentences(words, lengths, observed)
            layout, stepper = batch.layout, self._stepper
            predicted = stepper.log_start.expand(len(batch.lengths), -1)
            if layout.num_tokens:
                after = self._log_predicted(self._messages(batch), layout.last_token)
                predicted = torch.where(layout.length_at[:, None] > 0, after, predicted)
            return layout.in_callers_order(stepper.next_word(predicted)).to(self.dtype)

    def _log_predicted(self, messages: Messages, rows: Int[Tensor, "row"]) -> Float[Tensor, "row size"]:
        """log p(words up to t, the vector of the word after) at some words."""
        return self._stepper.predicted(messages.forward[rows])

    def begin(self, batch: int = 1) -> ChainState:
        """The state before all words of `batch` sentences, to be read word by word."""
        self._check_count("begin", "batch", batch)
        with torch.no_grad():
            start = self.parameters["log_start"].detach().exp()
            return empty_state(self._stepper, self._filtered_states, start, batch)

    @within_memory
    def sample_posterior(
        self,
        words: Int[Tensor, "batch length"],
        lengths: Lengths = None,
        num: int = 1,
        generator: torch.Generator | None = None,
        observed: Observed = None,
    ) -> list[ChainPath | None]:
        """`num` independent samples of p(hidden path | sentence) for each sentence; None for an impossible one."""
        self._check_count("sample_posterior", "num", num)
        with torch.no_grad():
            messages = self._messages(self._sentences(words, lengths, observed))
            possible, draw = self._possible(messages.log_z), Draw(generator)
            found = trace(messages.recursion, messages.forward, exact_log_product, draw, num)
            return self._paths(messages.recursion, found, draw, possible)

    def _largest(self, batch: Batch) -> Float[Tensor, "batch"]:
        recursion = self._query_recursion(batch)
        return largest_at_the_end(recursion.layout, forward_table(recursion, max_product))

    def _best_paths(self, batch: Batch) -> list[ChainPath | None]:
        recursion = self._query_recursion(batch)
        forward = forward_table(recursion, max_product)
        possible = self._possible(at_the_end(recursion.layout, forward.amax(1)))
        return only(self._paths(recursion, trace(recursion, forward, max_product, best), best, possible))

    def _possible(self, log_weights: Float[Tensor, "*rows"]) -> Bool[Tensor, "*rows"]:
        """What has a positive weight; raises RankspaceError for NaN, which is neither."""
        if bool(log_weights.isnan().any()):
            raise nan_error(type(self).__name__, self.parameters)
        return log_weights > -torch.inf

    def _check_count(self, operation: str, argument: str, count: int) -> None:
        if count < 0:
            raise RankspaceError(f"{type(self).__name__}: {operation}: {argument} is {count}; give 0 or more.")

    def _check_sample(self, num: int, max_length: int) -> None:
        self._check_count("sample", "num", num)
        if max_length < 1:
            raise RankspaceError(f"{type(self).__name__}: sample: max_length is {max_length}; give at least one word.")

    def _paths(
        self, recursion: LogRecursion, found: Trace, choose: Choose, possible: Bool[Tensor, "batch"]
    ) -> list[ChainPath | None]:
        """What was traced, as paths of states; ranks, if the links passed through any."""
        ranks = found.between[0] if found.between else None
        tables = PathTables(found.vectors, log_weight(recursion, found).to(self.dtype), ranks)
        return split_paths(recursion.layout, tables, possible, num_ranks_less=1)

    def sample(self, num: int, max_length: int, generator: torch.Generator | None = None) -> ChainSample:
        """`num` sentences with their hidden paths. They end with `eos`, or are cut at `max_length` words.

        Without `eos` all have `max_length` words. `lost_mass` of the result is the exact probability of being cut.
        """
        self._check_sample(num, max_length)
        with torch.no_grad():
            draw, stepper = Draw(generator), self._prior
            made = generate(stepper, num, max_length, self.eos, draw)
            beyond = torch.arange(made.words.shape[1], device=self.device) >= made.lengths[:, None]
            lost = torch.zeros((), dtype=self.dtype, device=self.device)
            if self.eos is not None:
                lost = mass_without(stepper, self.eos, max_length).to(self.dtype)
            cut = ~made.ended if self.eos is not None else torch.zeros_like(made.ended)
            words = made.words.masked_fill(beyond, -1)
            return self._with_paths(ChainSample(words, made.lengths, made.vectors, cut, lost), made, draw)

    def _with_paths(self, sample: ChainSample, made: Generated, draw: Draw) -> ChainSample:
        steps = torch.arange(made.words.shape[1], device=self.device)
        states = made.vectors.masked_fill(steps >= made.lengths[:, None], -1)
        if not made.between:
            return sample._replace(states=states)
        return sample._replace(states=states, ranks=made.between[0].masked_fill(steps >= made.lengths[:, None] - 1, -1))

    def _messages(self, batch: Batch) -> Messages:
        return Messages(self._query_recursion(batch))

    def _query_recursion(self, batch: Batch) -> LogRecursion:
        return self._log_recursion(self.detach().parameters, batch).map(Tensor.double)

    @cached_property
    def _prior(self) -> Stepper:
        """The chain without words, factors not multiplied out."""
        empty = Batch(torch.zeros(0, 0, dtype=torch.int64, device=self.device), (), {})
        recursion = self._log_recursion(self.detach().parameters, empty).map(Tensor.double)
        log_emission = self.parameters["log_emission"].detach().double()
        return Stepper(recursion.log_start, recursion.log_links, log_emission)

    @property
    def _stepper(self) -> Stepper:
        return self._prior


def no_viterbi(name: str) -> RankspaceError:
    return RankspaceError(
        f"{name}: viterbi is not available, for the maximum over states does not commute with the sum over ranks; use "
        f"viterbi_joint, the best assignment of states and ranks together, or state_marginals."
    )


def padded_rows(batch: Batch, rows: Float[Tensor, "token *rest"]) -> Float[Tensor, "batch length *rest"]:
    """[token, ...] -> [batch, length, ...] as wide as the words; zeros beyond the lengths."""
    full = rows.new_zeros((*batch.words.shape, *rows.shape[1:]))
    full[:, : batch.layout.longest] = batch.layout.unpack(rows)
    return full
