"""A chain one word at a time."""

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float, Int
from torch import Tensor

from rankspace.inference.chain.log_space import through
from rankspace.inference.chain.paths import Draw
from rankspace.inference.logarithms import LogMap, exact_log_product, log_sum_exp


@dataclass(frozen=True)
class Stepper:
    """A chain without words, in float64 logarithms; what a step needs is prepared once.

    Links are matrices [out, in], in the order in which a vector passes them.
    """

    log_start: Float[Tensor, "size"]
    log_links: tuple[Float[Tensor, "_ _"], ...]
    log_emission: Float[Tensor, "size vocab"]

    @cached_property
    def maps(self) -> list[LogMap]:
        return [exact_log_product(link) for link in self.log_links]

    @cached_property
    def to_words(self) -> LogMap:
        return exact_log_product(self.log_emission.T)

    def predicted(self, log_vectors: Float[Tensor, "row size"]) -> Float[Tensor, "row size"]:
        """From log p(words so far, v_t) to log p(words so far, v_{t+1})."""
        return through(self.maps, log_vectors)

    def next_word(self, log_predicted: Float[Tensor, "row size"]) -> Float[Tensor, "row vocab"]:
        """log p(next word | words so far); -inf throughout if these are impossible."""
        total = log_sum_exp(log_predicted)[:, None]
        relative = torch.where(total != -math.inf, log_predicted - total, -math.inf)
        return self.to_words(relative)

    @property
    def vocabulary(self) -> int:
        return self.log_emission.shape[1]

    def drawn_words(self, places: Int[Tensor, "row"], draw: Draw) -> Int[Tensor, "row"]:
        """A word from each of some places of the vector."""
        return draw(self.log_emission[places])

    def log_other_words(self, word: int) -> Float[Tensor, "size"]:
        """log p(any word but this)."""
        others = torch.arange(self.vocabulary, device=self.log_emission.device) != word
        return log_sum_exp(torch.where(others, self.log_emission, -math.inf))

    def stepped(self, log_predicted: Float[Tensor, "row size"], words: Int[Tensor, "row"]) -> Float[Tensor, "row size"]:
        """From log p(words so far, v_{t+1}) to the same with one word more."""
        return log_predicted + self.log_emission.T[words]
