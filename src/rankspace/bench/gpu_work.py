"""The matrix products of a training step, by formulas: what its model has to multiply, however it does it.

A product [a, b] by [b, c] has 2abc flops and ab + bc + ac numbers to move, and the backward pass has one like it for
either operand: three times the forward pass. What is computed a second time to save memory, products in several parts
for the sake of accuracy, and what is not a product (softmax, split sums, scaling) are not counted.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from rankspace.bench.gpu_rows import Row
from rankspace.inference.links import Precision

NETWORK = 5  # square matrices of a residual network
BYTES: Mapping[Precision, int] = {"highest": 4, "high": 4, "medium": 2}  # of a number


class Product(NamedTuple):
    """Products of one shape, one after the other."""

    rows: int
    middle: int
    columns: int
    times: int = 1

    @property
    def flops(self) -> int:
        return 2 * self.rows * self.middle * self.columns * self.times

    @property
    def numbers(self) -> int:
        """Of operands and results."""
        each = self.rows * self.middle + self.middle * self.columns + self.rows * self.columns
        return each * self.times


Products = list[Product]
Lengths = tuple[int, ...]
Formula = Callable[[Mapping[str, int], Lengths, int], Products]


def step_products(row: Row) -> Products:
    """Of the whole step, forward and backward."""
    return FORMULAS[row.model](row.settings, row.lengths, row.vocabulary)


def step_flops(row: Row) -> int:
    return sum(product.flops for product in step_products(row))


def step_bytes(row: Row) -> int:
    """What the products read and write, each table once for each of them, in the dtype of operands."""
    return BYTES[row.precision] * sum(product.numbers for product in step_products(row))


def both_ways(products: Products) -> Products:
    """With the backward pass."""
    return products * 3


def num_spans(lengths: Lengths, width: int) -> int:
    """Spans of a width that pass through a link: those that are not whole sentences."""
    return sum(length - width + 1 for length in lengths if length > width)


def _link(lengths: Lengths, rank: int) -> Products:
    """Each span of two words or more as a left and as a right child, width by width."""
    return [Product(num_spans(lengths, width), rank, 2 * rank) for width in range(2, max(lengths))]


def _network(rows: int, size: Mapping[str, int]) -> Product:
    return Product(rows, size["size"], size["size"], NETWORK)


def _words(size: Mapping[str, int], symbols: int, vocabulary: int) -> Products:
    """Networks of the symbols that emit words, and their logits for the whole vocabulary."""
    return [_network(symbols, size), Product(symbols, size["size"], vocabulary)]


def _rank_pcfg(size: Mapping[str, int], lengths: Lengths, vocabulary: int) -> Products:
    heads, leaves, rank, inner = size["nonterminals"], size["preterminals"], size["rank"], size["size"]
    networks = [_network(heads, size)] * 2 + [_network(heads + leaves, size)] * 2  # head and root; left and right
    tables = [Product(heads, inner, rank)] + [Product(rank, inner, heads + leaves)] * 2
    return both_ways(networks + tables + _words(size, leaves, vocabulary) + _rank_space(size, lengths))


def _rank_space(size: Mapping[str, int], lengths: Lengths) -> Products:
    """J and K of the tokens, H and I, and the chart."""
    heads, leaves, rank = size["nonterminals"], size["preterminals"], size["rank"]
    return [Product(sum(lengths), leaves, rank, 2), Product(rank, heads, rank, 2), *_link(lengths, rank)]


def _tn_pcfg(size: Mapping[str, int], lengths: Lengths, vocabulary: int) -> Products:
    heads, leaves, rank, inner = size["nonterminals"], size["preterminals"], size["rank"], size["size"]
    tables = []
    for rows in (heads, heads + leaves, heads + leaves):  # head, left, right
        tables += [Product(rows, inner, inner), Product(rows, inner, rank)]
    return both_ways(tables + _words(size, leaves, vocabulary) + _rank_space(size, lengths))


def _simple_pcfg(size: Mapping[str, int], lengths: Lengths, vocabulary: int) -> Products:
    """The nonterminals are the ranks."""
    heads, leaves, inner = size["nonterminals"], size["preterminals"], size["size"]
    tables = [Product(heads, inner, inner), _network(heads + leaves, size), Product(heads, inner, heads + leaves)] * 2
    tokens = Product(sum(lengths), leaves, heads, 2)
    return both_ways([*tables, *_words(size, leaves, vocabulary), tokens, *_link(lengths, heads)])


def _n_pcfg(size: Mapping[str, int], lengths: Lengths, vocabulary: int) -> Products:
    heads, leaves, inner = size["nonterminals"], size["preterminals"], size["size"]
    charts = [product for length in lengths for product in _dense_chart(heads, leaves, length)]
    rules = Product(heads, inner, (heads + leaves) ** 2)
    return both_ways([rules, *_words(size, leaves, vocabulary), *charts])


def _dense_chart(heads: int, leaves: int, length: int) -> Products:
    """Preterminals of a word are summed out once for all spans that begin or end at it. Other children meet over the
    splits of each span, and then the rules."""
    words = [Product(heads, leaves, leaves + 1, length - 1), Product(heads, leaves, heads, 2 * length)]
    ends = [Product(heads, 1, heads, 2 * (length - width + 1)) for width in range(3, length + 1)]
    splits = [Product(heads, width - 3, heads, length - width + 1) for width in range(4, length + 1)]
    rules = [Product(length - width + 1, heads**2, heads) for width in range(4, length + 1)]
    return words + ends + splits + rules


def _rank_hmm(size: Mapping[str, int], lengths: Lengths, vocabulary: int) -> Products:
    """The gradient of the link has the rank of the number of tokens: if they are few, it is never multiplied out."""
    states, rank, inner, tokens = size["states"], size["rank"], size["size"], sum(lengths)
    tables = [Product(states, inner, rank), Product(rank, inner, states)]
    words = Product(rank, inner, vocabulary)
    networks = [_network(vocabulary, size), _network(states, size)]
    link, steps = Product(rank, states, rank), _steps(lengths, rank, rank)
    through_link = [Product(rank, tokens, rank), link, link]
    through_tokens = [Product(tokens, rank, states), Product(rank, tokens, states)] * 2
    back = min(through_link, through_tokens, key=lambda products: sum(product.flops for product in products))
    return [*both_ways([*tables, words, *networks]), link, *steps, *steps, *back]


def _steps(lengths: Lengths, size: int, other: int) -> Products:
    """A product at each time, over the sentences that are not over."""
    alive = (sum(length > time for length in lengths) for time in range(max(lengths)))
    return [Product(count, size, other) for count in alive]


def _lhmm(size: Mapping[str, int], lengths: Lengths, vocabulary: int) -> Products:
    states, rank, inner = size["states"], size["rank"], size["size"]
    tables = [Product(states, inner, rank)] * 2
    steps = _steps(lengths, states, rank) + _steps(lengths, rank, states)
    of_tables = [Product(states, sum(lengths), rank)] * 2  # of all words at once
    return [*both_ways([*tables, *_words(size, states, vocabulary)]), *steps, *steps, *of_tables]


FORMULAS: Mapping[str, Formula] = {
    "rank-pcfg": _rank_pcfg,
    "tn-pcfg": _tn_pcfg,
    "simple-pcfg": _simple_pcfg,
    "n-pcfg": _n_pcfg,
    "rank-hmm": _rank_hmm,
    "lhmm": _lhmm,
}
