"""log Z of trees with a full rule tensor by Triton kernels: the recursion of `dense_tree` in three launches a width up
and two down.

Rules are the same for all sentences, or each has its own (C-PCFG). Only products of matrices know: with rules of its
own each sentence has a product for itself, in one batch of them.

Differs from the torch engine in that nothing is decided on the host: every span is divided by the power of two of its
largest number, true lengths and lost sentences are known on the device alone, and all launches can be captured in a
CUDA graph.

Memory, for m nonterminals and p preterminals: m^2 numbers for each span, twice that with gradients; 2m^2 for each word,
likewise; p^2 for each span of two words, while it is worked on.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from rankspace.inference.backends import launching_on
from rankspace.inference.dense_tree.groups import SpanGroup
from rankspace.inference.dense_tree.weights import Blocks
from rankspace.inference.differentiation import first_derivatives_only, tell_of_lacks
from rankspace.inference.links import Precision, product
from rankspace.inference.ragged import Ragged
from rankspace.inference.scaled import ZERO, lowest
from rankspace.inference.tree.triton_engine import span_rows


class Setting(NamedTuple):
    """What is not differentiated. `true_lengths`, in the order of the caller, are at most those of the layout."""

    layout: Ragged
    true_lengths: Int[Tensor, "batch"] | None
    precision: Precision

    def rows(self) -> Any:
        """Where spans lie, with the true lengths."""
        rows = span_rows(self.layout)
        if self.true_lengths is None:
            return rows
        return replace(rows, length=self.true_lengths.index_select(0, self.layout.sentence_at).to(torch.int32))


def dense_log_z_by_kernels(
    rule: Float[Tensor, "*batch nonterminal symbol symbol"],
    root: Float[Tensor, "*batch nonterminal"],
    log_words: Float[Tensor, "token preterminal"],
    setting: Setting,
) -> tuple[Float[Tensor, "batch"], Bool[Tensor, "batch"]]:
    """log Z of each sentence in float64, and which sentences lost more than rounding: these have gradient zero.

    Rules and root are probabilities in float32, `log_words` the logarithms of the emissions of the layout's tokens.
    With an axis `batch` each sentence has rules and a root of its own, and all are equally long in the layout, with
    their true lengths beside it. An entry that is zero because a weight is counts as lost; a word that nothing emits
    does not, nor does what becomes impossible by it. Sentences of one word or none are impossible.
    """
    apply: Callable[..., tuple[Tensor, Tensor]] = _LogZ.apply
    with launching_on(log_words.device):
        return apply(setting, rule, root, log_words)


class _Weights(NamedTuple):
    """The rule tensor by the kinds of its children, as matrices, and the root. A group is all sentences, or each."""

    spans: Float[Tensor, "group nonterminal span_pair"]
    links: Float[Tensor, "group both preterminal"]  # of a word as left, then as right child: [side, parent, sibling]
    words: Float[Tensor, "group nonterminal word_pair"]
    root: Float[Tensor, "group nonterminal"]

    @classmethod
    def of(cls, rule: Tensor, root: Tensor, layout: Ragged) -> "_Weights":
        if rule.dim() == 3:
            rule, root = rule[None], root[None]
        else:
            assert layout.alive[layout.longest] == len(rule), "rules of each sentence's own take equal lengths"
        blocks = Blocks.of(rule, root.shape[1])
        return cls(blocks.spans, torch.cat([blocks.word_span, blocks.span_word], 1), blocks.words, root)


def _by_sentence(
    rows: Float[Tensor, "row in"],
    matrices: Float[Tensor, "group in out"],
    precision: Precision,
    out: Float[Tensor, "row out"] | None = None,
) -> Float[Tensor, "row out"]:
    """rows @ matrices, each row with that of its sentence. Rows of equally long sentences go through these in turn, at
    each width and in all."""
    if len(matrices) == 1:
        return product(rows, matrices[0], precision, out)
    each = product(_of_sentences(rows, len(matrices)), matrices, precision).transpose(0, 1).flatten(0, 1)
    if out is None:
        return each
    return out.copy_(each)


def _outer(
    one: Float[Tensor, "row in"], other: Float[Tensor, "row out"], num_groups: int, precision: Precision
) -> Float[Tensor, "group in out"]:
    """Sums of outer products over all rows, or over those of each sentence."""
    if num_groups == 1:
        return product(one.T, other, precision)[None]
    return product(_of_sentences(one, num_groups).mT, _of_sentences(other, num_groups), precision)


def _of_sentences(rows: Float[Tensor, "row size"], num: int) -> Float[Tensor, "sentence member size"]:
    each: Tensor = rows.unflatten(0, (-1, num)).transpose(0, 1)
    return each


class _Tops(NamedTuple):
    """Whole sentences, by place."""

    whole: Float[Tensor, "batch nonterminal"]
    z: Float[Tensor, "batch"]  # at the scale of the chart
    is_good: Bool[Tensor, "batch"]  # possible, and not lost


@tell_of_lacks
class _LogZ(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, setting: Setting, rule: Tensor, root: Tensor, log_words: Tensor
    ) -> tuple[Float[Tensor, "batch"], Bool[Tensor, "batch"]]:
        layout = setting.layout
        ctx.set_materialize_grads(False)
        ctx.setting, ctx.chart = setting, None
        if not layout.num_wide:  # nothing has two words
            nothing = torch.zeros(len(layout.lengths), dtype=torch.bool, device=rule.device)
            ctx.save_for_backward(rule, root, log_words)
            ctx.mark_non_differentiable(nothing)
            return torch.full_like(nothing, -math.inf, dtype=torch.float64), nothing
        ctx.weights = _Weights.of(rule, root, layout)
        ctx.chart, log_scale, low = _inside(ctx.weights, log_words, setting)
        ctx.tops, log_z, lost = _tops(ctx.chart, ctx.weights.root, log_scale, low, layout)
        ctx.save_for_backward(rule, root, log_words)
        ctx.mark_non_differentiable(lost)
        return log_z, lost

    @staticmethod
    @first_derivatives_only
    def backward(ctx: Any, slopes: Tensor | None, _: Tensor | None) -> tuple[Tensor | None, ...]:
        if slopes is None:
            return None, None, None, None
        rule, root, log_words = ctx.saved_tensors
        if ctx.chart is None:
            return None, *(torch.zeros_like(tensor) for tensor in (rule, root, log_words))
        return None, *_gradients(ctx, slopes, rule, root)


def _inside(weights: _Weights, log_words: Tensor, setting: Setting) -> tuple[Any, Tensor, Tensor]:
    """The chart; what was taken out of each word, in float64; and which sentences, in the order of the caller, have a
    word with an entry that is too low."""
    from rankspace.kernels.dense_chart import new_dense_chart
    from rankspace.kernels.dense_pairs import pair_sums
    from rankspace.kernels.dense_spans import span_vectors

    rows, precision = setting.rows(), setting.precision
    top = log_words.amax(1)
    nothing = top == -math.inf
    top = top.masked_fill(nothing, 0)
    chart = new_dense_chart(rows, (log_words - top[:, None]).exp(), weights.root.shape[1])
    chart.exponent[: rows.num_tokens].zero_().masked_fill_(nothing, ZERO)
    _by_sentence(chart.words, weights.links.mT, precision, chart.links.flatten(1))
    _two_words(chart, weights, setting)
    rho = torch.empty_like(chart.spans[: rows.num_spans(2)])
    for width in range(3, rows.longest + 1):
        pair_sums(chart, width)
        own = rho[: rows.num_spans(width)]
        _by_sentence(chart.pairs[chart.wider(width)].flatten(1), weights.spans.mT, precision, own)
        span_vectors(chart, own, width)
    is_inside = rows.token_time < rows.length[rows.token_place]
    low = ~(chart.words >= lowest(chart.words.dtype)).all(1) & ~nothing & is_inside
    return chart, top.double().where(is_inside, 0), setting.layout.unpack(low).any(1)


def _two_words(chart: Any, weights: _Weights, setting: Setting) -> None:
    from rankspace.kernels.dense_spans import span_vectors

    ends, rows = _words_of_two(setting.layout), chart.rows
    tokens = chart.exponent[: rows.num_tokens]
    chart.base[rows.wide(2)] = tokens[ends.first_words] + tokens[ends.last_words]
    rho = _by_sentence(_word_pairs(chart, ends), weights.words.mT, setting.precision)
    span_vectors(chart, rho, 2)


def _words_of_two(layout: Ragged) -> SpanGroup:
    """All spans of two words: rows of their words."""
    count = layout.num_spans(2)
    return SpanGroup(layout, 2, slice(0, 1), slice(0, count), 1, count)


def _word_pairs(chart: Any, ends: SpanGroup) -> Float[Tensor, "row word_pair"]:
    words: Tensor = chart.words
    return (words[ends.first_words][:, :, None] * words[ends.last_words][:, None, :]).flatten(1)


def _tops(
    chart: Any,
    root: Float[Tensor, "group nonterminal"],
    log_scale: Float[Tensor, "token"],
    low: Bool[Tensor, "batch"],
    layout: Ragged,
) -> tuple[_Tops, Float[Tensor, "batch"], Bool[Tensor, "batch"]]:
    """Z = root . x of whole sentences; log Z and whether it is lost, in the order of the caller.

    Z must be at least `lowest`, at the scale at which the splits were summed and at that of the chart.
    """
    rows, several = chart.rows, chart.rows.length > 1
    row = rows.shift[rows.length] + rows.before[rows.length]
    row = (row + torch.arange(rows.num_sentences, device=row.device)).where(several, rows.num_tokens)
    whole, exponent = chart.spans[row - rows.num_tokens], chart.exponent[row]
    z = (whole * root).sum(1)
    summed = torch.ldexp(z, exponent - chart.base[row - rows.num_tokens])
    exists = several & (exponent != ZERO)
    too_low = exists & ~(torch.minimum(z, summed) >= lowest(z.dtype))
    possible = exists & (z > 0)
    lost = (too_low | (chart.lost > 0)) | (low[layout.sentence_at] & several)
    log_z = z.where(possible, 1).double().log() + exponent.double() * math.log(2)
    log_z = layout.in_callers_order(log_z) + layout.unpack(log_scale).sum(1)
    log_z = log_z.masked_fill(~layout.in_callers_order(possible), -math.inf)
    return _Tops(whole, z, possible & ~lost), log_z, layout.in_callers_order(lost)


def _gradients(ctx: Any, slopes: Tensor, rule: Tensor, root: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Of rules, root and words: wide spans first, two launches each, then few products over all spans."""
    from rankspace.kernels.dense_chart import new_dense_above
    from rankspace.kernels.dense_outside import dense_outside_sums

    chart, tops, weights, precision = ctx.chart, ctx.tops, ctx.weights, ctx.setting.precision
    slopes = slopes[ctx.setting.layout.sentence_at]
    of_top = (slopes / tops.z.where(tops.is_good, 1)).where(tops.is_good, 0).to(root.dtype)
    above = new_dense_above(chart, of_top[:, None] * weights.root)
    for width in range(chart.rows.longest, 1, -1):
        dense_outside_sums(chart, above, width)
        if width > 3:  # others have no two parts that are spans
            of_pairs = above.pairs[chart.wider(width)].flatten(1)
            _by_sentence(above.rho[chart.rows.wide(width)], weights.spans, precision, of_pairs)
    of_rule, of_words = _of_rule_and_words(chart, above, weights, ctx.setting)
    of_root = of_top @ tops.whole if root.dim() == 1 else of_top[:, None] * tops.whole
    of_rule = of_rule.view_as(rule).masked_fill_(rule == 0, 0)
    return of_rule, of_root.masked_fill(root == 0, 0), of_words.mul_(chart.words)


