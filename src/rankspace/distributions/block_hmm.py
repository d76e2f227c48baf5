"""The very large HMM: states in blocks, each of which emits its own words only (VL-HMM, Chiu and Rush 2020)."""

from collections.abc import Mapping
from functools import cached_property
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from rankspace.distributions.block_parameters import check_block_numbers, check_blocks, check_unused_columns
from rankspace.distributions.chain_results import ChainPath, PathTables, only, split_paths
from rankspace.distributions.chains import ChainDistribution, Lengths, Observed, padded_rows
from rankspace.distributions.contract import Backend, Batch, Distribution, Order, Parameters
from rankspace.distributions.hmm import HMM
from rankspace.distributions.memory import Work, within_memory
from rankspace.errors import RankspaceError
from rankspace.inference.chain.block import BlockLink
from rankspace.inference.chain.block_layout import Blocks, divide
from rankspace.inference.chain.block_log import (
    BlockMessages,
    LogBlockRecursion,
    block_forward_table,
    block_log_weight,
    block_log_z,
    block_trace,
)
from rankspace.inference.chain.block_prior import BlockStepper
from rankspace.inference.chain.forward import Recursion
from rankspace.inference.chain.log_space import LogRecursion
from rankspace.inference.chain.messages import Messages, at_the_end, filtered, largest_at_the_end
from rankspace.inference.chain.paths import Draw, Trace, best
from rankspace.inference.links import DenseLink, Precision


