"""Checks of how the words and states of a BlockHMM are divided into blocks."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from rankspace.distributions.parameters import is_integral
from rankspace.errors import RankspaceError, ShapeError
from rankspace.inference.chain.block_layout import Blocks


def check_block_numbers(block_of_word: Tensor) -> None:
    """One integer for each word."""
    if block_of_word.dim() != 1 or not is_integral(block_of_word):
        raise ShapeError(
            f"BlockHMM: block_of_word is {block_of_word.dtype} {tuple(block_of_word.shape)}; give one integer for each "
            f"word."
        )


def check_blocks(
    block_of_word: Int[Tensor, "vocab"], num_states: int, num_columns: int, num_blocks: int | None = None
) -> None:
    """Blocks are numbered from 0, each has words, states divide evenly, and columns suffice for the largest.

    There are as many as `num_blocks`, if that is given.
    """
    if not len(block_of_word) or int(block_of_word.min()) < 0:
        raise RankspaceError(
            f"BlockHMM: block_of_word has shape {tuple(block_of_word.shape)}"
            f"{f' and a block {int(block_of_word.min())}' if len(block_of_word) else ''}; give each word a block, "
            f"numbered from 0."
        )
    sizes = torch.bincount(block_of_word, minlength=num_blocks or 0)
    if num_blocks is not None and len(sizes) != num_blocks:
        raise RankspaceError(
            f"BlockHMM: num_blocks is {num_blocks} but block_of_word has a block {len(sizes) - 1}; number them from 0."
        )
    if int(sizes.min()) == 0:
        raise RankspaceError(
            f"BlockHMM: block {int(sizes.argmin())} of {len(sizes)} has no words; number blocks without gaps."
        )
    if num_states % len(sizes):
        raise ShapeError(
            f"BlockHMM: {num_states} states cannot be divided evenly into the {len(sizes)} blocks of block_of_word; "
            f"give a multiple of {len(sizes)} states."
        )
    if num_columns < int(sizes.max()):
        raise ShapeError(
            f"BlockHMM: log_emission has {num_columns} columns but block {int(sizes.argmax())} has {int(sizes.max())} "
            f"words; give a column for each word of the largest block."
        )


def check_unused_columns(log_emission: Float[Tensor, "state column"], blocks: Blocks) -> None:
    """Beyond the words of its block a state emits nothing."""
    columns = torch.arange(log_emission.shape[1], device=log_emission.device)
    unused = columns >= blocks.num_words.repeat_interleave(blocks.size)[:, None]
    wrong = unused & (log_emission > -torch.inf)
    if not bool(wrong.any()):
        return
    state, column = wrong.nonzero()[0].tolist()
    block = state // blocks.size
    raise RankspaceError(
        f"BlockHMM: log_emission[{state}, {column}] is {log_emission[state, column].item():.6g}, but block {block} of "
        f"state {state} has {int(blocks.num_words[block])} words; fill the columns after them with -inf."
    )
