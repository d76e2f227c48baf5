"""Networks over embeddings, as the paper has them (Appendices A and B), and how weights begin."""

from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

Initial = Literal["xavier", "normal"]


class ResidualLayer(nn.Module):
    """g(y) = ReLU(B ReLU(A y)) + y."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(size, size), nn.Linear(size, size)

    def forward(self, y: Float[Tensor, "*rows size"]) -> Float[Tensor, "*rows size"]:
        inner: Tensor = self.second(self.first(y).relu())
        return inner.relu() + y


class ResidualNetwork(nn.Sequential):
    """h(x) = g1(g2(W x)), matrices Xavier normal, biases zero."""

    def __init__(self, size: int, size_in: int | None = None) -> None:
        super().__init__(nn.Linear(size_in or size, size), ResidualLayer(size), ResidualLayer(size))
        initialise_matrices(self)


def embedding(num_rows: int, size: int, initial: Initial = "xavier") -> nn.Parameter:
    """A table of embeddings: Xavier normal, or standard normal.

    The variance of the former falls with the number of rows: with thousands of symbols they begin nearly alike.
    """
    table = torch.empty(num_rows, size)
    return nn.Parameter(nn.init.xavier_normal_(table) if initial == "xavier" else nn.init.normal_(table))


def initialise_matrices(module: nn.Module) -> None:
    """Xavier normal for every matrix of a module; its vectors, the biases, begin at zero."""
    for parameter in module.parameters():
        if parameter.dim() > 1:
            nn.init.xavier_normal_(parameter)
        else:
            nn.init.zeros_(parameter)


def log_softmax_dropped(
    logits: Float[Tensor, "row choice"], dropout: float, training: bool
) -> Float[Tensor, "row choice"]:
    """log softmax over the last axis; in training each choice is left out of its row with probability `dropout`.

    What is left out has probability zero and the rest sums to one. A row that would lose every choice keeps all.
    """
    if not training or not dropout:
        return logits.log_softmax(-1)
    dropped: Bool[Tensor, "row choice"] = torch.rand_like(logits) < dropout
    dropped &= ~dropped.all(-1, keepdim=True)
    return logits.masked_fill(dropped, -torch.inf).log_softmax(-1)
