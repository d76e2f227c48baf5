"""Flops of the matrix products of a training step, by formulas: what its model has to multiply, however it does it.

A product [a, b] by [b, c] counts 2abc, and in the backward pass once for either operand: three times the forward pass.
What is computed a second time to save memory, products in several parts for the sake of accuracy, and what is not a
product (softmax, split sums, scaling) are not counted.
"""

from collections.abc import Callable, Mapping

from rankspace.bench.gpu_rows import Row

NETWORK = 5  # square matrices of a residual network


def step_flops(row: Row) -> int:
    """Of the whole step, forward and backward."""
    return FORMULAS[row.model](row.settings, row.lengths, row.vocabulary)


def num_spans(lengths: tuple[int, ...]) -> int:
    """Spans that pass through a link: of two words or more, and not whole."""
    return sum(length * (length - 1) // 2 - 1 for length in lengths if length > 1)


def _words(size: Mapping[str, int], symbols: int, vocabulary: int) -> int:
    """Networks of the symbols that emit words, and their logits for the whole vocabulary."""
    return 2 * symbols * (NETWORK * size["size"] ** 2 + size["size"] * vocabulary)


def _link(lengths: tuple[int, ...], rank: int) -> int:
    """Each span as a left and as a right child."""
    return 2 * num_spans(lengths) * rank * 2 * rank


def _rank_pcfg(size: Mapping[str, int], lengths: tuple[int, ...], vocabulary: int) -> int:
    heads, leaves, rank, inner = size["nonterminals"], size["preterminals"], size["rank"], size["size"]
    symbols = heads + leaves
    networks = 2 * NETWORK * inner**2 * (2 * heads + 2 * symbols)  # head and root; left and right
    tables = 2 * rank * inner * (heads + 2 * symbols)
    return 3 * (networks + tables + _words(size, leaves, vocabulary) + _rank_space(size, lengths))


def _rank_space(size: Mapping[str, int], lengths: tuple[int, ...]) -> int:
    """J and K of the tokens, H and I, and the chart."""
    heads, leaves, rank = size["nonterminals"], size["preterminals"], size["rank"]
    return 2 * 2 * rank * (sum(lengths) * leaves + heads * rank) + _link(lengths, rank)


def _tn_pcfg(size: Mapping[str, int], lengths: tuple[int, ...], vocabulary: int) -> int:
    heads, leaves, rank, inner = size["nonterminals"], size["preterminals"], size["rank"], size["size"]
    rows = heads + 2 * (heads + leaves)  # head, left, right
    tables = 2 * rows * (inner**2 + inner * rank)
    return 3 * (tables + _words(size, leaves, vocabulary) + _rank_space(size, lengths))


def _simple_pcfg(size: Mapping[str, int], lengths: tuple[int, ...], vocabulary: int) -> int:
    """The nonterminals are the ranks."""
    heads, leaves, inner = size["nonterminals"], size["preterminals"], size["size"]
    symbols = heads + leaves
    tables = 2 * 2 * (heads * inner**2 + symbols * NETWORK * inner**2 + heads * symbols * inner)
    tokens = 2 * 2 * sum(lengths) * leaves * heads
    return 3 * (tables + _words(size, leaves, vocabulary) + tokens + _link(lengths, heads))


def _n_pcfg(size: Mapping[str, int], lengths: tuple[int, ...], vocabulary: int) -> int:
    heads, leaves, inner = size["nonterminals"], size["preterminals"], size["size"]
    rules = 2 * heads * (heads + leaves) ** 2 * inner
    chart = sum(_dense_chart(heads, leaves, length) for length in lengths)
    return 3 * (rules + _words(size, leaves, vocabulary) + chart)


def _dense_chart(heads: int, leaves: int, length: int) -> int:
    """Preterminals of a word are summed out once for all spans that begin or end at it. Other children meet over the
    splits of each span, and then the rules."""
    words = (length - 1) * 2 * heads * (leaves**2 + leaves) + 2 * length * 2 * heads**2 * leaves
    ends = sum((length - width + 1) * 2 * 2 * heads**2 for width in range(3, length + 1))
    inner = sum((length - width + 1) * 2 * (width - 3 + heads) * heads**2 for width in range(4, length + 1))
    return words + ends + inner


def _rank_hmm(size: Mapping[str, int], lengths: tuple[int, ...], vocabulary: int) -> int:
    """The gradient of the link has the rank of the number of tokens: if they are few, it is never multiplied out."""
    states, rank, inner, tokens = size["states"], size["rank"], size["size"], sum(lengths)
    tables = 2 * 2 * states * rank * inner
    networks = 2 * NETWORK * inner**2 * (vocabulary + states)
    link, steps = 2 * rank**2 * states, 2 * tokens * rank**2
    back_through_link = min(4 * 2 * tokens * rank * states, 2 * link + steps)
    return 3 * (tables + networks + 2 * rank * vocabulary * inner) + link + 2 * steps + back_through_link


def _lhmm(size: Mapping[str, int], lengths: tuple[int, ...], vocabulary: int) -> int:
    states, rank, inner = size["states"], size["rank"], size["size"]
    networks = 2 * NETWORK * inner**2 * 3 * states  # to ranks, from ranks, start
    tables, steps = 2 * 2 * states * rank * inner, 2 * 2 * sum(lengths) * states * rank
    return 3 * (networks + tables + steps + _words(size, states, vocabulary))


FORMULAS: Mapping[str, Callable[[Mapping[str, int], tuple[int, ...], int], int]] = {
    "rank-pcfg": _rank_pcfg,
    "tn-pcfg": _tn_pcfg,
    "simple-pcfg": _simple_pcfg,
    "n-pcfg": _n_pcfg,
    "rank-hmm": _rank_hmm,
    "lhmm": _lhmm,
}
