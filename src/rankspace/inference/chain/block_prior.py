"""A chain with blocks without a sentence: one word at a time, or sentences drawn from it. Vectors over all states."""

from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float, Int
from torch import Tensor

from rankspace.inference.chain.block_layout import Blocks
from rankspace.inference.chain.incremental import Stepper
from rankspace.inference.chain.paths import Draw
from rankspace.inference.logarithms import CHUNK, LogMap, exact_log_product, log_sum_exp


@dataclass(frozen=True)
class BlockStepper(Stepper):
    """`log_emission` is [state, word of its block]. Transition and emission keep their dtype; sums are in float64."""

    blocks: Blocks

    @property
    def vocabulary(self) -> int:
        return len(self.blocks.of_word)

    @cached_property
    def maps(self) -> list[LogMap]:
        return [exact_log_product(link.double()) for link in self.log_links]

    def predicted(self, log_vectors: Float[Tensor, "row size"]) -> Float[Tensor, "row size"]:
        """Only the states that are alive in some row are multiplied: those of the last words' blocks."""
        alive = (log_vectors != -torch.inf).any(0)
        if bool(alive.all()) or not bool(alive.any()):
            return super().predicted(log_vectors)
        (link,) = self.log_links
        return exact_log_product(link[:, alive].double())(log_vectors[:, alive])

    def next_word(self, log_predicted: Float[Tensor, "row size"]) -> Float[Tensor, "row vocab"]:
        total = log_sum_exp(log_predicted)[:, None]
        relative = torch.where(total != -torch.inf, log_predicted - total, -torch.inf)
        by_block = self.log_emission.double().unflatten(0, (self.blocks.num, self.blocks.size))
        parts = relative.unflatten(1, by_block.shape[:2]).split(max(1, CHUNK // self.log_emission.numel()))
        found = torch.cat([log_sum_exp(part[..., None] + by_block, 2) for part in parts])  # [row, block, column]
        return found[:, self.blocks.of_word, self.blocks.column]

    def stepped(self, log_predicted: Float[Tensor, "row size"], words: Int[Tensor, "row"]) -> Float[Tensor, "row size"]:
        emitted = self.blocks.emissions(self.log_emission, words).double()
        return log_predicted + self.blocks.spread(emitted, self.blocks.of_word[words], -torch.inf)

    def drawn_words(self, places: Int[Tensor, "row"], draw: Draw) -> Int[Tensor, "row"]:
        return self._word_at[places // self.blocks.size, draw(self.log_emission[places])]

    @cached_property
    def _word_at(self) -> Int[Tensor, "block column"]:
        """[block, column] -> word; 0 where there is none."""
        shape = (self.blocks.num, self.log_emission.shape[1])
        words = torch.arange(self.vocabulary, device=self.blocks.of_word.device)
        return words.new_zeros(shape).index_put((self.blocks.of_word, self.blocks.column), words)

    def log_other_words(self, word: int) -> Float[Tensor, "size"]:
        log_emission = self.log_emission.to(torch.float64, copy=True)
        block, column = int(self.blocks.of_word[word]), int(self.blocks.column[word])
        log_emission[block * self.blocks.size : (block + 1) * self.blocks.size, column] = -torch.inf
        return log_sum_exp(log_emission)
