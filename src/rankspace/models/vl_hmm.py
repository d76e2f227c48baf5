"""The very large HMM: states and words in blocks (Chiu and Rush 2020)."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from jaxtyping import Float, Int, Int32, Int64
from torch import Tensor, nn

from rankspace.distributions import BlockHMM
from rankspace.errors import ShapeError
from rankspace.inference.chain.block_layout import Blocks, divide
from rankspace.models.brown import brown_clusters, uniform_clusters
from rankspace.models.contract import Model
from rankspace.models.emission import log_emission
from rankspace.models.hmm import Transition
from rankspace.models.networks import embedding, kept_rows
from rankspace.models.parts import Choice, Emission


class VLHMM(Model):
    """`hmm` whose states are in blocks; a state emits the words of its block alone, by a softmax over these.

    `prepare` finds which words are in which block: Brown clusters of the text with at most `largest` words, or words
    dealt out evenly by their frequencies. Before that they are dealt out by their numbers. Blocks are saved with the
    weights. `dropout` leaves out states: a step of training has a random choice of 1 - `dropout` of each block.
    """

    NAME: ClassVar = "vl-hmm"
    ABOUT: ClassVar = "very large HMM: states and words in blocks (Chiu, Rush 2020)"
    KIND = "chain"
    block_of_word: Int64[Tensor, "vocab"]

    def __init__(
        self,
        vocabulary: int,
        states: int = 16384,
        blocks: int = 128,
        size: int = 256,
        clusters: Literal["brown", "uniform"] = "brown",
        largest: int | None = None,
        dropout: float = 0.0,
        eos: int | None = None,
    ) -> None:
        super().__init__(
            vocabulary=vocabulary,
            states=states,
            blocks=blocks,
            size=size,
            clusters=clusters,
            largest=largest,
            dropout=dropout,
            eos=eos,
        )
        self.states = embedding(states, size, "normal")
        self.start, self.transition, self.emission = Choice(size), Transition(size), Emission(size, vocabulary)
        self.register_buffer("block_of_word", torch.from_numpy(uniform_clusters(vocabulary, blocks)))

    @classmethod
    def check_settings(cls, settings: Mapping[str, Any]) -> None:
        super().check_settings(settings)
        vocabulary, states, blocks = (settings[name] for name in ("vocabulary", "states", "blocks"))
        if states % blocks:
            raise ShapeError(f"vl-hmm: {states} states cannot be divided evenly into {blocks} blocks; give a multiple.")
        if vocabulary < blocks:
            raise ShapeError(f"vl-hmm: {vocabulary} words are fewer than {blocks} blocks; give fewer blocks.")

    def prepare(self, tokens: Int32[np.ndarray, "tokens"], offsets: Int64[np.ndarray, "sentences_and_one"]) -> None:
        vocabulary, blocks = self.vocabulary, self.settings["blocks"]
        if self.settings["clusters"] == "brown":
            found = brown_clusters(tokens, offsets, vocabulary, blocks, largest=self.settings["largest"])
        else:
            found = uniform_clusters(np.bincount(tokens, minlength=vocabulary), blocks)
        self.block_of_word.copy_(torch.from_numpy(found))

    def forward(self, words: Int[Tensor, "word"] | None = None) -> BlockHMM:
        num_blocks = self.settings["blocks"]
        states = kept_rows(self.states, self.settings["dropout"], self.training, num_blocks)
        whole = divide(self.block_of_word, len(states), num_blocks)
        some = whole if words is None else divide(self.block_of_word[words], len(states), num_blocks)
        wanted = None if words is None else _by_block(some, [whole.column[words]], [0.0])[0]
        emission = self._log_emission(states, whole, wanted)
        if wanted is not None:
            unused = torch.arange(wanted.shape[1], device=wanted.device) >= some.num_words[:, None, None]
            emission = emission.masked_fill(unused, -torch.inf)
        tables = self.start(states), self.transition(states), emission.flatten(0, 1), some.of_word
        return BlockHMM(*tables, num_blocks=num_blocks, **self.chain_options(words))

    def through_networks(self) -> Iterator[tuple[nn.Module, int]]:
        networks = self.start.network, self.transition.from_state, self.transition.to_state, self.emission.network
        return ((network, len(self.states)) for network in networks)

    def _log_emission(
        self, states: Float[Tensor, "state size"], whole: Blocks, wanted: Int[Tensor, "block column"] | None
    ) -> Float[Tensor, "block state_of_block column"]:
        """Of the wanted columns of each block, or of all."""
        hidden = self.emission.network(states).unflatten(0, (whole.num, whole.size))
        words = self.emission.words
        vocabulary, bias = _by_block(whole, [words.weight, words.bias], [0.0, -torch.inf])
        return log_emission(hidden, vocabulary, bias, wanted)


def _by_block(blocks: Blocks, tables: Sequence[Tensor], fills: Sequence[float]) -> list[Tensor]:
    """Each [word, ...] -> [block, column, ...], filled where a block has no more words.

    Waits for the device: which words are in which block, hence how many columns there are, is known there alone.
    """
    shape = (blocks.num, int(blocks.num_words.max()))
    made = [table.new_full((*shape, *table.shape[1:]), fill) for table, fill in zip(tables, fills, strict=True)]
    return [new.index_put((blocks.of_word, blocks.column), old) for new, old in zip(made, tables, strict=True)]
