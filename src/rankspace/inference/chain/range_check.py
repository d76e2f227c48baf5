"""Which sentences lost more than rounding because numbers left the range of the dtype (ARCHITECTURE, section 7)."""

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from rankspace.inference.chain.forward import Chart, Recursion, steps
from rankspace.inference.scaled import lowest

Support = Callable[[], Recursion | None]


def lost_sentences(recursion: Recursion, chart: Chart, support: Support) -> Bool[Tensor, "batch"]:
    """By place. `support()` gives the recursion with ones for all that is positive, or None if everything is.

    A product below the smallest normal number `tiny` is dropped. What is dropped on the way to a vector is at most tiny
    before the vector is scaled, hence tiny * power after; it is no more than rounding when all that the link makes of
    that vector is at least tiny / eps = `lowest` times that. The same holds for Z. Entries that are zero because the
    grammar says so are no loss: the support of the recursion tells them, and is run only if there is need to ask.
    """
    thresholds = _thresholds(recursion, chart)
    low = _low_sentences(recursion, chart, chart.outputs.amin(1) < thresholds) if len(chart.outputs) else None
    if low is None or not bool(low.any()):
        return torch.zeros_like(chart.totals, dtype=torch.bool)
    ones = support()
    if ones is None:
        return low
    return low.masked_scatter(low, _lost_for_good(recursion, chart, thresholds, low, ones))


def _thresholds(recursion: Recursion, chart: Chart) -> Float[Tensor, "token"]:
    """What the outputs of each step must reach."""
    before = torch.ones_like(chart.powers[:, 0])
    before[recursion.layout.alive[1] :] = chart.powers[:, 0][recursion.layout.previous].clamp_(min=1)
    return before.mul_(lowest(before.dtype))


def _low_sentences(recursion: Recursion, chart: Chart, rows: Bool[Tensor, "token"]) -> Bool[Tensor, "batch"]:
    """Sentences with one of the rows, or with a low Z."""
    low = _low_totals(recursion, chart)
    low[recursion.layout.token_place[rows]] = True
    return low


def _low_totals(recursion: Recursion, chart: Chart) -> Bool[Tensor, "batch"]:
    power = chart.powers[:, 0][recursion.layout.last_token].clamp(min=1)
    return (chart.totals < power.double() * lowest(power.dtype)) & (recursion.layout.length_at > 0)


def _lost_for_good(
    recursion: Recursion, chart: Chart, thresholds: Tensor, low: Bool[Tensor, "batch"], ones: Recursion
) -> Bool[Tensor, "low"]:
    """Of the low sentences, those with a low entry that should be positive."""
    part = ones.restricted(low)
    reached, possible = run_support(part)
    rows = low[recursion.layout.token_place].nonzero()[:, 0]
    wrong = ((chart.outputs[rows] < thresholds[rows, None]) & reached).any(1)
    lost = _low_totals(recursion, chart)[low] & possible
    lost[part.layout.token_place[wrong]] = True
    return lost


def run_support(recursion: Recursion) -> tuple[Bool[Tensor, "token size"], Bool[Tensor, "batch"]]:
    """Where the outputs of the chain are positive, from a recursion of zeros and ones; and, by place, if Z is."""
    layout = recursion.layout
    allowed = (recursion.log_words > -torch.inf).index_select(0, recursion.index)
    reached = torch.empty_like(allowed)
    alive = recursion.start > 0
    for time, (output, word) in enumerate(steps(layout, reached, allowed)):
        came = recursion.link_into(time).apply(alive[: len(output)].to(recursion.start.dtype)) > 0 if time else alive
        output.copy_(came)
        alive = output & word
    last = layout.last_token
    return reached, (reached[last] & allowed[last]).any(1)
