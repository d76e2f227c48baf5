"""Trees read from left to right: what may stand at the left edge of a constituent, however deep."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from rankspace.inference.logarithms import exact_log_product, log_sum_exp


class LeftToRight(NamedTuple):
    """Sentences read word by word."""

    before: Float[Tensor, "token preterminal"]  # log p(the words before a word, the preterminal that it hangs on)
    log_z: Float[Tensor, "places"]  # log p(the sentence)


def log_closure(
    log_step: Float[Tensor, "above below"], log_word: Float[Tensor, "above preterminal"]
) -> Float[Tensor, "above below"]:
    """log (I + A + A^2 + ...), without derivatives; for float64.

    A = exp(log_step)[above, below] is the probability that the leftmost child of `above` is `below`, exp(log_word) that
    it is a preterminal; together they sum to one. What never comes down to a word begins no sentence and has no part in
    any sum.

    By elimination without subtraction (Grassmann, Taksar and Heyman 1985): 1 - A[k, k] is taken as the sum of all else
    that k can lead to, so that numbers are only added, multiplied and inverted. No entry loses more than rounding,
    however deep left edges are. O(m^3), by matrix products.
    """
    ends = _coming_to_words(log_step, log_word)
    elsewhere = torch.cat([log_word, log_step.masked_fill(ends, -torch.inf)], 1)
    leak = torch.where(ends, log_sum_exp(elsewhere, 1), 0)
    return _eliminated(log_step.masked_fill(~(ends[:, None] & ends), -torch.inf), leak)


def _coming_to_words(log_step: Tensor, log_word: Tensor) -> Bool[Tensor, "above"]:
    ends, step = (log_word > -torch.inf).any(1), log_step > -torch.inf
    for _ in range(len(ends)):
        more = ends | (step & ends).any(1)
        if torch.equal(more, ends):
            break
        ends = more
    return ends


def _eliminated(step: Float[Tensor, "above below"], leak: Float[Tensor, "above"]) -> Float[Tensor, "above below"]:
    """The closure by halves: first ways within the first half, then those of the second one, which may pass through
    the first. `leak` is what leads to none of both; the diagonal is not read."""
    if len(leak) < 2:
        return -leak[:, None].expand(len(leak), len(leak))
    (near, over), (back, far) = (rows.tensor_split(2, 1) for rows in step.tensor_split(2))
    leak_near, leak_far = leak.tensor_split(2)
    within = _eliminated(near, leak_near.logaddexp(log_sum_exp(over, 1)))
    arriving = _product(back, within)  # from the second half to where the first one is left
    through = far.logaddexp(_product(arriving, over))
    beyond = _eliminated(through, leak_far.logaddexp(_product(arriving, leak_near[:, None])[:, 0]))
    leaving = _product(_product(within, over), beyond)
    top = torch.cat([within.logaddexp(_product(leaving, arriving)), leaving], 1)
    return torch.cat([top, torch.cat([_product(beyond, arriving), beyond], 1)])


def _product(left: Float[Tensor, "row middle"], right: Float[Tensor, "middle out"]) -> Float[Tensor, "row out"]:
    return exact_log_product(right.T)(left)
