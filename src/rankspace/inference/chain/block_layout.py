"""How states and words of a VL-HMM are divided into blocks, and what is cut out of its tables for some words."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor


@dataclass(frozen=True)
class Blocks:
    """Block b has the states b k .. (b + 1) k - 1, and its words in the order of the vocabulary."""

    of_word: Int[Tensor, "vocab"]  # [word] -> block
    column: Int[Tensor, "vocab"]  # [word] -> its place among the words of its block
    num_words: Int[Tensor, "block"]  # [block] -> number of words
    size: int  # k, the number of states of a block

    @property
    def num(self) -> int:
        return len(self.num_words)

    def emissions(self, log_emission: Float[Tensor, "state column"], words: Int[Tensor, "row"]) -> Tensor:
        """[row, k]: log p(word | state) for the states of each word's block."""
        by_block = log_emission.reshape(self.num, self.size, -1)
        return by_block[self.of_word[words], :, self.column[words]]

    def starts(self, log_start: Float[Tensor, "state"], blocks: Int[Tensor, "row"]) -> Float[Tensor, "row k"]:
        return log_start.reshape(self.num, self.size)[blocks]

    def transitions(self, log_transition: Float[Tensor, "state state"], pairs: Int[Tensor, "pair"]) -> Tensor:
        """[pair, k, k]: the transition from one block to another, pairs being numbered from * num + to."""
        row = torch.arange(self.size, device=pairs.device)
        rows = (pairs // self.num * self.size)[:, None] + row
        pieces = rows * self.num + (pairs % self.num)[:, None]  # of k numbers, of the table read row by row
        cut = log_transition.reshape(-1, self.size).index_select(0, pieces.flatten())
        return cut.reshape(len(pairs), self.size, self.size)

    def states(self, blocks: Int[Tensor, "row"], local: Int[Tensor, "row num"]) -> Int[Tensor, "row num"]:
        """Numbers of states from the block of each row and their places in it."""
        return blocks[:, None] * self.size + local

    def spread(self, log_rows: Float[Tensor, "row k"], blocks: Int[Tensor, "row"], fill: float) -> Tensor:
        """[row, state]: vectors over the states of one block as vectors over all."""
        spread = log_rows.new_full((len(log_rows), self.num, self.size), fill)
        index = blocks[:, None, None].expand(-1, 1, self.size)
        return spread.scatter(1, index, log_rows[:, None]).flatten(1)


def divide(block_of_word: Int[Tensor, "vocab"], num_states: int, num_blocks: int | None = None) -> Blocks:
    """States are divided evenly; the number of blocks must divide theirs. It is that of the words' blocks unless given:
    then blocks may have no words."""
    num_words = torch.bincount(block_of_word, minlength=num_blocks or 0)
    order = torch.argsort(block_of_word, stable=True)
    begins = num_words.cumsum(0) - num_words
    column = torch.empty_like(order)
    column[order] = torch.arange(len(order), device=order.device) - begins[block_of_word[order]]
    return Blocks(block_of_word, column, num_words, num_states // len(num_words))
