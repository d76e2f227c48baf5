"""log Z of low-rank trees by Triton kernels: the recursion of `inside` and `outside` in four launches a width.

Differs from the torch engine in the scales: every span is divided by the power of two of its largest number, so nothing
is decided on the host, and all launches can be captured in a CUDA graph. Sums that need not wait for the last width are
begun ahead, beside the matrix products of the widths between.

Memory: 3R numbers for each span; with gradients 3R more. Rows are padded to a multiple of 16 ranks. In "medium"
precision they are kept in bfloat16, as operands of products.
"""

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import pad

from rankspace.devices import is_gpu
from rankspace.inference.aside import Aside
from rankspace.inference.backends import launching_on
from rankspace.inference.differentiation import first_derivatives_only, tell_of_lacks
from rankspace.inference.gradient_products import Factor
from rankspace.inference.links import DenseLink, FactoredLink, operand, product
from rankspace.inference.ragged import Ragged
from rankspace.inference.tree.inputs import Sentences, TreeInputs
from rankspace.inference.tree.inside import SpanWeights

KernelLink = DenseLink | FactoredLink
PORTION = 1024  # terms that matrix units sum at a time in the products of derivatives, in "highest"


def log_z_by_kernels(
    inputs: TreeInputs, sentences: Sentences, log_weights: Float[Tensor, "span"] | None
) -> tuple[Float[Tensor, "batch"], Bool[Tensor, "batch"]]:
    """As `engine.log_z`, in float32. A sentence is lost if more than rounding of its probability could pass through
    entries that are too low for float32, weights of zero among them; forbidden spans do not count.

    Whether it does is known when the outside pass has been: where entries are low the pass is made at once, unless
    `sentences.doubt` takes the answer later. Nothing then waits for the device: that is for CUDA graphs, and if the
    backward pass marks more sentences than were lost so far, the gradients of the batch are not to be used.
    """
    apply: Callable[..., tuple[Tensor, Tensor]] = _LogZ.apply
    with launching_on(inputs.words.device):
        return apply(inputs.detach(), sentences, log_weights, *inputs.tensors)


@tell_of_lacks
class _LogZ(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, inputs: TreeInputs, sentences: Sentences, log_weights: Tensor | None, *tensors: Tensor
    ) -> tuple[Tensor, Tensor]:
        ctx.inputs, ctx.sentences = inputs, sentences
        ctx.set_materialize_grads(False)
        ctx.chart = None
        if not sentences.layout.num_wide:  # nothing has two words
            nothing = torch.zeros(len(sentences.layout.lengths), dtype=torch.bool, device=inputs.words.device)
            ctx.mark_non_differentiable(nothing)
            return torch.full_like(nothing, -torch.inf, dtype=torch.float64), nothing
        ctx.chart, ctx.link, ctx.root, results = _inside(inputs, sentences, log_weights)
        if sentences.doubt is not None:
            sentences.doubt.copy_(results.lost)
        else:
            results.lost.logical_or_(_lost_after_all(ctx.chart, ctx.link, ctx.root, results, sentences.layout))
        ctx.save_for_backward(*results)  # outputs kept in any other way would keep the chart alive
        ctx.mark_non_differentiable(results.lost)
        return results.log_z, results.lost

    @staticmethod
    @first_derivatives_only
    def backward(ctx: Any, slopes: Tensor | None, _: Tensor | None) -> tuple[Tensor | None, ...]:
        if slopes is None or ctx.chart is None:
            zeros = (None if slopes is None else torch.zeros_like(tensor) for tensor in ctx.inputs.tensors)
            return (None, None, None, *zeros)
        return (None, None, *_gradients(ctx, slopes))


def _lost_after_all(chart: Any, link: Any, root: Tensor, results: Any, layout: Ragged) -> Bool[Tensor, "batch"]:
    """Sentences with low entries that matter. Within a CUDA graph all with low entries: nothing can be asked there."""
    from rankspace.kernels.tree_tops import top_slopes

    low = layout.in_callers_order(chart.lost > 0)
    if is_gpu(low.device) and torch.cuda.is_current_stream_capturing():
        return low
    if not bool(low.any()):
        return low
    tops = top_slopes(chart, results, torch.ones_like(results.log_z))
    return _doubted(chart, _outside(chart, link, root, tops), tops, layout)


def _doubted(chart: Any, above: Any, tops: Any, layout: Ragged) -> Bool[Tensor, "batch"]:
    """Sentences of whose probability too much passes through low entries."""
    from rankspace.kernels.scales import TOLERANCE
    from rankspace.kernels.tree_doubt import doubts

    fine = doubts(chart, above, layout.places) <= TOLERANCE.value * tops.relative.abs()
    return layout.in_callers_order(~fine)  # nor is what is NaN


