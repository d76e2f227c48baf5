"""Sentences drawn from a chain itself, word by word."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from rankspace.inference.chain.incremental import Stepper
from rankspace.inference.chain.paths import Draw
from rankspace.inference.logarithms import log_sum_exp


@dataclass(frozen=True)
class Generated:
    """Words and hidden places, [sentence, time]; beyond a sentence's length they mean nothing."""

    words: Int[Tensor, "num time"]
    vectors: Int[Tensor, "num time"]
    between: tuple[Int[Tensor, "num time"], ...]  # on the way from each word to the next
    lengths: Int[Tensor, "num"]
    ended: Bool[Tensor, "num"]


def generate(chain: Stepper, num: int, max_length: int, eos: int | None, draw: Draw) -> Generated:
    """`num` sentences that end with `eos` or at the limit. Costs size + vocab for each word."""
    alive = torch.ones(num, dtype=torch.bool, device=chain.log_start.device)
    lengths = torch.zeros(num, dtype=torch.int64, device=chain.log_start.device)
    words, stages = [], []
    place = draw(chain.log_start.expand(num, -1))
    for _ in range(max_length):
        words.append(chain.drawn_words(place, draw))
        stages.append([place])
        lengths += alive
        alive = alive & (words[-1] != eos) if eos is not None else alive
        if not bool(alive.any()):
            break
        for link in chain.log_links:
            place = draw(link.T[place])
            stages[-1].append(place)
    tables = [torch.stack([stage[min(i, len(stage) - 1)] for stage in stages], 1) for i in range(len(chain.log_links))]
    return Generated(torch.stack(words, 1), tables[0], tuple(tables[1:]), lengths, ~alive)


def mass_without(chain: Stepper, word: int, length: int) -> Float[Tensor, ""]:
    """p(a word is not among the first `length` words): the forward algorithm with that word forbidden, as long as there
    is a number for it."""
    allowed = chain.log_other_words(word)
    vectors = (chain.log_start + allowed)[None]
    mass = log_sum_exp(vectors)[0].exp()
    for _ in range(length - 1):
        if not mass:
            break
        vectors = chain.predicted(vectors) + allowed
        mass = log_sum_exp(vectors)[0].exp()
    return mass
