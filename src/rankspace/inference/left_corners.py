"""Trees read from left to right: what may stand at the left edge of a constituent, however deep."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from rankspace.errors import DivergenceError
from rankspace.inference.logarithms import log_matrix_product, log_sum_exp

DOUBLINGS = 60  # 2^60 steps down: as many as float64 can tell from endlessly many
NOISE = 1e-6  # the relative error of a sum of that many that is let pass


class LeftToRight(NamedTuple):
    """Sentences read word by word."""

    before: Float[Tensor, "token preterminal"]  # log p(the words before a word, the preterminal that it hangs on)
    log_z: Float[Tensor, "places"]  # log p(the sentence)


def log_closure(
    log_step: Float[Tensor, "above below"], log_word: Float[Tensor, "above preterminal"]
) -> Float[Tensor, "above below"]:
    """log (I + A + A^2 + ...) without derivatives; for float64.

    A = exp(log_step)[above, below] is the probability that the leftmost child of `above` is `below`, exp(log_word) that
    it is a preterminal. Powers are doubled and only ever added up, so that no entry has lost more than rounding, and
    what can be is never zero. What never comes down to a word begins no sentence, and counts as nothing.

    O(m^3) for each doubling; there are about log2 of the depth of left edges. Raises DivergenceError where left edges
    are so deep that rounding would show.
    """
    ends = _coming_to_words(log_step, log_word)
    power = log_step.masked_fill(~(ends[:, None] & ends), -torch.inf)
    total = torch.full_like(power, -torch.inf).fill_diagonal_(0).logaddexp(power)
    for _ in range(DOUBLINGS):
        power = log_matrix_product(power, power)
        found = total.logaddexp(log_matrix_product(total, power))
        has_grown = (found > -torch.inf) & (found - total > torch.finfo(total.dtype).eps)
        total = found
        if not bool(has_grown.any()):
            break
    _check_depth(total)
    return total


def _coming_to_words(log_step: Tensor, log_word: Tensor) -> Bool[Tensor, "above"]:
    ends, step = (log_word > -torch.inf).any(1), log_step > -torch.inf
    for _ in range(len(ends)):
        more = ends | (step & ends).any(1)
        if torch.equal(more, ends):
            break
        ends = more
    return ends


def _check_depth(log_total: Float[Tensor, "above below"]) -> None:
    """Rows sum to the expected number of steps down, and so many times is the rounding of one step repeated."""
    if not log_total.numel():
        return
    steps = log_sum_exp(log_total, 1).amax().exp().item()
    if not steps * torch.finfo(log_total.dtype).eps < NOISE:
        raise DivergenceError(
            "the leftmost child of a nonterminal is a nonterminal again with a probability so near to one that left "
            "edges have no end, as far as float64 can tell: what a sentence begins with has no probability."
        )
