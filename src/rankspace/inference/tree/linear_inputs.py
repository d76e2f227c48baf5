"""From logarithms to the linear tensors of the engine, as a plain differentiable function."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from rankspace.inference.links import DenseLink, FactoredLink, Precision
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
    emission = (inputs.emission - log_scale[:, None]).exp()
    to_words = over_sentences(DenseLink(inputs.sides.exp(), precision), layout)
    words = to_words.at(slice(0, layout.num_tokens)).apply(emission)
    second, root = inputs.second.exp(), inputs.root.exp()
    if inputs.first is None:
        return TreeInputs(over_sentences(DenseLink(second, precision), layout), words, root)
    link = FactoredLink(second, inputs.first.exp(), precision)
    root = root @ link.first if link.first.dim() == 2 else (root[:, None] @ link.first)[:, 0]
    return TreeInputs(over_sentences(link.multiplied() if multiply else link, layout), words, root)


def support_of(inputs: LogInputs, multiply: bool, precision: Precision, layout: Ragged) -> TreeInputs | None:
    """Ones where the linear inputs are positive; None if all are."""
    tensors = (inputs.root, inputs.first, inputs.second, inputs.sides, inputs.emission)
    if not any(bool((tensor == -math.inf).any()) for tensor in tensors if tensor is not None):
        return None
    ones = inputs.map(lambda tensor: tensor.detach().where(tensor == -math.inf, 0))
    return linear_inputs(ones, torch.zeros_like(ones.emission[:, 0]), multiply, precision, layout).clamp(1.0)
