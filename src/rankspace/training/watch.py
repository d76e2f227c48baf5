"""What training adds up and watches on the device: losses, impossible sentences, and numbers that must not occur.

Nothing here waits for the device but `check` and `drain`.
"""

import math
from collections import deque
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from rankspace.errors import RankspaceError
from rankspace.evaluation.perplexity import ROUNDING

FINE = -1


class Place(NamedTuple):
    """A step and where it was."""

    step: int
    epoch: int  # from 0
    batch: int  # number of the last batch of the step in its epoch, from 1


class Sums(NamedTuple):
    """Sums over steps. Losses, sentences and predictions are those of possible sentences."""

    loss: float = 0.0
    num_sentences: float = 0.0
    num_predictions: float = 0.0
    num_impossible: float = 0.0
    norm: float = 0.0
    num_steps: float = 0.0  # that had a gradient

    def plus(self, other: "Sums") -> "Sums":
        return Sums(*(one + two for one, two in zip(self, other, strict=True)))


class NumbersError(RankspaceError):
    """log p above 0, or a number that is none: the message names step and batch."""


class Watch:
    """Sums of losses and norms of gradients, and the first step at which an invariant broke: log p <= 0, no NaN.

    learns_from: what else must be finite, in words.
    """

    def __init__(self, device: torch.device, learns_from: str = "the gradient") -> None:
        self.learns_from = learns_from
        self.sums: Float[Tensor, 6] = torch.zeros(len(Sums()), dtype=torch.float64, device=device)
        self.bad = torch.full((), FINE, dtype=torch.int64, device=device)
        self.least = torch.zeros((), dtype=torch.float64, device=device)  # the loss at the first bad step
        self._now = torch.zeros((), dtype=torch.int64, device=device)  # the step; on the device, for captured ones
        self._recent: deque[Place] = deque()
        self.place = Place(0, 0, 0)  # the last step that was told
        self.num_again = 0  # sentences that a captured step lost, and that were done again; on the host

    def begin(self, place: Place) -> None:
        """Tells which step comes."""
        self.place = place
        self._recent.append(place)
        self.turn_to(place)

    def turn_to(self, place: Place) -> None:
        """What follows is of this step, which was told before."""
        self._now.fill_(place.step)

    def losses(
        self, losses: Float[Tensor, "batch"], counts: Float[Tensor, "batch"], predictions: Float[Tensor, "batch"]
    ) -> Float[Tensor, ""]:
        """The sum of the losses of a batch, impossible sentences left out; added to the sums."""
        possible = losses < math.inf
        total = total_loss(losses, counts)
        with torch.no_grad():
            found = losses.detach()
            least = found.min().double()
            self._blame(found.isnan().any() | (least < -ROUNDING), least)
            counted = possible * counts
            sizes = counted.sum(), (counted * predictions).sum(), ((found == math.inf) * counts).sum()
            self.sums[:4] += torch.stack([total.detach(), *sizes])
        return total

    def step(self, norm: Float[Tensor, ""], counts: Bool[Tensor, ""] | int = 1) -> None:
        """Ends a step, whose gradient had a norm; one that does not count has none."""
        self.finite(norm)
        self.sums[4] += norm
        self.sums[5] += counts

    def finite(self, number: Float[Tensor, ""]) -> None:
        """Takes note of a step in which something that must be finite is not."""
        self._blame(~number.isfinite(), torch.zeros_like(self.least))

    def _blame(self, wrong: Tensor, least: Tensor) -> None:
        first = wrong & (self.bad == FINE)
        self.least.copy_(torch.where(first, least, self.least))
        self.bad.copy_(torch.where(first, self._now, self.bad))

    def check(self) -> None:
        """Raises NumbersError if any step since the last check was bad."""
        step = int(self.bad)
        if step == FINE:
            self._recent.clear()
            return
        place = next((place for place in self._recent if place.step == step), self._recent[-1])
        least = float(self.least)
        what = f"{self.learns_from} is not finite"
        if math.isnan(least):
            what = "log p of a sentence is nan"
        elif least < -ROUNDING:
            what = f"log p of a sentence is {-least:.4g}, above 0"
        where = f"step {place.step} (epoch {place.epoch + 1}, batch {place.batch})"
        raise NumbersError(f"train: {where}: {what}")

    def drain(self) -> Sums:
        """The sums since the last time, which begin again."""
        found = Sums(*self.sums.tolist())
        self.sums.zero_()
        return found


def total_loss(losses: Float[Tensor, "batch"], counts: Float[Tensor, "batch"]) -> Float[Tensor, ""]:
    """The sum of the losses of a batch, each as often as it counts, impossible sentences left out."""
    return torch.where(losses < math.inf, losses * counts, 0).sum()
