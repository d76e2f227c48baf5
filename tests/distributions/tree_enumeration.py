"""All derivations of a short sentence, by brute force: the rung below every distribution over trees."""

import itertools
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from typing import Any

import torch
from torch import Tensor

Use = tuple[str, tuple[int, ...]]  # a parameter, and an entry of it
Labelled = tuple[tuple[int, int, int], ...]  # (begin, end, symbol) of all nodes, in preorder


@dataclass(frozen=True)
class TreeModel:
    """A kind of distribution over trees: how to make one, and what its derivations use."""

    make: Callable[..., Any]
    shapes: Mapping[str, tuple[int, ...]]  # of small parameters
    nonterminals: int
    preterminals: int
    branches: Callable[[int], Iterable[tuple[int, int, list[Use]]]]  # nonterminal -> (left, right, parameters used)
    # p(A -> B C) = left[A, B] right[A, C] as parameters of this kind, in linear space, without root and emission
    independent: Callable[[Tensor, Tensor], dict[str, Tensor]]
    joint: Mapping[str, int]  # parameters of which more than the last axis sums to one
    orders: tuple[str, ...] = ("auto",)  # those that differ
    best: str = "viterbi"  # the query for the best derivation

    def parameters(self, seed: int = 0, scale: float = 1.5, dtype: torch.dtype = torch.float64) -> dict[str, Tensor]:
        generator = torch.Generator().manual_seed(seed)
        found = {}
        for name, shape in self.shapes.items():
            logits = scale * torch.randn(shape, generator=generator, dtype=torch.float64)
            axes = self.joint.get(name, 1)
            found[name] = logits.flatten(-axes).log_softmax(-1).view(shape).to(dtype)
        return found


@dataclass(frozen=True)
class Derivations:
    """Of one sentence: the nodes of each, and which parameters it uses: entries of all, flattened and joined."""

    labelled: list[Labelled]
    uses: Tensor  # [derivation, use]
    names: tuple[str, ...]

    def log_weights(self, parameters: Mapping[str, Tensor]) -> Tensor:
        return torch.cat([parameters[name].flatten() for name in self.names])[self.uses].sum(1)

    def log_z(self, parameters: Mapping[str, Tensor], log_extra: Tensor | None = None) -> Tensor:
        weights = self.log_weights(parameters)
        weights = weights if log_extra is None else weights + log_extra
        if not len(weights) or not bool((weights > -math.inf).any()):
            return torch.full((), -math.inf, dtype=torch.float64)
        return weights[weights > -math.inf].logsumexp(0)

    def posterior(self, parameters: Mapping[str, Tensor]) -> Tensor:
        weights = self.log_weights(parameters)
        return weights.softmax(0)

    @cached_property
    def bracketings(self) -> list[tuple[tuple[int, int], ...]]:
        """Spans of two words or more of each derivation, in preorder."""
        return [tuple((i, j) for i, j, _ in nodes if j - i > 1) for nodes in self.labelled]


@lru_cache(maxsize=64)
def _derivations(key: int, words: tuple[int, ...]) -> Derivations:
    model = _MODELS[key]
    names = tuple(model.shapes)
    sizes = [math.prod(model.shapes[name]) for name in names]
    starts = dict(zip(names, itertools.accumulate(sizes, initial=0), strict=False))

    def flat(use: Use) -> int:
        index = 0
        for size, position in zip(model.shapes[use[0]], use[1], strict=True):
            index = index * size + position
        return starts[use[0]] + index

    @cache
    def below(symbol: int, begin: int, end: int) -> list[tuple[Labelled, tuple[int, ...]]]:
        here = ((begin, end, symbol),)
        if end - begin == 1:
            if symbol < model.nonterminals:
                return []
            return [(here, (flat(("log_emission", (symbol - model.nonterminals, words[begin]))),))]
        if symbol >= model.nonterminals:
            return []
        found = []
        for left, right, uses in model.branches(symbol):
            used = tuple(flat(use) for use in uses)
            for middle in range(begin + 1, end):
                for (a, u), (b, v) in itertools.product(below(left, begin, middle), below(right, middle, end)):
                    found.append((here + a + b, used + u + v))
        return found

    every = [
        (nodes, (flat(("log_root", (symbol,))), *used))
        for symbol in range(model.nonterminals)
        for nodes, used in (below(symbol, 0, len(words)) if len(words) > 1 else [])
    ]
    uses = torch.tensor([used for _, used in every], dtype=torch.int64).view(
        len(every), 3 * len(words) if not every else len(every[0][1])
    )
    return Derivations([nodes for nodes, _ in every], uses, names)


_MODELS: dict[int, TreeModel] = {}


def derivations(model: TreeModel, words: Iterable[int]) -> Derivations:
    """All derivations of a sentence, possible or not, whatever the parameters."""
    _MODELS[id(model)] = model
    return _derivations(id(model), tuple(words))