def _inside(inputs: TreeInputs, sentences: Sentences, log_weights: Tensor | None) -> tuple[Any, ...]:
    """The chart, width by width: two launches each. The link and the root are padded copies."""
    from rankspace.kernels.tree_chart import Weights, new_chart, padded
    from rankspace.kernels.tree_splits import begin_sums, split_sums
    from rankspace.kernels.tree_tiles import inside_steps
    from rankspace.kernels.tree_tops import tops
    from rankspace.kernels.tree_words import lay_words

    weights, rank = None, inputs.root.shape[-1]
    if log_weights is not None:
        split = SpanWeights.split(log_weights.detach())
        weights = Weights(split.factor, split.power)
    link, root = _padded_link(inputs.link, rank, padded(rank)), pad(inputs.root, (0, padded(rank) - rank))
    rows = span_rows(sentences.layout, sentences.true_lengths)
    inverse_mass = None if inputs.mass is None else pad(1 / inputs.mass, (0, padded(rank) - rank))
    chart = new_chart(rows, rank, weights, link.tensors[0].dtype, inverse_mass)
    lay_words(chart, inputs.words.contiguous(), sentences.token_word)
    with Aside(root.device) as aside:
        for step in inside_steps(chart.rows.longest):
            if step.is_first:
                aside.join()
            split_sums(chart, step.width, step.known)
            if step.width < chart.rows.longest:
                _apply(link, chart.alpha[chart.rows.wide(step.width)], chart.both(chart.rows.spans(step.width)))
            if step.ahead:
                with aside.start():
                    begin_sums(chart, step.ahead, step.width)
    return chart, link, root, tops(chart, root, sentences.token_word, sentences.log_scale)


def _gradients(ctx: Any, slopes: Tensor) -> tuple[Tensor | None, ...]:
    """Of the weights of spans, of words, root and link: wide spans first, two launches each, then one product over all
    spans for the link."""
    from rankspace.kernels.tree_chart import Results
    from rankspace.kernels.tree_tops import root_gradient, top_slopes
    from rankspace.kernels.tree_words import sum_by_word

    chart, link = ctx.chart, ctx.link
    tops = top_slopes(chart, Results(*ctx.saved_tensors), slopes)
    above = _outside(chart, link, ctx.root, tops)
    if ctx.sentences.doubt is not None:
        ctx.sentences.doubt.logical_or_(_doubted(chart, above, tops, ctx.sentences.layout))
    token_word = None if ctx.sentences.own_rows else ctx.sentences.token_word
    of_words = sum_by_word(chart, above.children, token_word, len(ctx.inputs.words), tops.unit)
    of_link = _link_gradients(ctx.inputs.link, link, chart, above, tops.unit)
    return _of_weights(ctx, above, tops), of_words, root_gradient(chart, tops), *of_link


def _outside(chart: Any, link: KernelLink, root: Tensor, tops: Any) -> Any:
    """Derivatives of all spans but whole sentences."""
    from rankspace.kernels.tree_outside import begin_outside_sums, new_above, outside_sums
    from rankspace.kernels.tree_tiles import outside_steps

    back, above = Back(link), new_above(chart, tops.of_top, root)
    with Aside(root.device) as aside:
        for step in outside_steps(chart.rows.longest):
            if step.is_first:
                aside.join()
            outside_sums(chart, above, step.width, step.known)
            if step.width > 1:
                of_children = above.children[chart.rows.spans(step.width)].flatten(1)
                back(of_children, above.alpha[chart.rows.wide(step.width)])
            if step.ahead:
                with aside.start():
                    begin_outside_sums(chart, above, step.ahead, step.width)
    return above


def _of_weights(ctx: Any, above: Any, tops: Any) -> Float[Tensor, "span"] | None:
    """Posterior probabilities of spans times slopes; of a whole sentence the slope itself."""
    from rankspace.kernels.tree_marginals import span_marginals

    if not ctx.needs_input_grad[2]:
        return None
    layout = ctx.sentences.layout
    found, several = span_marginals(ctx.chart, above), layout.alive[2]  # sentences of two words or more come first
    found.index_copy_(0, layout.whole[:several], tops.relative[:several])
    marginals: Tensor = (found * tops.unit).to(found.dtype)
    return marginals