def _of_rule_and_words(
    chart: Any, above: Any, weights: _Weights, setting: Setting
) -> tuple[Float[Tensor, "group nonterminal symbol symbol"], Float[Tensor, "token preterminal"]]:
    """From the derivatives of all rho. Each word is the first of one span of two words at most, and the last of one, so
    that adding to rows is deterministic."""
    from rankspace.kernels.dense_links import link_slopes

    ends, precision, groups = _words_of_two(setting.layout), setting.precision, len(weights.root)
    of_two, of_more = above.rho[chart.rows.wide(2)], above.rho[chart.rows.num_spans(2) :]
    of_links = link_slopes(chart, above).flatten(1)
    of_words = _by_sentence(of_links, weights.links, precision)
    first, last = chart.words[ends.first_words], chart.words[ends.last_words]
    of_pairs = _by_sentence(of_two, weights.words, precision).unflatten(1, (first.shape[1], -1))
    of_words[ends.first_words] += torch.bmm(of_pairs, last[:, :, None])[:, :, 0]
    of_words[ends.last_words] += torch.bmm(first[:, None, :], of_pairs)[:, 0]
    word_span, span_word = _outer(of_links, chart.words, groups, precision).chunk(2, 1)
    blocks = Blocks(
        _outer(of_more, chart.pairs.flatten(1), groups, precision),
        span_word,
        word_span,
        _outer(of_two, _word_pairs(chart, ends), groups, precision),
    )
    return blocks.joined(chart.size), of_words
