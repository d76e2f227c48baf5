"""The hidden semi-Markov model: states that last for more than one word."""

from functools import cached_property
from typing import ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from rankspace.distributions.chain_results import ChainPath, ChainSample, only
from rankspace.distributions.chain_state import ChainState
from rankspace.distributions.chains import ChainDistribution, Lengths, Observed, word_vectors
from rankspace.distributions.contract import Backend, Batch, Order, Parameters
from rankspace.distributions.memory import within_memory
from rankspace.errors import RankspaceError
from rankspace.inference.chain.messages import Messages, at_the_end, largest_at_the_end
from rankspace.inference.chain.paths import Choose, Draw, best, max_product
from rankspace.inference.chain.segment_messages import SegmentMessages
from rankspace.inference.chain.segment_prior import SegmentStepper, generate_segments, log_mass_ended
from rankspace.inference.chain.segments import trace
from rankspace.inference.chain.semi_markov import SemiMarkov
from rankspace.inference.chain.semi_markov_backward import log_z, log_z_slopes
from rankspace.inference.chain.semi_markov_log import LogChart, LogSemiMarkov, chart_of, log_z_in_log_space, steps
from rankspace.inference.links import DenseLink, Precision
from rankspace.inference.logarithms import LogProduct, exact_log_product


class HSMM(ChainDistribution):
    """A state is entered (the first by `start`, others by `transition`), draws a duration d of 1 .. D words, emits them
    independently, and moves on; a move into the same state begins another segment.

    `log_start` [state], `log_transition` [state, next state], `log_emission` [state, vocab] and `log_duration` [state,
    duration], at [state, d - 1], sum to one over their last axes. O(n D m + n m^2) for n words and m states. A
    derivation of a sentence is its segments. The last of them ends with the sentence, so `log_prob` is log p(words, a
    segment ends after the last). This is at most the log-probability that a sentence begins with these words, which is
    what `filter`, `next_word`, `surprisal` and `begin` are about: there the last segment may go on.

    `eos` is the word that ends a sentence, if there is one: `sample` stops there. For sentences to have probabilities
    that sum to one, a segment must end with every `eos`: it should come from states of duration 1.
    """

    AXES: ClassVar = {
        "log_start": ("state",),
        "log_transition": ("state", "state"),
        "log_emission": ("state", "vocab"),
        "log_duration": ("state", "duration"),
    }
    ORDERS = ("auto", "state")
    VECTORS: ClassVar = (3, 10)
    NO_RANK_ORDER = "its link is one dense matrix over states and has no ranks"

    def __init__(
        self,
        log_start: Float[Tensor, "_"],
        log_transition: Float[Tensor, "_ _"],
        log_emission: Float[Tensor, "_ _"],
        log_duration: Float[Tensor, "_ _"],
        eos: int | None = None,
        *,
        order: Order = "auto",
        precision: Precision = "highest",
        backend: Backend = "auto",
        validate: bool = True,
    ) -> None:
        parameters = {
            "log_start": log_start,
            "log_transition": log_transition,
            "log_emission": log_emission,
            "log_duration": log_duration,
        }
        super().__init__(parameters, eos=eos, order=order, precision=precision, backend=backend, validate=validate)

    @property
    def vocabulary(self) -> int:
        return self.sizes["vocab"]

    def explain(self, words: Int[Tensor, "batch length"], lengths: Lengths = None) -> str:
        """Which order a batch is computed in, and why."""
        self._batch(words, lengths)
        sizes = self.sizes
        return (
            f"chain: state order; the link is one dense matrix over {sizes['state']} states, durations up to "
            f"{sizes['duration']}"
        )

    def _recursion(self, parameters: Parameters, batch: Batch) -> SemiMarkov:
        log_words, index = word_vectors(parameters["log_emission"], batch)
        link = DenseLink(parameters["log_transition"].exp().T, self.precision)
        start = parameters["log_start"].exp()
        return SemiMarkov(start, log_words, link, index, batch.layout, parameters["log_duration"])

    def _log_recursion(self, parameters: Parameters, batch: Batch) -> LogSemiMarkov:
        log_words, index = word_vectors(parameters["log_emission"], batch)
        links = (parameters["log_transition"].T,)
        start, duration = parameters["log_start"], parameters["log_duration"]
        return LogSemiMarkov(start, log_words, links, index, batch.layout, duration)

    def _linear(self, parameters: Parameters, batch: Batch) -> tuple[Float[Tensor, "batch"], Bool[Tensor, "batch"]]:
        return log_z(self._recursion(parameters, batch), lambda: self._support(parameters, batch))

    def _log_space(self, parameters: Parameters, batch: Batch) -> Float[Tensor, "batch"]:
        return log_z_in_log_space(self._log_recursion(parameters, batch))

    def _linear_slope(self, batch: Batch, direction: Parameters) -> tuple[Tensor, Tensor]:
        chains, moved = self._recursion(self.parameters, batch), self._moved(batch, direction)
        return log_z_slopes(chains, chains.like(moved), lambda: self._support(self.parameters, batch))

    # Queries.

    def _messages(self, batch: Batch) -> SegmentMessages:
        return SegmentMessages(self._query_recursion(batch))

    def _query_recursion(self, batch: Batch) -> LogSemiMarkov:
        return self._log_recursion(self.detach().parameters, batch).map(Tensor.double)

    def _log_predicted(self, messages: Messages, rows: Int[Tensor, "row"]) -> Float[Tensor, "row size"]:
        assert isinstance(messages, SegmentMessages)
        return messages.reading.following[rows]

    def _largest(self, batch: Batch) -> Float[Tensor, "batch"]:
        chains = self._query_recursion(batch)
        chart = chart_of(chains, list(steps(chains, max_product, torch.amax)))
        return largest_at_the_end(chains.layout, chart.finished)

    @within_memory
    def viterbi(
        self, words: Int[Tensor, "batch length"], lengths: Lengths = None, observed: Observed = None
    ) -> list[ChainPath | None]:
        """The likeliest segments of each sentence; None for an impossible one. O(n D m + n m^2), no matrix products."""
        with torch.no_grad():
            chains = self._query_recursion(self._sentences(words, lengths, observed))
            chart = chart_of(chains, list(steps(chains, max_product, torch.amax)))
            possible = self._possible(at_the_end(chains.layout, chart.finished.amax(1)))
            return only(self._segments(chains, chart, possible, 1, best, max_product))

    @within_memory
    def sample_posterior(
        self,
        words: Int[Tensor, "batch length"],
        lengths: Lengths = None,
        num: int = 1,
        generator: torch.Generator | None = None,
        observed: Observed = None,
    ) -> list[ChainPath | None]:
        """`num` independent samples of p(segments | sentence) for each sentence; None for an impossible one."""
        self._check_count("sample_posterior", "num", num)
        with torch.no_grad():
            messages = self._messages(self._sentences(words, lengths, observed))
            possible, draw = self._possible(messages.log_z), Draw(generator)
            return self._segments(messages.recursion, messages.chart, possible, num, draw, exact_log_product)

    def _segments(
        self,
        chains: LogSemiMarkov,
        chart: LogChart,
        possible: Bool[Tensor, "batch"],
        num: int,
        choose: Choose,
        product: LogProduct,
    ) -> list[ChainPath | None]:
        """`num` walks through each possible (by place) sentence, in the order of the caller."""
        layout = chains.layout
        walked = (possible & (layout.length_at > 0)).nonzero()[:, 0]
        found = trace(chains, chart, walked.repeat_interleave(num), choose, product)
        begin = {place: num * row for row, place in enumerate(walked.tolist())}
        paths: list[ChainPath | None] = []
        for length, place in zip(layout.lengths, layout.place_of.tolist(), strict=True):
            rows = slice(begin[place], begin[place] + num) if place in begin else slice(0, 0)
            states, ends, log_joint = found.states[rows, :length], found.ends[rows, :length], found.log_joint[rows]
            if length == 0:
                states, ends, log_joint = (x.new_zeros(num, *x.shape[1:]) for x in (states, ends, log_joint))
            path = ChainPath(states, log_joint.to(self.dtype), ends=ends)
            paths.append(path if bool(possible[place]) else None)
        return paths

    def begin(self, batch: int = 1) -> ChainState:
        """The state before all words of `batch` sentences, to be read word by word; the last segment may go on."""
        self._check_count("begin", "batch", batch)
        with torch.no_grad():
            stepper, start = self._segment_stepper, self.parameters["log_start"].detach().exp()
            predicted = stepper.first.expand(batch, -1)
            return ChainState(stepper, stepper.filtered, start.expand(batch, -1), predicted, None)

    @cached_property
    def _segment_stepper(self) -> SegmentStepper:
        prior, log_duration = self._prior, self.parameters["log_duration"].detach().double()
        return SegmentStepper(prior.log_start, prior.log_links, prior.log_emission, log_duration)

    def sample(self, num: int, max_length: int, generator: torch.Generator | None = None) -> ChainSample:
        """`num` sentences with their segments.

        With `eos`: words are drawn up to the first `eos`, or to the limit. A sentence is `cut` if the limit came first
        or if no segment ends with `eos` (then `log_prob` does not count these segments): a sentence that is not cut is
        drawn with probability exp(log_prob). `lost_mass` is the exact probability of being cut.

        Without `eos`: sentences of `max_length` words whose last segment ends with them, each with probability
        exp(log_prob) divided by the sum of that over all sentences of this length. Raises RankspaceError if there are
        none.
        """
        self._check_sample(num, max_length)
        with torch.no_grad():
            draw = Draw(generator)
            if self.eos is None:
                return self._sample_of_length(num, max_length, draw)
            made = generate_segments(self._segment_stepper, num, max_length, self.eos, draw)
            lost = -torch.expm1(log_mass_ended(self._segment_stepper, self.eos, max_length))
            beyond = torch.arange(made.words.shape[1], device=self.device) >= made.lengths[:, None]
            words, states = made.words.masked_fill(beyond, -1), made.states.masked_fill(beyond, -1)
            return ChainSample(words, made.lengths, states, ~made.whole, lost.to(self.dtype), ends=made.ends & ~beyond)

    def _sample_of_length(self, num: int, length: int, draw: Draw) -> ChainSample:
        open_words = torch.zeros(1, length, dtype=torch.int64, device=self.device)
        messages = self._messages(self._sentences(open_words, None, torch.zeros_like(open_words, dtype=torch.bool)))
        possible = self._possible(messages.log_z)
        paths = self._segments(messages.recursion, messages.chart, possible, num, draw, exact_log_product)
        if paths[0] is None or paths[0].ends is None:
            raise RankspaceError(
                f"HSMM: no segment ends after {length} words; give sample another max_length, or the model an eos."
            )
        states, ends = paths[0].states, paths[0].ends
        words = draw(self._prior.log_emission[states])
        cut = torch.zeros(num, dtype=torch.bool, device=self.device)
        lengths = torch.full((num,), length, device=self.device)
        nothing = torch.zeros((), dtype=self.dtype, device=self.device)
        return ChainSample(words, lengths, states, cut, nothing, ends=ends)
