"""Links and the layout of ragged batches, each against plain loops."""

import pytest
import torch
from torch import Tensor

from rankspace.inference.links import DenseLink, FactoredLink, Link, Precision, operand, product
from rankspace.inference.ragged import Ragged, lengths_of, ragged

EXACT = {"rtol": 1e-12, "atol": 1e-12}  # float64, sums of a handful of products
CPU = torch.device("cpu")


def numbers(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def dense() -> DenseLink:
    return DenseLink(numbers(3, 5))


def factored() -> FactoredLink:
    return FactoredLink(numbers(3, 4), numbers(4, 5, seed=1))


def matrix_of(link: Link) -> Tensor:
    """Multiplied out by hand."""
    tensors = link.tensors
    return tensors[0] if len(tensors) == 1 else tensors[0] @ tensors[1]


@pytest.mark.parametrize("make", [dense, factored])
def test_a_link_is_its_matrix(make: type[Link]) -> None:
    link, x, y = make(), numbers(6, 5, seed=2), numbers(6, 3, seed=3)
    matrix = matrix_of(link)
    assert (link.size_in, link.size_out) == (5, 3)
    torch.testing.assert_close(link.apply(x), x @ matrix.T, **EXACT)
    torch.testing.assert_close(link.transposed(y), y @ matrix, **EXACT)
    outputs = torch.tensor([2, 0, 2])
    torch.testing.assert_close(link.entries(outputs), matrix[outputs], **EXACT)
    assert link.at(slice(2, 4)) is link


@pytest.mark.parametrize("make", [dense, factored])
def test_gradients_and_tangents(make: type[Link]) -> None:
    link, x, y = make(), numbers(6, 5, seed=2), numbers(6, 3, seed=3)
    leaves = tuple(tensor.clone().requires_grad_() for tensor in link.tensors)
    expected = torch.autograd.grad((link.like(leaves).apply(x) * y).sum(), leaves)
    for found, slope in zip(link.gradients(x, y), expected, strict=True):
        torch.testing.assert_close(found, slope, **EXACT)
    direction = link.like(tuple(numbers(*tensor.shape, seed=4) for tensor in link.tensors))
    step = 1e-6
    ahead, behind = (
        link.like(tuple(a + s * step * b for a, b in zip(link.tensors, direction.tensors, strict=True))).apply(x)
        for s in (1, -1)
    )
    # central differences: the error is step^2 and rounding over step, both below 1e-9
    torch.testing.assert_close(link.tangent(direction, x), (ahead - behind) / (2 * step), rtol=1e-8, atol=1e-8)


def test_multiplied_out() -> None:
    link, x = factored(), numbers(6, 5, seed=2)
    torch.testing.assert_close(link.multiplied().matrix, matrix_of(link), **EXACT)
    torch.testing.assert_close(link.multiplied().apply(x), link.apply(x), **EXACT)
    torch.testing.assert_close(link.middle(x), x @ link.first.T, **EXACT)
    torch.testing.assert_close(link.middle_transposed(numbers(6, 3)), numbers(6, 3) @ link.second, **EXACT)


def test_precisions() -> None:
    """On a CPU float32 stays float32. bfloat16 has 8 bits: operands that are kept so are off by 2^-9 each, sums not."""
    a, b = numbers(20, 30).float(), numbers(30, 10, seed=1).float()
    exact = a.double() @ b.double()
    scale = a.abs().double() @ b.abs().double()
    precisions: tuple[Precision, ...] = ("highest", "high", "medium")
    for precision in precisions:
        assert torch.equal(product(a, b, precision), a @ b)
        assert torch.equal(product(a.double(), b.double(), precision), exact)
    kept = product(operand(a, "medium"), operand(b, "medium"), "medium")
    assert kept.dtype == torch.float32
    assert ((kept.double() - exact).abs() <= 2**-8 * scale).all()
    assert not torch.equal(kept, a @ b)


# Layout.

LENGTHS = (3, 0, 5, 1, 5, 2)
LAYOUT = Ragged(LENGTHS, CPU)


def tokens() -> list[tuple[int, int]]:
    """(time, sentence) in the order of rows: by time, then by falling length, then as given."""
    order = sorted(range(len(LENGTHS)), key=lambda b: -LENGTHS[b])
    return [(time, b) for time in range(max(LENGTHS)) for b in order if LENGTHS[b] > time]


def spans() -> list[tuple[int, int, int]]:
    """(width, begin, sentence) in the order of rows."""
    order = sorted(range(len(LENGTHS)), key=lambda b: -LENGTHS[b])
    longest = max(LENGTHS)
    return [
        (width, begin, b)
        for width in range(1, longest + 1)
        for begin in range(longest)
        for b in order
        if begin + width <= LENGTHS[b]
    ]


def test_places() -> None:
    assert LAYOUT.order == (2, 4, 0, 5, 3, 1)
    assert LAYOUT.sentence_at.tolist() == list(LAYOUT.order)
    assert LAYOUT.place_of.tolist() == [LAYOUT.order.index(b) for b in range(6)]
    assert LAYOUT.length_at.tolist() == [5, 5, 3, 2, 1, 0]
    assert LAYOUT.alive == (6, 5, 4, 3, 2, 2, 0)
    assert LAYOUT.in_callers_order(LAYOUT.sentence_at).tolist() == list(range(6))


def test_tokens() -> None:
    rows = tokens()
    assert LAYOUT.num_tokens == len(rows)
    assert LAYOUT.token_time.tolist() == [time for time, _ in rows]
    assert LAYOUT.sentence_at[LAYOUT.token_place].tolist() == [b for _, b in rows]
    for time in range(5):
        assert all(t == time for t, _ in rows[LAYOUT.step(time)])
    assert LAYOUT.step(0).start == 0
    assert LAYOUT.step(4).stop == len(rows)
    last = {b: row for row, (time, b) in enumerate(rows) if time == LENGTHS[b] - 1}
    assert LAYOUT.last_token.tolist() == [last.get(b, 0) for b in LAYOUT.order]


def test_neighbours() -> None:
    rows = tokens()
    first = LAYOUT.alive[1]
    assert LAYOUT.previous.tolist() == [rows.index((time - 1, b)) for time, b in rows[first:]]
    expected = [rows.index((time + 1, b)) if time + 1 < LENGTHS[b] else -1 for time, b in rows]
    assert LAYOUT.following.tolist() == expected


def test_packing_reads_no_padding() -> None:
    padded = torch.full((6, 7, 2), torch.nan, dtype=torch.float64)
    for time, b in tokens():
        padded[b, time] = torch.tensor([10 * b + time, -1.0])
    rows = LAYOUT.pack(padded)
    assert rows[:, 0].tolist() == [10 * b + time for time, b in tokens()]
    again = LAYOUT.unpack(rows, -7)
    assert again.shape == (6, 5, 2)
    for b, length in enumerate(LENGTHS):
        torch.testing.assert_close(again[b, :length], padded[b, :length])
        assert (again[b, length:] == -7).all()


def test_spans() -> None:
    rows = spans()
    assert LAYOUT.total_spans == len(rows)
    for width in range(1, 6):
        block = rows[LAYOUT.spans(width)]
        assert LAYOUT.num_spans(width) == len(block)
        assert all(w == width for w, _, _ in block)
        assert LAYOUT.span_begin(width).tolist() == [begin for _, begin, _ in block]
        assert LAYOUT.sentence_at[LAYOUT.span_place(width)].tolist() == [b for _, _, b in block]
    assert LAYOUT.num_wide == len(rows) - len(tokens())
    places = LAYOUT.place_of[torch.tensor([b for _, _, b in rows])]
    begins, widths = (torch.tensor([row[i] for row in rows]) for i in (1, 0))
    assert LAYOUT.row(places, begins, widths).tolist() == list(range(len(rows)))
    whole = {b: row for row, (width, _, b) in enumerate(rows) if width == LENGTHS[b]}
    assert LAYOUT.whole.tolist() == [whole.get(b, 0) for b in LAYOUT.order]
    for width in range(2, 6):
        wide = LAYOUT.wide(width)
        assert (wide.start + len(tokens()), wide.stop + len(tokens())) == (
            LAYOUT.spans(width).start,
            LAYOUT.spans(width).stop,
        )
        assert [LENGTHS[LAYOUT.order[place]] for place in range(6)][LAYOUT.whole_of(width)] == [
            width for length in LENGTHS if length == width
        ]


def test_charts() -> None:
    chart = torch.full((6, 6, 6), torch.nan, dtype=torch.float64)
    for row, (width, begin, b) in enumerate(spans()):
        chart[b, begin, begin + width] = row
    rows = LAYOUT.from_chart(chart)
    assert rows.tolist() == list(range(len(spans())))
    again = LAYOUT.to_chart(rows, -1.0)
    torch.testing.assert_close(again, torch.where(chart.isnan(), -1.0, chart))


@pytest.mark.parametrize("lengths", [(), (0,), (0, 0)])
def test_nothing(lengths: tuple[int, ...]) -> None:
    layout = Ragged(lengths, CPU)
    assert layout.num_tokens == layout.total_spans == layout.longest == 0
    words = torch.zeros(len(lengths), 4, dtype=torch.int64)
    assert layout.pack(words).shape == (0,)
    assert layout.unpack(layout.pack(words)).shape == (len(lengths), 0)
    assert layout.previous.shape == layout.following.shape == (0,)
    assert layout.last_token.tolist() == [0] * len(lengths)


def test_lengths() -> None:
    words = torch.zeros(2, 4, dtype=torch.int64)
    assert lengths_of("HMM", words, None) == (4, 4)
    assert lengths_of("HMM", words, [1, 3]) == lengths_of("HMM", words, torch.tensor([1, 3])) == (1, 3)
    assert ragged((2, 1), CPU) is ragged((2, 1), CPU)
