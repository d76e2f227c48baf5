"""Chain models as factor graph grammars."""

import torch
from jaxtyping import Float
from torch import Tensor

from rankspace.fgg.factor_graph_grammar import FGG
from rankspace.fgg.grammar import Rule

# Names of the rank-space tables (figure 5c) by the factors they are products of.
TABLES = {"start*U": "start", "V*U": "link", "W": "emission", "V*pi_3": "end", "V*end": "end"}


def hmm(
    start: Float[Tensor, "state"],
    transition: Float[Tensor, "state state"],
    emission: Float[Tensor, "state vocab"],
    end: Float[Tensor, "state"],
) -> FGG:
    """Figure 1a. One-hot `start` and `end` at bos and eos give the figure to the letter."""
    return FGG.build(
        "S",
        [
            Rule.build("S", {"t1": "T"}, [("start", "t1"), ("X", "t1")], name="pi_1"),
            Rule.build(
                "X",
                {"t1": "T", "t2": "T", "o3": "O"},
                [("transition", "t1", "t2"), ("emission", "t2", "o3"), ("X", "t2")],
                external=["t1"],
                name="pi_2",
            ),
            Rule.build("X", {"t1": "T", "t2": "T"}, [("transition", "t1", "t2"), ("end", "t2")], ["t1"], name="pi_3"),
        ],
        domains={"T": len(start), "O": emission.shape[1]},
        factors={"start": start, "transition": transition, "emission": emission, "end": end},
        table_names=TABLES,
    )


def factored_hmm(
    start: Float[Tensor, "state"],
    state_to_rank: Float[Tensor, "state rank"],
    rank_to_state: Float[Tensor, "rank state"],
    rank_emission: Float[Tensor, "rank vocab"],
    end: Float[Tensor, "state"],
) -> FGG:
    """Figure 5a, right: transition and emission merged into one factor, decomposed around a rank node.

    The chain ends by a factor on its last state. U, V, W of the paper are transposed where needed to (rank, ...).
    """
    emit = ("W", "r2", "o4")
    return _around_ranks(emit, start, {"U": state_to_rank.T, "V": rank_to_state, "W": rank_emission}, end)


def lhmm(
    start: Float[Tensor, "state"],
    state_to_rank: Float[Tensor, "state rank"],
    rank_to_state: Float[Tensor, "rank state"],
    emission: Float[Tensor, "state vocab"],
    end: Float[Tensor, "state"],
) -> FGG:
    """LHMM: the transition alone is decomposed, emissions hang on states."""
    emit = ("emission", "t3", "o4")
    return _around_ranks(emit, start, {"U": state_to_rank.T, "V": rank_to_state, "emission": emission}, end)


def _around_ranks(emit: tuple[str, str, str], start: Tensor, factors: dict[str, Tensor], end: Tensor) -> FGG:
    """A chain whose transition passes through a rank node; a word hangs on that node or on the next state."""
    return FGG.build(
        "S",
        [
            Rule.build("S", {"t1": "T"}, [("start", "t1"), ("X", "t1")], name="pi_1"),
            Rule.build(
                "X",
                {"t1": "T", "r2": "R", "t3": "T", "o4": "O"},
                [("U", "r2", "t1"), ("V", "r2", "t3"), emit, ("X", "t3")],
                external=["t1"],
                name="pi_2",
            ),
            Rule.build("X", {"t1": "T"}, [("end", "t1")], ["t1"], name="pi_3"),
        ],
        domains={"T": len(start), "R": len(factors["V"]), "O": factors[emit[0]].shape[1]},
        factors={"start": start, **factors, "end": end},
        table_names=TABLES,
    )


def hsmm(
    start: Float[Tensor, "state"],
    transition: Float[Tensor, "state state"],
    duration: Float[Tensor, "state time"],
    emission: Float[Tensor, "state vocab"],
    end: Float[Tensor, "state"],
    product: bool = False,
) -> FGG:
    """Hidden semi-Markov model: a state is entered with a time left and emits one word per tick.

    `duration[t, d]` is the probability that state t emits d + 1 words. X(T) chooses the next state or ends; Y(T, D)
    emits a word and has D more to emit. The product form has one nonterminal over TD = (state, time left) instead.
    """
    states, times = duration.shape
    if product:
        return _hsmm_product(start, transition, duration, emission, end)
    tick = torch.diag(torch.ones(times - 1, dtype=start.dtype, device=start.device), -1)  # D to D - 1
    done = torch.zeros(times, dtype=start.dtype, device=start.device)
    done[0] = 1
    return FGG.build(
        "S",
        [
            Rule.build("S", {"t1": "T"}, [("start", "t1"), ("X", "t1")], name="begin"),
            Rule.build(
                "X",
                {"t1": "T", "t2": "T", "d2": "D"},
                [("transition", "t1", "t2"), ("duration", "t2", "d2"), ("Y", "t2", "d2")],
                external=["t1"],
                name="enter",
            ),
            Rule.build("X", {"t1": "T"}, [("end", "t1")], external=["t1"], name="end"),
            Rule.build(
                "Y",
                {"t1": "T", "d1": "D", "o2": "O", "d3": "D"},
                [("emission", "t1", "o2"), ("tick", "d1", "d3"), ("Y", "t1", "d3")],
                external=["t1", "d1"],
                name="stay",
            ),
            Rule.build(
                "Y",
                {"t1": "T", "d1": "D", "o2": "O"},
                [("emission", "t1", "o2"), ("done", "d1"), ("X", "t1")],
                external=["t1", "d1"],
                name="leave",
            ),
        ],
        domains={"T": states, "D": times, "O": emission.shape[1]},
        factors={
            "start": start,
            "transition": transition,
            "duration": duration,
            "emission": emission,
            "end": end,
            "tick": tick,
            "done": done,
        },
    )


def _hsmm_product(start: Tensor, transition: Tensor, duration: Tensor, emission: Tensor, end: Tensor) -> FGG:
    """The HSMM as an HMM over (state, time left); time left zero before a transition."""
    states, times = duration.shape
    move = transition.new_zeros(states, times, states, times)
    move[:, 0] = transition[:, :, None] * duration  # no time left: next state with its duration
    for state in range(states):
        for left in range(1, times):
            move[state, left, state, left - 1] = 1
    idle = torch.zeros(times, dtype=start.dtype, device=start.device)
    idle[0] = 1
    size = states * times
    return FGG.build(
        "S",
        [
            Rule.build("S", {"x1": "TD"}, [("start", "x1"), ("X", "x1")], name="begin"),
            Rule.build(
                "X",
                {"x1": "TD", "x2": "TD", "o3": "O"},
                [("move", "x1", "x2"), ("emission", "x2", "o3"), ("X", "x2")],
                external=["x1"],
                name="step",
            ),
            Rule.build("X", {"x1": "TD"}, [("end", "x1")], external=["x1"], name="end"),
        ],
        domains={"TD": [(t, d) for t in range(states) for d in range(times)], "O": emission.shape[1]},
        factors={
            "start": (start[:, None] * idle).reshape(size),
            "move": move.reshape(size, size),
            "emission": emission[:, None].expand(states, times, -1).reshape(size, -1),
            "end": (end[:, None] * idle).reshape(size),
        },
    )
