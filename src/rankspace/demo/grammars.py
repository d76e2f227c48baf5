"""Rank space at a size that brute force can check.

Defines an HMM and a PCFG as factor graph grammars, compiles both to rank space, shows that nothing changes but the
number of operations, and draws a rule of each.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from rankspace.errors import RankspaceError
from rankspace.fgg import FGG, enumerate_derivations, observe, sum_product, zoo
from rankspace.inference import GenericEngine
from rankspace.lowrank import CPD, Plan, RankSpace, plan, to_rank_space
from rankspace.viz import draw_rules

WORDS = ("the", "old", "dog", "cat", "sees", "sleeps")
SENTENCES = ("the dog sleeps", "the cat sees", "dog sees cat")
STATES, RANK = 3, 2
TOLERANCE = 1e-12  # relative, in float64: a few hundred products and sums


class Row(NamedTuple):
    """The probability of a sentence, four ways."""

    sentence: str
    brute_force: float
    original: float
    rank_space: float
    engine: float


class Model(NamedTuple):
    """A model of the demonstration: its grammar, the same in rank space, what they say, and what they cost."""

    name: str
    original: FGG
    rank_space: RankSpace
    rows: list[Row]
    plans: list[Plan]
    pictures: list[Path]


def check_grammars(output: Path, tick: Callable[[str], None] = lambda _: None) -> list[Model]:
    """Everything, with pictures in the folder `output`; `tick` is told what is done next.

    Raises RankspaceError if two ways to compute a probability disagree.
    """
    output.mkdir(parents=True, exist_ok=True)
    generator = torch.Generator().manual_seed(0)
    return [_model(name, *build(generator), output, tick) for name, build in (("HMM", _hmm), ("PCFG", _pcfg))]


def _hmm(generator: torch.Generator) -> tuple[FGG, dict[str, CPD]]:
    """Figure 5a: p(T2, O | T1) = sum_q U[q, T1] V[q, T2] W[q, O]; the chain ends with probability 0.2."""
    model = zoo.factored_hmm(
        start=_distribution(generator, STATES),
        state_to_rank=0.8 * _distribution(generator, STATES, RANK),
        rank_to_state=_distribution(generator, RANK, STATES),
        rank_emission=_distribution(generator, RANK, len(WORDS)),
        end=torch.full((STATES,), 0.2, dtype=torch.float64),
    )
    return model, {}


def _pcfg(generator: torch.Generator) -> tuple[FGG, dict[str, CPD]]:
    """Figure 1b with p(A -> B C) = sum_q U[q, A] V[q, B] W[q, C]; a symbol emits a word three times out of five."""
    rule = CPD(
        (
            0.4 * _distribution(generator, STATES, RANK).T,
            _distribution(generator, RANK, STATES),
            _distribution(generator, RANK, STATES),
        )
    )
    emission = 0.6 * _distribution(generator, STATES, len(WORDS))
    return zoo.pcfg(_distribution(generator, STATES), rule.reconstruct(), emission), {"rule": rule}


def _model(name: str, original: FGG, cpds: dict[str, CPD], output: Path, tick: Callable[[str], None]) -> Model:
    tick(f"{name}: compiling to rank space")
    ranked = to_rank_space(original, cpds)
    rows = []
    for sentence in SENTENCES:
        tick(f"{name}: {sentence}")
        rows.append(_row(sentence, original, ranked))
    tick(f"{name}: drawing")
    pictures = [
        _draw(original, output / f"{name.lower()}.svg", "pi_2" if name == "HMM" else "pi_6"),
        _draw(ranked, output / f"{name.lower()}-rank-space.svg", "pi_1"),
    ]
    return Model(name, original, ranked, rows, list(_plans(name)), pictures)


def _row(sentence: str, original: FGG, ranked: RankSpace) -> Row:
    words = [WORDS.index(word) for word in sentence.split()]
    engine = GenericEngine(ranked)
    row = Row(
        sentence,
        _brute_force(observe(original, words)),
        sum_product(observe(original, words)).item(),
        sum_product(observe(ranked, words)).item(),
        engine.log_z(*engine.encode([words])).exp().item(),
    )
    for value in row[2:]:
        if abs(value - row.brute_force) > TOLERANCE * row.brute_force:
            raise RankspaceError(f"demo: {sentence!r} has probability {row.brute_force} by brute force but {value}.")
    return row


def _brute_force(fgg: FGG) -> float:
    """Every derivation, every assignment of its variables, one after the other."""
    return sum(d.factor_graph(fgg).sum_by_enumeration().item() for d in enumerate_derivations(fgg))


def _plans(name: str) -> Iterator[Plan]:
    """Operation counts of both orders, for the demonstration and for the paper's sizes."""
    if name == "HMM":
        yield plan("chain", states=STATES, rank=RANK, vocabulary=len(WORDS), length=3, batch=len(SENTENCES))
        yield plan("chain", states=2**15, rank=4096, vocabulary=10_000, length=64, batch=256)
    else:
        yield plan("tree", states=STATES, rank=RANK, vocabulary=len(WORDS), length=3, batch=len(SENTENCES))
        sizes = {"nonterminals": 4500, "preterminals": 9000, "rank": 1000}
        yield plan("tree", states=13_500, **sizes, vocabulary=10_000, length=40, batch=16)


def _draw(fgg: FGG, path: Path, rule: str) -> Path:
    draw_rules(fgg, path, rules=[rule])
    return path


def _distribution(generator: torch.Generator, *shape: int) -> Tensor:
    """Random conditional distributions whose last axis sums to one."""
    return torch.rand(shape, generator=generator, dtype=torch.float64).softmax(-1)
