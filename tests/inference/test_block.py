"""The link that is told the words, against the products it stands for, row by row; and how blocks are cut."""

import pytest
import torch
from torch import Tensor

from rankspace.inference.chain.block import BlockLink
from rankspace.inference.chain.block_layout import divide

EXACT = {"rtol": 1e-12, "atol": 1e-14}  # the same products, summed in another order


def link(num_pairs: int = 4, num_rows: int = 11, size_in: int = 3, size_out: int = 5) -> BlockLink:
    generator = torch.Generator().manual_seed(0)
    blocks = torch.rand(num_pairs, size_in, size_out, generator=generator, dtype=torch.float64)
    return BlockLink(blocks, torch.randint(num_pairs, (num_rows,), generator=generator))


def rows(num: int, size: int, seed: int) -> Tensor:
    return torch.rand(num, size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_apply_and_its_transpose() -> None:
    told = link()
    x, y = rows(11, 3, 1), rows(11, 5, 2)
    assert (told.size_in, told.size_out) == (3, 5)
    for row, pair in enumerate(told.pairs.tolist()):
        torch.testing.assert_close(told.apply(x)[row], x[row] @ told.blocks[pair], **EXACT)
        torch.testing.assert_close(told.transposed(y)[row], told.blocks[pair] @ y[row], **EXACT)


@pytest.mark.parametrize("choice", [slice(2, 6), torch.arange(11) % 3 == 0])
def test_some_of_the_rows(choice: slice | Tensor) -> None:
    told, x = link(), rows(11, 3, 1)
    torch.testing.assert_close(told.at(choice).apply(x[choice]), told.apply(x)[choice], **EXACT)


@pytest.mark.parametrize("num_pairs", [1, 4, 30])
def test_gradients_add_up_the_rows_of_each_block(num_pairs: int) -> None:
    """With 30 blocks for 11 rows, some have none."""
    told, x, y = link(num_pairs), rows(11, 3, 1), rows(11, 5, 2)
    blocks = told.blocks.clone().requires_grad_()
    expected = torch.autograd.grad((y * told.like((blocks,)).apply(x)).sum(), blocks)
    torch.testing.assert_close(told.gradients(x, y), expected, **EXACT)


def test_tangent_moves_the_blocks() -> None:
    told, x = link(), rows(11, 3, 1)
    direction = told.like((torch.randn(told.blocks.shape, generator=torch.Generator().manual_seed(3)).double(),))
    torch.testing.assert_close(told.tangent(direction, x), direction.apply(x), **EXACT)


def test_entries_are_columns_of_each_rows_block() -> None:
    told = link()
    outputs = torch.arange(11) % 5
    found = told.entries(outputs)
    for row, (pair, output) in enumerate(zip(told.pairs.tolist(), outputs.tolist(), strict=True)):
        assert torch.equal(found[row], told.blocks[pair, :, output])


def test_no_rows_at_all() -> None:
    told = link().at(slice(0, 0))
    none_in, none_out = rows(0, 3, 1), rows(0, 5, 2)
    assert told.apply(none_in).shape == (0, 5)
    assert told.transposed(none_out).shape == (0, 3)
    assert not told.gradients(none_in, none_out)[0].any()


def test_what_is_cut_for_words() -> None:
    blocks = divide(torch.tensor([1, 0, 1, 2, 0, 1]), 6)
    assert (blocks.num, blocks.size, blocks.num_words.tolist()) == (3, 2, [2, 3, 1])
    assert blocks.column.tolist() == [0, 0, 1, 0, 1, 2]
    table = torch.arange(18.0).reshape(6, 3)
    assert blocks.emissions(table, torch.tensor([5, 4])).tolist() == [[8.0, 11.0], [1.0, 4.0]]
    transition = torch.arange(36.0).reshape(6, 6)
    cut = blocks.transitions(transition, torch.tensor([0 * 3 + 2, 2 * 3 + 1]))
    assert torch.equal(cut[0], transition[0:2, 4:6])
    assert torch.equal(cut[1], transition[4:6, 2:4])
    assert blocks.starts(torch.arange(6.0), torch.tensor([2, 0])).tolist() == [[4, 5], [0, 1]]
    spread = blocks.spread(torch.tensor([[1.0, 2.0]]), torch.tensor([1]), 0.0)
    assert spread.tolist() == [[0, 0, 1, 2, 0, 0]]
    assert blocks.states(torch.tensor([2, 0]), torch.tensor([[0, 1], [1, 1]])).tolist() == [[4, 5], [1, 1]]
