"""Networks over embeddings, as the paper has them (Appendices A and B), and how weights begin."""

import math
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

Initial = Literal["xavier", "normal"]
MANY, MULTIPLE = 512, 64  # rows from which a multiple is kept where some are left out


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

    def __init__(self, size: int) -> None:
        super().__init__(nn.Linear(size, size), ResidualLayer(size), ResidualLayer(size))
        initialise_matrices(self)


def kept_of_row(network: nn.Module) -> int:
    """Numbers that a backward pass has of every row that went through: the row, and what each map and sum gave."""
    maps = [each for each in network.modules() if isinstance(each, nn.Linear)]
    num_sums = sum(isinstance(each, ResidualLayer) for each in network.modules())
    return sum(each.out_features for each in maps) + (1 + num_sums) * maps[-1].out_features


class JoinedLinear(nn.Module):
    """W [x; z] + b for rows x and a latent vector z, of each sentence perhaps; W x + b without latent vectors.

    W x is computed once, whatever the number of sentences.
    """

    def __init__(self, size: int, size_out: int, latent: int | None = None) -> None:
        super().__init__()
        self.of_row = nn.Linear(size, size_out)
        self.of_latent = None if latent is None else nn.Linear(latent, size_out, bias=False)
        initialise_matrices(self)

    def forward(
        self, rows: Float[Tensor, "row size"], z: Float[Tensor, "*batch latent"] | None = None
    ) -> Float[Tensor, "*batch row size_out"]:
        found: Tensor = self.of_row(rows)
        return found if self.of_latent is None else found + self.of_latent(z).unsqueeze(-2)


class JoinedNetwork(nn.Module):
    """h([x; z]) for rows x and a latent vector z, of each sentence perhaps; h(x) without latent vectors."""

    def __init__(self, size: int, latent: int | None = None) -> None:
        super().__init__()
        self.first = JoinedLinear(size, size, latent)
        self.layers = nn.Sequential(ResidualLayer(size), ResidualLayer(size))
        initialise_matrices(self.layers)

    def forward(
        self, rows: Float[Tensor, "row size"], z: Float[Tensor, "*batch latent"] | None = None
    ) -> Float[Tensor, "*batch row size"]:
        found: Tensor = self.layers(self.first(rows, z))
        return found


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


def make_biases_uniform(module: nn.Module) -> None:
    """Every bias of a linear map uniform within 1 / sqrt(inputs), as torch begins them."""
    for each in module.modules():
        if isinstance(each, nn.Linear) and each.bias is not None:
            bound = each.in_features**-0.5
            nn.init.uniform_(each.bias, -bound, bound)


def log_softmax_dropped(
    logits: Float[Tensor, "row choice"], dropout: float, training: bool
) -> Float[Tensor, "row choice"]:
    """log softmax over the last axis; in training each choice is left out of its row with probability `dropout`.

    What is left out has probability zero and the rest sums to one. A row that would lose every choice, those with logit
    -inf being lost already, keeps all.
    """
    if not training or not dropout:
        return logits.log_softmax(-1)
    dropped: Bool[Tensor, "row choice"] = torch.rand_like(logits) < dropout
    lost = dropped | (logits == -torch.inf)
    dropped &= ~lost.all(-1, keepdim=True)
    return logits.masked_fill(dropped, -torch.inf).log_softmax(-1)


def kept_rows(
    table: Float[Tensor, "row size"], dropout: float, training: bool, num_groups: int = 1
) -> Float[Tensor, "kept size"]:
    """All rows; in training a random choice of 1 - `dropout` of each group's (at least one), as many of each. Of many
    rows a multiple of 64 is kept, the nearest: products are slow at others.

    Groups are equally many consecutive rows, and what is kept stays in order.
    """
    if not training or not dropout:
        return table
    return table.index_select(0, kept_numbers(len(table), dropout, table.device, num_groups))


def kept_numbers(num_rows: int, dropout: float, device: torch.device, num_groups: int = 1) -> Int[Tensor, "kept"]:
    """The rows that `kept_rows` chooses, for tables that must lose the same ones. Does not wait for the device."""
    size = num_rows // num_groups
    lots = torch.rand(num_groups, size, device=device)
    chosen: Int[Tensor, "group kept"] = lots.argsort(1)[:, : _num_kept(size, dropout)].sort(1).values
    first = size * torch.arange(num_groups, device=device)
    return (first[:, None] + chosen).flatten()


def _num_kept(num_rows: int, dropout: float) -> int:
    count = math.ceil((1 - dropout) * num_rows)
    return count if count < MANY else min(round(count / MULTIPLE) * MULTIPLE, num_rows)
