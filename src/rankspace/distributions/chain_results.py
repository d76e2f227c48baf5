"""What the queries on chains answer with."""

from collections.abc import Sequence
from typing import NamedTuple

from jaxtyping import Bool, Float, Int
from torch import Tensor

from rankspace.inference.ragged import Ragged


class ChainPath(NamedTuple):
    """Hidden paths of one sentence of n words. `*num` is one axis for samples, and absent for a best path.

    In an HMM and an LHMM `states[t]` emits word t, and `ranks[t]`, n - 1 of them, leads from `states[t]` to
    `states[t + 1]`. In a RankSpaceHMM `ranks[t]` emits word t and `states[t]` follows it; `first` is the state before.
    In an HSMM `states[t]` emits word t, and `ends[t]` says whether a segment ends with it.
    """

    states: Int[Tensor, "*num length"]
    log_joint: Float[Tensor, "*num"]  # log p(words, states, ranks)
    ranks: Int[Tensor, "*num _"] | None = None
    first: Int[Tensor, "*num"] | None = None
    ends: Bool[Tensor, "*num length"] | None = None


class PathTables(NamedTuple):
    """The same for all sentences, rows as in the layout; see `split_paths`."""

    states: Int[Tensor, "token num"]
    log_joint: Float[Tensor, "batch num"]  # by place
    ranks: Int[Tensor, "token num"] | None = None
    first: Int[Tensor, "batch num"] | None = None  # by place


class ChainSample(NamedTuple):
    """Sentences drawn from a chain with their hidden paths (see `ChainPath`), -1 beyond their lengths.

    `lost_mass` is p(sentence longer than the limit), the sum over all such sentences: the chance of being `cut`. It is
    zero without an end-of-sentence word, where sentences have exactly the length asked for.
    """

    words: Int[Tensor, "num length"]
    lengths: Int[Tensor, "num"]
    states: Int[Tensor, "num length"]
    cut: Bool[Tensor, "num"]  # the limit came before the end of the sentence
    lost_mass: Float[Tensor, ""]
    ranks: Int[Tensor, "num length"] | None = None
    first: Int[Tensor, "num"] | None = None
    ends: Bool[Tensor, "num length"] | None = None


def split_paths(
    layout: Ragged, tables: PathTables, possible: Bool[Tensor, "batch"], num_ranks_less: int = 0
) -> list[ChainPath | None]:
    """One `ChainPath` for each sentence in the order of the caller, None for an impossible one (by place).

    Sentences of n words have n - num_ranks_less ranks, if any.
    """
    states = layout.unpack(tables.states, -1)
    ranks = None if tables.ranks is None else layout.unpack(tables.ranks, -1)
    found: list[ChainPath | None] = []
    for sentence, place in enumerate(layout.place_of.tolist()):
        length = layout.lengths[sentence]
        some = None if ranks is None else ranks[sentence, : max(0, length - num_ranks_less)].T
        first = None if tables.first is None else tables.first[place]
        path = ChainPath(states[sentence, :length].T, tables.log_joint[place], some, first)
        found.append(path if bool(possible[place]) else None)
    return found


def only(paths: Sequence[ChainPath | None]) -> list[ChainPath | None]:
    """Paths without their axis of samples, of which there is one."""
    return [None if path is None else _first_of(path) for path in paths]


def _first_of(path: ChainPath) -> ChainPath:
    ranks, first, ends = (None if field is None else field[0] for field in (path.ranks, path.first, path.ends))
    return ChainPath(path.states[0], path.log_joint[0], ranks, first, ends)
