"""Conditional distributions that several models are put together from."""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from rankspace.models.emission import log_emission
from rankspace.models.networks import JoinedLinear, JoinedNetwork, ResidualNetwork, embedding, initialise_matrices


class Emission(nn.Module):
    """p(word | symbol) = softmax over words of u_word . h(symbol) + b_word; with latent vectors, of h([symbol; z])."""

    def __init__(self, size: int, vocabulary: int, latent: int | None = None) -> None:
        super().__init__()
        self.network, self.words = JoinedNetwork(size, latent), nn.Linear(size, vocabulary)
        initialise_matrices(self.words)

    def forward(
        self,
        symbols: Float[Tensor, "symbol size"],
        words: Int[Tensor, "*batch word"] | None = None,
        z: Float[Tensor, "*batch latent"] | None = None,
    ) -> Float[Tensor, "*batch symbol word"]:
        return log_emission(self.network(symbols, z), self.words.weight, self.words.bias, words)


class Root(nn.Module):
    """p(choice) = softmax of W h(w) + b for one embedding w; with latent vectors, of h([w; z])."""

    def __init__(self, size: int, choices: int, latent: int | None = None) -> None:
        super().__init__()
        self.start, self.network = embedding(1, size, "normal"), JoinedNetwork(size, latent)
        self.choices = nn.Linear(size, choices)
        initialise_matrices(self.choices)

    def forward(self, z: Float[Tensor, "*batch latent"] | None = None) -> Float[Tensor, "*batch choice"]:
        logits: Tensor = self.choices(self.network(self.start, z))
        return logits.squeeze(-2).log_softmax(-1)


class Choice(nn.Module):
    """p(row) = softmax over rows of u . h(row)."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.network, self.start = ResidualNetwork(size), embedding(1, size)

    def forward(self, rows: Float[Tensor, "row size"]) -> Float[Tensor, "row"]:
        logits: Tensor = self.network(rows) @ self.start[0]
        return logits.log_softmax(0)


class Pairs(nn.Module):
    """p(B C | row) = softmax over all pairs of u_BC . row + b_BC; with latent vectors, of u_BC . [row; z]."""

    def __init__(self, size: int, num_symbols: int, latent: int | None = None) -> None:
        super().__init__()
        self.num_symbols, self.pairs = num_symbols, JoinedLinear(size, num_symbols**2, latent)

    def forward(
        self, rows: Float[Tensor, "row size"], z: Float[Tensor, "*batch latent"] | None = None
    ) -> Float[Tensor, "*batch row symbol symbol"]:
        logits: Tensor = self.pairs(rows, z)
        return logits.log_softmax(-1).view(*logits.shape[:-1], self.num_symbols, self.num_symbols)


def surely_last(num: int, like: Tensor) -> Float[Tensor, "row"]:
    """The distribution, in log space, over `num` rows that has the last one with probability one."""
    rows = torch.arange(num, device=like.device)
    return torch.where(rows < num - 1, -torch.inf, 0.0).to(like.dtype)
