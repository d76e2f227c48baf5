"""From logarithms to the linear tensors of the engine, as a plain differentiable function."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from rankspace.inference.links import DenseLink, FactoredLink, Precision, operand, tf32
from rankspace.inference.ragged import Ragged
from rankspace.inference.tree.inputs import TreeInputs
from rankspace.inference.tree.log_space import LogInputs
from rankspace.inference.tree.sentence_link import over_sentences


def word_scale(emission: Float[Tensor, "word preterminal"]) -> Float[Tensor, "word"]:
    """The largest log emission of each word, which is taken out of its row; zero for a word that nothing emits."""
    top = emission.detach().amax(1) if emission.numel() else emission.new_zeros(len(emission))
    return top.where(top > -math.inf, 0)


def linear_inputs(
    inputs: LogInputs, log_scale: Float[Tensor, "word"], multiply: bool, precision: Precision, layout: Ragged
) -> TreeInputs:
    """Exponentials, and the products of figure 4: J = V E^T, K = W E^T, L = s U and, to `multiply`, H = V U, I = W U.

    Rows of words are divided by exp(log_scale) before they meet a matrix.
    """
    emission, sides = (inputs.emission - log_scale[:, None]).exp(), inputs.sides.exp()
    to_words = over_sentences(DenseLink(sides, precision), layout)
    words = to_words.at(slice(0, layout.num_tokens)).apply(emission)
    second, root = inputs.second.exp(), inputs.root.exp()
    link: DenseLink | FactoredLink = DenseLink(second, precision)
    if inputs.first is not None:
        factored = FactoredLink(second, inputs.first.exp(), precision)
        root = root @ factored.first if factored.first.dim() == 2 else (root[:, None] @ factored.first)[:, 0]
        link = factored.multiplied() if multiply else factored
    mass = gained_by_rounding(sides, link) if precision == "medium" and sides.dim() == 2 else None
    return TreeInputs(over_sentences(link, layout), words, root, mass)


@torch.no_grad()
def gained_by_rounding(sides: Float[Tensor, "both preterminal"], link: DenseLink | FactoredLink) -> Float[Tensor, "_"]:
    """What the rules of each rank sum to where kernels round the link to operands, over what they sum to as they are:
    of a confident grammar that may be above one. A rank without rules has one."""
    of_words = sides.sum(1)
    rounded, exact = (of_words + _row_sums(link, precision) for precision in (link.precision, "highest"))
    gained: Tensor = (rounded / exact).where(exact > 0, 1)
    return gained.view(2, -1).prod(0)


def _row_sums(link: DenseLink | FactoredLink, precision: Precision) -> Float[Tensor, "both"]:
    """Of the link's matrix, made of operands of a precision."""
    *outer, inner = (operand(matrix, precision).to(matrix.dtype) for matrix in link.tensors)
    found = inner.sum(1)
    with tf32(found.device, allowed=False):
        for matrix in outer:
            found = matrix @ found
    return found


def support_of(inputs: LogInputs, multiply: bool, precision: Precision, layout: Ragged) -> TreeInputs | None:
    """Ones where the linear inputs are positive; None if all are."""
    tensors = (inputs.root, inputs.first, inputs.second, inputs.sides, inputs.emission)
    if not any(bool((tensor == -math.inf).any()) for tensor in tensors if tensor is not None):
        return None
    ones = inputs.map(lambda tensor: tensor.detach().where(tensor == -math.inf, 0))
    return linear_inputs(ones, torch.zeros_like(ones.emission[:, 0]), multiply, precision, layout).clamp(1.0)