def span_rows(layout: Ragged, true_lengths: Int[Tensor, "batch"] | None = None) -> Any:
    """Where spans lie. Lengths below those of the layout may be given where all of the layout are equal, as they are
    known on the device alone: kernels then leave alone what lies behind the end of a sentence."""
    from rankspace.kernels.tree_chart import SpanRows

    before, shift, place, time, length, sentence = layout.row_arithmetic
    length = length if true_lengths is None else true_lengths.to(torch.int32)
    return SpanRows(before, shift, place, time, length, sentence, layout.offsets, layout.before)


def _padded_link(link: Any, rank: int, size: int) -> KernelLink:
    """The link between padded vectors; of "medium" precision, in bfloat16. What is too low is raised, as in charts."""
    from rankspace.kernels.scales import LINK_FLOOR

    matrices = [operand(matrix, link.precision).clamp(min=LINK_FLOOR) for matrix in link.tensors]
    if size > rank:
        matrices = [_padded_rows(matrices[0], rank, size), *matrices[1:]]
        matrices[-1] = pad(matrices[-1], (0, size - rank))
    found: KernelLink = link.like(tuple(matrices))
    return found


def _padded_rows(matrix: Float[Tensor, "both in"], rank: int, size: int) -> Float[Tensor, "padded in"]:
    """Left rows first, then right ones: each half is padded."""
    return pad(matrix.reshape(2, rank, -1), (0, 0, 0, size - rank)).flatten(0, 1)


def _apply(link: KernelLink, x: Float[Tensor, "row in"], out: Float[Tensor, "row both"]) -> None:
    if isinstance(link, FactoredLink):
        x = operand(product(x, link.first.T, link.precision), link.precision)
        product(x, link.second.T, link.precision, out)
    else:
        product(x, link.matrix.T, link.precision, out)


class Back:
    """The transposed link, for derivatives. Its matrices lie in memory by columns, as transposed products of float32
    read them: a fifth faster. Those of bfloat16 are as fast either way.

    A derivative passes through it once for each span above it, and what matrix units cut off a long sum adds up; sums
    of "highest" are cut into portions.
    """

    def __init__(self, link: KernelLink) -> None:
        self.precision = link.precision
        is_rounded = link.tensors[0].dtype == torch.bfloat16
        matrices = [matrix if is_rounded else matrix.T.contiguous().T for matrix in link.tensors]
        self.factors = [Factor.of(matrix, link.precision) for matrix in matrices]

    def __call__(self, y: Float[Tensor, "row both"], out: Float[Tensor, "row in"]) -> None:
        for factor in self.factors[:-1]:
            y = operand(Factor.of(y, self.precision).times(factor, portion=PORTION), self.precision)
        Factor.of(y, self.precision).times(self.factors[-1], out, PORTION)


def _link_gradients(given: Any, link: KernelLink, chart: Any, above: Any, unit: Tensor) -> tuple[Tensor, ...]:
    """One product over all spans of two words or more; padding cut off."""
    alpha, of_children = chart.alpha[: len(above.alpha)], above.children[chart.rows.num_tokens :].flatten(1)
    found, rank = _products(link, alpha, of_children, given.tensors[0].dtype), chart.rank
    cut = [found[0].unflatten(0, (2, chart.padded))[:, :rank], *(part[None, :, :rank] for part in found[1:])]
    if not isinstance(link, FactoredLink):
        cut[0] = cut[0][:, :, :rank]
    return tuple(_scaled(part, unit, whole) for part, whole in zip(cut, given.tensors, strict=True))


def _scaled(part: Tensor, unit: Float[Tensor, ""], whole: Tensor) -> Tensor:
    """In the shape and dtype of a whole tensor."""
    found = part.to(whole.dtype).contiguous()
    torch._foreach_mul_([found], unit.to(whole.dtype))  # sooner than `mul`, which reads the unit anew for each number
    return found.reshape(whole.shape)


def _products(link: KernelLink, alpha: Tensor, of_children: Tensor, dtype: torch.dtype) -> tuple[Tensor, ...]:
    """Derivatives of the padded link, in float32; in bfloat16 if the link was given so, rounded once."""
    precision = link.precision
    if isinstance(link, DenseLink):
        factor = Factor.of(of_children, precision).T
        return (factor.rounded_times(alpha) if dtype == torch.bfloat16 else factor.times(alpha, portion=PORTION),)
    middle, back = product(alpha, link.first.T, precision), product(of_children, link.second, precision)
    of_second = product(of_children.T, operand(middle, precision), precision)
    return of_second, product(operand(back, precision).T, alpha, precision)