class BlockHMM(ChainDistribution):
    """An HMM whose m states are divided evenly into K blocks, and whose words belong to one block each.

    `block_of_word` [vocab] numbers blocks from 0; state s is in block s // (m / K). A state emits words of its block
    only: `log_emission` [state, column] has at column c the c-th of them in the order of the vocabulary, and -inf in
    the columns after the last. It, `log_start` [state] and `log_transition` [state, next state] sum to one over their
    last axes. `eos` is the word that ends a sentence, if there is one: `sample` stops there. `num_blocks` is K; it must
    be given only where the words are a part of the vocabulary in which some block may have none (`validate=False`).

    Only the k = m / K states of a word's block are possible there, and the link is told the words. This takes O(n k^2)
    for n words, and only those blocks of the transition that occur are read. A batch in which some word is not
    `observed` is computed over all states: O(n m^2).
    """

    AXES: ClassVar = {
        "log_start": ("state",),
        "log_transition": ("state", "state"),
        "log_emission": ("state", "column"),
    }
    ORDERS = ("auto", "state")
    NO_RANK_ORDER = "its link is one dense matrix over states and has no ranks"

    def __init__(
        self,
        log_start: Float[Tensor, "_"],
        log_transition: Float[Tensor, "_ _"],
        log_emission: Float[Tensor, "_ _"],
        block_of_word: Int[Tensor, "_"],
        eos: int | None = None,
        *,
        num_blocks: int | None = None,
        order: Order = "auto",
        precision: Precision = "highest",
        backend: Backend = "auto",
        validate: bool = True,
    ) -> None:
        parameters = {"log_start": log_start, "log_transition": log_transition, "log_emission": log_emission}
        check_block_numbers(block_of_word)
        self.num_blocks = num_blocks
        self.block_of_word = block_of_word.to(log_start.device, torch.int64)
        super().__init__(parameters, eos=eos, order=order, precision=precision, backend=backend, validate=validate)
        if validate:
            check_blocks(self.block_of_word, len(log_start), log_emission.shape[-1], num_blocks)
            check_unused_columns(log_emission, self.blocks)

    @cached_property
    def blocks(self) -> Blocks:
        """How states and words are divided."""
        return divide(self.block_of_word, self.sizes["state"], self.num_blocks)

    @property
    def vocabulary(self) -> int:
        return len(self.block_of_word)

    @classmethod
    def numbers_kept(cls, sizes: Mapping[str, int], work: Work) -> int:
        """Vectors over the k states of a block, and of the transition the blocks that occur, gathered twice."""
        k = sizes["state"] // sizes["block"]
        gathered = min(sizes["state"] ** 2, work.num_tokens * k**2)
        return super().numbers_kept({**sizes, "state": k}, work) + 2 * gathered

    def _memory_sizes(self) -> Mapping[str, int]:
        return {**self.sizes, "block": self.blocks.num}

    def options(self) -> dict[str, Any]:
        return {"block_of_word": self.block_of_word, "num_blocks": self.num_blocks, **super().options()}

    def explain(self, words: Int[Tensor, "batch length"], lengths: Lengths = None) -> str:
        """Which order a batch is computed in, and why."""
        pairs = self._pairs(self._batch(words, lengths))[0]
        return (
            f"chain: state order; {self.blocks.num} blocks of {self.blocks.size} states, and of the transition the "
            f"{len(pairs)} blocks that occur in this batch"
        )

    def expanded(self) -> HMM:
        """The same distribution as an HMM with the whole table of emissions, [state, vocab]."""
        words = torch.arange(self.vocabulary, device=self.device)
        log_start, log_transition = self.parameters["log_start"], self.parameters["log_transition"]
        log_emission = self._all_states(self.parameters, words).T
        options = super().options()
        return HMM(log_start, log_transition, log_emission, **options, validate=self.validate)

    def _check_comparable(self, other: Distribution) -> None:
        super()._check_comparable(other)
        if isinstance(other, BlockHMM) and not torch.equal(self.block_of_word, other.block_of_word.to(self.device)):
            raise RankspaceError(
                "BlockHMM: compared with one whose block_of_word differs; derivations correspond only if words are in "
                "the same blocks."
            )

    # The recursions: over the states of a block, or over all where some word was not observed.

    def _recursion(self, parameters: Parameters, batch: Batch) -> Recursion:
        if _is_open(batch):
            log_words, index = self._open_words(parameters, batch)
            link = DenseLink(parameters["log_transition"].exp().T, self.precision)
            return Recursion(parameters["log_start"].exp(), log_words, link, index, batch.layout)
        log_words, index = self._words(parameters, batch)
        pairs, pair_of_row = self._pairs(batch)
        blocks = self.blocks.transitions(parameters["log_transition"], pairs).exp()
        told = BlockLink(blocks, pair_of_row, self.precision)
        return Recursion(log_words.new_ones(self.blocks.size), log_words, told, index, batch.layout)

    def _log_recursion(self, parameters: Parameters, batch: Batch) -> LogRecursion:
        if _is_open(batch):
            log_words, index = self._open_words(parameters, batch)
            links = (parameters["log_transition"].T,)
            return LogRecursion(parameters["log_start"], log_words, links, index, batch.layout)
        log_words, index = self._words(parameters, batch)
        pairs, pair_of_row = self._pairs(batch)
        blocks = self.blocks.transitions(parameters["log_transition"], pairs)
        start, alive = log_words.new_zeros(self.blocks.size), self.block_of_word[batch.tokens]
        return LogBlockRecursion(start, log_words, (), index, batch.layout, blocks, pair_of_row, alive)

    def _words(self, parameters: Parameters, batch: Batch) -> tuple[Float[Tensor, "word k"], Int[Tensor, "token"]]:
        """Emissions of the distinct words; first words have rows of their own, with the start multiplied in."""
        found, index = batch.distinct
        log_words = self.blocks.emissions(parameters["log_emission"], found)
        first = index[: batch.layout.alive[1]]
        begun = log_words[first] + self.blocks.starts(parameters["log_start"], self.block_of_word[found[first]])
        own = torch.arange(len(first), device=index.device) + len(found)
        return torch.cat([log_words, begun]), torch.cat([own, index[len(first) :]])

    def _pairs(self, batch: Batch) -> tuple[Int[Tensor, "pair"], Int[Tensor, "later"]]:
        """Distinct pairs of blocks that follow on each other, and which each word but the first of a sentence has."""
        blocks = self.block_of_word[batch.tokens]
        codes = blocks[batch.layout.previous] * self.blocks.num + blocks[batch.layout.alive[1] :]
        pairs, pair_of_row = torch.unique(codes, return_inverse=True)
        return pairs, pair_of_row

    def _open_words(self, parameters: Parameters, batch: Batch) -> tuple[Tensor, Tensor]:
        """Emissions of the distinct words over all states, and a word that every state emits."""
        found, index = batch.distinct
        log_words = self._all_states(parameters, found)
        seen = batch.layout.pack(batch.extras["observed"])
        return torch.cat([log_words, torch.zeros_like(log_words[:1])]), torch.where(seen, index, len(found))

    def _all_states(self, parameters: Parameters, words: Int[Tensor, "word"]) -> Float[Tensor, "word state"]:
        emitted = self.blocks.emissions(parameters["log_emission"], words)
        return self.blocks.spread(emitted, self.block_of_word[words], -torch.inf)

    def _log_space(self, parameters: Parameters, batch: Batch) -> Float[Tensor, "batch"]:
        recursion = self._log_recursion(parameters, batch)
        return (
            block_log_z(recursion)
            if isinstance(recursion, LogBlockRecursion)
            else super()._log_space(parameters, batch)
        )

    # Queries.

    def _messages(self, batch: Batch) -> Messages:
        recursion = self._query_recursion(batch)
        return BlockMessages(recursion) if isinstance(recursion, LogBlockRecursion) else Messages(recursion)

    def _state_posterior(self, messages: Messages, rows: Int[Tensor, "row"]) -> Float[Tensor, "row state"]:
        return self._spread(messages, messages.posterior(rows), rows, 0.0)

    def _spread(self, messages: Messages, vectors: Tensor, rows: Int[Tensor, "row"], fill: float) -> Tensor:
        """Vectors at some rows over all states."""
        if not isinstance(messages, BlockMessages):
            return vectors
        return self.blocks.spread(vectors, messages.recursion.block_of_token[rows], fill)

    @within_memory
    def block_marginals(
        self, words: Int[Tensor, "batch length"], lengths: Lengths = None
    ) -> Float[Tensor, "batch length k"]:
        """`state_marginals` of the k states of each word's block, the first of which is k * block_of_word[word]."""
        with torch.no_grad():
            batch = self._batch(words, lengths)
            rows = torch.arange(batch.layout.num_tokens, device=self.device)
            return padded_rows(batch, self._messages(batch).posterior(rows).to(self.dtype))

    @within_memory
    def filter(
        self, words: Int[Tensor, "batch length"], lengths: Lengths = None, observed: Observed = None
    ) -> Float[Tensor, "batch length state"]:
        """p(T_t | words up to t) for every t, zero outside the word's block. Zeros in padding and once impossible."""
        with torch.no_grad():
            batch = self._sentences(words, lengths, observed)
            messages = self._messages(batch)
            rows = torch.arange(batch.layout.num_tokens, device=self.device)
            return padded_rows(batch, self._spread(messages, filtered(messages.forward), rows, 0.0).to(self.dtype))

    def _log_predicted(self, messages: Messages, rows: Int[Tensor, "row"]) -> Float[Tensor, "row state"]:
        return self._stepper.predicted(self._spread(messages, messages.forward[rows], rows, -torch.inf))

    def _largest(self, batch: Batch) -> Float[Tensor, "batch"]:
        recursion = self._query_recursion(batch)
        if not isinstance(recursion, LogBlockRecursion):
            return super()._largest(batch)
        return largest_at_the_end(recursion.layout, block_forward_table(recursion, torch.amax))

    @within_memory
    def viterbi(
        self, words: Int[Tensor, "batch length"], lengths: Lengths = None, observed: Observed = None
    ) -> list[ChainPath | None]:
        """The likeliest path of states of each sentence; None for an impossible one. O(n k^2), no matrix products."""
        with torch.no_grad():
            batch = self._sentences(words, lengths, observed)
            recursion = self._query_recursion(batch)
            if not isinstance(recursion, LogBlockRecursion):
                return self._best_paths(batch)
            forward = block_forward_table(recursion, torch.amax)
            possible = self._possible(at_the_end(recursion.layout, forward.amax(1)))
            return only(self._block_paths(recursion, block_trace(recursion, forward, best), possible))

    @within_memory
    def sample_posterior(
        self,
        words: Int[Tensor, "batch length"],
        lengths: Lengths = None,
        num: int = 1,
        generator: torch.Generator | None = None,
        observed: Observed = None,
    ) -> list[ChainPath | None]:
        """`num` independent samples of p(states | sentence) for each sentence; None for an impossible one."""
        self._check_count("sample_posterior", "num", num)
        with torch.no_grad():
            messages = self._messages(self._sentences(words, lengths, observed))
            if not isinstance(messages, BlockMessages):
                return super().sample_posterior(words, lengths, num, generator, observed)
            possible = self._possible(messages.log_z)
            found = block_trace(messages.recursion, messages.forward, Draw(generator), num)
            return self._block_paths(messages.recursion, found, possible)

    def _block_paths(self, recursion: LogBlockRecursion, found: Trace, possible: Tensor) -> list[ChainPath | None]:
        states = self.blocks.states(recursion.block_of_token, found.vectors)
        tables = PathTables(states, block_log_weight(recursion, found).to(self.dtype))
        return split_paths(recursion.layout, tables, possible)

    @cached_property
    def _prior(self) -> BlockStepper:
        parameters = self.detach().parameters
        links = (parameters["log_transition"].T,)
        return BlockStepper(parameters["log_start"].double(), links, parameters["log_emission"], self.blocks)


def _is_open(batch: Batch) -> bool:
    """Whether some word was not observed."""
    return "observed" in batch.extras and not bool(batch.layout.pack(batch.extras["observed"]).all())
