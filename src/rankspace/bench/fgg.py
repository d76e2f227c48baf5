"""Two questions about the generic engine: what does generality cost, and what does rank space gain?

1. A dense PCFG against an inside algorithm written by hand, width by width, for that one model.
2. A PCFG with decomposed rules in rank space against the same in factored state space, both on the generic engine and
   from the same parameters. Both use the emission of the words of the batch alone; rank space pays for its tables in
   every run.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from rankspace.bench.measurement import circumstances, interleaved
from rankspace.errors import RankspaceError
from rankspace.fgg import zoo
from rankspace.inference import GenericEngine
from rankspace.lowrank import to_rank_space

VOCABULARY = 1000
TOLERANCE = 1e-5  # relative, of log Z in float32: rounding of sums of some thousand terms over 20 to 40 levels
GRADIENT_TOLERANCE = 1e-5  # relative to the largest expected count of a parameter, for the same reason

Factors = Callable[[Mapping[str, Tensor]], Mapping[str, Tensor]]  # from parameters


@dataclass(frozen=True)
class Sizes:
    """Sizes of both comparisons."""

    symbols: int = 30
    batch: int = 8
    length: int = 20
    states: int = 2000
    rank: int = 50
    rank_batches: tuple[int, ...] = (8, 128)
    repeats: int = 7


QUICK = Sizes(symbols=10, batch=2, length=8, states=200, rank=10, rank_batches=(2, 4), repeats=2)


def run(sizes: Sizes, device: torch.device, tick: Callable[[], None] = lambda: None) -> dict[str, Any]:
    """Both comparisons with their counts, as a JSON object. Raises RankspaceError if results do not agree."""
    generator = torch.Generator().manual_seed(0)
    return {
        "benchmark": "fgg",
        **circumstances(device),
        "generality": _generality(sizes, device, generator, tick),
        "rank_space": [_rank_space(sizes, batch, device, generator, tick) for batch in sizes.rank_batches],
    }


def num_runs(sizes: Sizes) -> int:
    """How often `run` calls `tick`."""
    return 4 * (1 + len(sizes.rank_batches)) * sizes.repeats


def _generality(sizes: Sizes, device: torch.device, generator: torch.Generator, tick: Callable[[], None]) -> Any:
    symbols = sizes.symbols
    shapes = {"root": (symbols,), "rule": (symbols, symbols**2), "emission": (symbols, VOCABULARY)}
    parameters = {name: distribution(generator, *shape).to(device) for name, shape in shapes.items()}
    parameters["rule"] = parameters["rule"].reshape(symbols, symbols, symbols)
    words = torch.randint(VOCABULARY, (sizes.batch, sizes.length), generator=generator).to(device)
    leaves = {name: parameter.detach().requires_grad_() for name, parameter in parameters.items()}
    plain, engine = GenericEngine(zoo.pcfg(**parameters)), GenericEngine(zoo.pcfg(**leaves))
    _agree("generic engine", plain.log_z(words), "inside by hand", inside_by_hand(words, **parameters))
    times = interleaved(
        {
            "engine_forward": lambda: plain.log_z(words),
            "by_hand_forward": lambda: inside_by_hand(words, **parameters),
            "engine_both": lambda: engine.log_z(words).sum().backward(),
            "by_hand_both": lambda: inside_by_hand(words, **leaves).sum().backward(),
        },
        sizes.repeats,
        device,
        tick,
    )
    return {
        "sizes": {"symbols": sizes.symbols, "batch": sizes.batch, "length": sizes.length},
        "milliseconds": times,
        "slower_forward": times["engine_forward"] / times["by_hand_forward"],
        "slower_both": times["engine_both"] / times["by_hand_both"],
        "counts": _counts(engine, sizes),
    }


def _rank_space(
    sizes: Sizes, batch: int, device: torch.device, generator: torch.Generator, tick: Callable[[], None]
) -> Any:
    shapes = {
        "root": (sizes.states,),
        "head": (sizes.states, sizes.rank),
        "left": (sizes.rank, sizes.states),
        "right": (sizes.rank, sizes.states),
        "emission": (sizes.states, VOCABULARY),
    }
    parameters = {name: distribution(generator, *shape).to(device) for name, shape in shapes.items()}
    words = torch.randint(VOCABULARY, (batch, sizes.length), generator=generator).to(device)
    leaves = {name: parameter.detach().requires_grad_() for name, parameter in parameters.items()}
    here, numbers = _for_words(parameters, words)
    state = GenericEngine(zoo.factored_pcfg(**here))
    ranked = GenericEngine(to_rank_space(state.fgg))
    _same_tables(_over_ranks(here), ranked.fgg.tensors)

    def run(engine: GenericEngine, factors: Factors, given: Mapping[str, Tensor]) -> Tensor:
        here, numbers = _for_words(given, words)
        return engine.log_z(numbers, factors=factors(here))

    over_states, over_ranks = partial(run, state, _over_states), partial(run, ranked, _over_ranks)
    _agree("rank space", over_ranks(parameters), "state space", over_states(parameters))
    _agree_in_gradients("rank space", _slopes(over_ranks, leaves), "state space", _slopes(over_states, leaves), leaves)
    times = interleaved(
        {
            "state_forward": lambda: over_states(parameters),
            "rank_forward": lambda: over_ranks(parameters),
            "state_both": lambda: _slopes(over_states, leaves),
            "rank_both": lambda: _slopes(over_ranks, leaves),
        },
        sizes.repeats,
        device,
        tick,
    )
    return {
        "sizes": {
            "states": sizes.states,
            "rank": sizes.rank,
            "batch": batch,
            "length": sizes.length,
        },
        "milliseconds": times,
        "faster_forward": times["state_forward"] / times["rank_forward"],
        "faster_both": times["state_both"] / times["rank_both"],
        "estimated_cost": {"state": state.statistics(numbers).cost, "rank": ranked.statistics(numbers).cost},
    }


def _for_words(parameters: Mapping[str, Tensor], words: Tensor) -> tuple[Mapping[str, Tensor], Tensor]:
    """The parameters for as many words as a batch can have, its own among them, and the batch in their numbers.

    No other word has a part in it. There are as many for every batch of a size, so that one engine serves them all.
    """
    emission = parameters["emission"]
    if words.numel() >= emission.shape[1]:
        return parameters, words
    absent = torch.ones(emission.shape[1], dtype=torch.bool, device=words.device).index_fill_(0, words.flatten(), False)
    kept = absent.sort(stable=True).indices[: words.numel()].sort().values
    return {**parameters, "emission": emission.index_select(1, kept)}, torch.searchsorted(kept, words)


def _over_states(parameters: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The factors of `zoo.factored_pcfg`."""
    root, head, left, right, emission = (parameters[name] for name in ("root", "head", "left", "right", "emission"))
    return {"root": root, "U": head.T, "V": left, "W": right, "emission": emission}


