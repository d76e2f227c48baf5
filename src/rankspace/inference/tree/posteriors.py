"""What the outside pass tells of each sentence and span: slopes along a direction, and posteriors of symbols."""

import math
from collections.abc import Callable

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from rankspace.inference.differentiation import depending_on
from rankspace.inference.links import DenseLink
from rankspace.inference.scaled import times_power
from rankspace.inference.tree.inputs import Sentences, TreeInputs
from rankspace.inference.tree.inside import Inside, SpanWeights, inside
from rankspace.inference.tree.log_space import LogInputs, Offsets, log_chart
from rankspace.inference.tree.outside import Step, outside
from rankspace.inference.tree.range_check import Support, lost_sentences
from rankspace.inference.tree.sentence_link import over_sentences


def steps(
    inputs: TreeInputs,
    sentences: Sentences,
    support: Support,
    visit: Callable[[Inside, Step], None],
    weights: SpanWeights | None = None,
) -> Bool[Tensor, "batch"]:
    """Visits each step of the outside pass of log Z of every sentence; returns which sentences were lost.

    Lost and impossible sentences show zeros.
    """
    chart = inside(inputs, sentences, weights, keep_alpha=True)
    lost, has_zeros = lost_sentences(inputs, sentences, chart, weights, support)
    known = (chart.log_z > -math.inf) & ~lost
    slopes = known[sentences.layout.sentence_at].to(inputs.dtype)
    for step in outside(inputs, chart, weights, slopes, has_zeros):
        visit(chart, step)
    return lost


def slopes_along(
    inputs: TreeInputs, sentences: Sentences, support: Support, direction: TreeInputs
) -> tuple[Float[Tensor, "batch"], Bool[Tensor, "batch"]]:
    """Derivative of each sentence's log Z, float64, when the inputs move along a direction; and the lost sentences.

    Zero for those and for impossible ones. No gradient of a single sentence is ever formed: the adjoint of each span
    meets the movement of what it is the adjoint of.
    """
    layout = sentences.layout
    table = torch.zeros(layout.longest, len(layout.lengths), dtype=torch.float64, device=layout.device)

    def meet(chart: Inside, step: Step) -> None:
        if step.alpha is None:
            moved = times_power(direction.words[sentences.token_word], -chart.token_power)
        else:
            moved = inputs.link.at(step.rows).tangent(direction.link, step.alpha)
            root = step.of_top.double() * direction.top(step.alpha[step.whole], step.whole).double()
            table[step.width - 1, step.whole] += root
        each = (step.of_children * moved).sum(1, dtype=torch.float64)
        cells = (layout.span_begin(step.width), layout.span_place(step.width))
        begins = torch.zeros_like(table).index_put(cells, each)
        table[step.width - 1] += begins.sum(0)

    lost = steps(inputs, sentences, support, meet)
    return layout.in_callers_order(table.sum(0)), lost


ShowStates = Callable[[int, Tensor], None]  # width, posterior of each symbol of its spans [row, symbol of the kind]


def state_posteriors(
    inputs: TreeInputs,
    states: LogInputs,
    sentences: Sentences,
    support: Support,
    show: ShowStates,
    rows_of: Callable[[int], Tensor],
    weights: SpanWeights | None = None,
) -> Bool[Tensor, "batch"]:
    """p(span has symbol A | sentence), width by width, for the rows that `rows_of(width)` names; returns the lost.

    Spans of two words or more show nonterminals, words show preterminals. For a span with sums alpha and adjoints g of
    its children: (U alpha)[A] * (V^T g_left + W^T g_right + root, if it is the whole sentence)[A]. Costs an outside
    pass, and two products through the states for the rows alone.
    """
    first = None if states.first is None else over_sentences(DenseLink(states.first.exp()), sentences.layout)
    second, sides = (over_sentences(DenseLink(x.exp()), sentences.layout) for x in (states.second, states.sides))
    root = states.root.exp()
    emission = (states.emission - sentences.log_scale[:, None].to(inputs.dtype)).exp()

    def visit(chart: Inside, step: Step) -> None:
        rows = rows_of(step.width)
        if not len(rows):
            return
        adjoint, spans = step.of_children[rows], rows + step.rows.start
        if step.alpha is None or step.of_alpha is None:
            word = sentences.token_word[rows]
            adjoint = adjoint if weights is None else adjoint * weights.factor[rows, None]
            adjoint = times_power(adjoint, -chart.token_power[rows])
            show(step.width, emission[word] * sides.at(spans).transposed(adjoint))
        elif first is None:
            show(step.width, step.alpha[rows] * step.of_alpha[rows])
        else:
            of_top = torch.zeros_like(step.alpha[:, 0])
            of_top[step.whole] = step.of_top
            from_root = of_top[rows, None] * (root if root.dim() == 1 else root[chart.layout.places[spans]])
            above = second.at(spans).transposed(adjoint) + from_root
            show(step.width, first.at(spans).apply(step.alpha[rows]) * above)

    return steps(inputs, sentences, support, visit, weights)


def state_posteriors_in_log_space(
    states: LogInputs,
    sentences: Sentences,
    show: ShowStates,
    rows_of: Callable[[int], Tensor],
    log_weights: Float[Tensor, "span"] | None = None,
) -> None:
    """The same as derivatives of log Z in log space, with a table of all spans and symbols."""
    layout = sentences.layout
    with torch.enable_grad():
        offsets = Offsets.zeros(states, layout)
        log_z = log_chart(states, layout, sentences.token_word, log_weights, offsets=offsets).log_z
        total = depending_on(log_z.where(log_z > -math.inf, 0).sum(), *offsets)
        tokens, wide = torch.autograd.grad(total, offsets)
    for width in range(1, layout.longest + 1):
        rows = rows_of(width)
        if len(rows):
            show(width, (tokens if width == 1 else wide[layout.wide(width)])[rows])