def _over_ranks(parameters: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tables that `to_rank_space` computes, as one product and without compiling the grammar again."""
    root, head, left, right, emission = (parameters[name] for name in ("root", "head", "left", "right", "emission"))
    above, below = torch.cat([left, right, root[None]]), torch.cat([head, emission], 1)
    tables = (above @ below).split([len(left), len(right), 1])
    (h, j), (i, k), (l, words) = (table.split([head.shape[1], emission.shape[1]], 1) for table in tables)
    return {"H": h, "I": i, "J": j, "K": k, "L": l[0], "root*emission": words[0]}


def _same_tables(tables: Mapping[str, Tensor], compiled: Mapping[str, Tensor]) -> None:
    """Raises RankspaceError unless both name the same tables and agree in them."""
    same = tables.keys() == compiled.keys() and all(
        torch.allclose(table, compiled[name], rtol=TOLERANCE, atol=0) for name, table in tables.items()
    )
    if not same:
        raise RankspaceError("bench fgg: the tables differ from those of to_rank_space; nothing was timed.")


def _slopes(log_z: Callable[[Mapping[str, Tensor]], Tensor], leaves: Mapping[str, Tensor]) -> tuple[Tensor, ...]:
    """Forward and backward: the gradient of the sum of log Z with respect to each parameter."""
    return torch.autograd.grad(log_z(leaves).sum(), list(leaves.values()))


def _counts(engine: GenericEngine, sizes: Sizes) -> list[dict[str, int]]:
    """Contractions against items: they grow with levels, not with items."""
    rows = []
    for batch in (1, sizes.batch):
        for length in (sizes.length // 4, sizes.length // 2, sizes.length):
            found = engine.statistics(torch.zeros(batch, length, dtype=torch.int64, device=engine.fgg.device))
            rows.append({"batch": batch, "length": length, **found._asdict()})
    return rows


def _agree(name: str, result: Tensor, other: str, expected: Tensor) -> None:
    error = ((result.double() - expected.double()).abs() / expected.double().abs()).max().item()
    if not error <= TOLERANCE:
        raise RankspaceError(f"bench fgg: {name} and {other} differ by {error:.1e} in log Z; nothing was timed.")


def _agree_in_gradients(
    name: str, result: Sequence[Tensor], other: str, expected: Sequence[Tensor], leaves: Mapping[str, Tensor]
) -> None:
    """Compares expected counts, parameter times derivative, which unlike derivatives are on one scale."""
    for (label, leaf), left, right in zip(leaves.items(), result, expected, strict=True):
        counts, wanted = (leaf.detach().double() * gradient.double() for gradient in (left, right))
        error = ((counts - wanted).abs().max() / wanted.abs().max()).item()
        if not error <= GRADIENT_TOLERANCE:
            raise RankspaceError(
                f"bench fgg: {name} and {other} differ by {error:.1e} in the gradient of {label}; nothing was timed."
            )


def distribution(generator: torch.Generator, *shape: int) -> Tensor:
    """Random conditional distributions whose last axis sums to one."""
    return torch.randn(shape, generator=generator).softmax(-1)


def inside_by_hand(
    words: Int[Tensor, "batch length"],
    root: Float[Tensor, "symbol"],
    rule: Float[Tensor, "symbol symbol symbol"],
    emission: Float[Tensor, "symbol vocab"],
) -> Float[Tensor, "batch"]:
    """The inside algorithm of a dense PCFG, all spans of a width at once, in scaled linear space.

    What one would write for this model and sentences of equal length; gradients by autograd.
    """
    batch, length = words.shape
    matrix = rule.reshape(len(root), -1)
    inside = [emission.T[words]]  # inside[w - 1]: [batch, begin, symbol] of the spans of width w, scaled
    scale = [torch.zeros(batch, length, dtype=torch.float64, device=words.device)]
    for width in range(2, length + 1):
        count = length - width + 1
        left = torch.stack([inside[k - 1][:, :count] for k in range(1, width)], 2)
        right = torch.stack([inside[width - k - 1][:, k : k + count] for k in range(1, width)], 2)
        weight = torch.stack(
            [scale[k - 1][:, :count] + scale[width - k - 1][:, k : k + count] for k in range(1, width)], 2
        )
        top = weight.amax(-1)
        left = left * (weight - top[..., None]).exp().to(left.dtype)[..., None]
        pairs = torch.einsum("bikx,biky->bixy", left, right).reshape(batch, count, -1)
        found = pairs @ matrix.T
        largest = found.detach().amax(-1)
        inside.append(found / largest[..., None])
        scale.append(top + largest.double().log())
    return ((inside[-1][:, 0] @ root).double().log() + scale[-1][:, 0]).to(root.dtype)
