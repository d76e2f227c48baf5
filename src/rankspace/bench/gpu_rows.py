"""The rows of `rankspace bench gpu`: which training steps are measured, what they must reach, and what peers take.

A step is zero_grad, forward and backward of the mean NLL with the networks, on random words. Peers' figures are those
of their published code on an H200, in tf32 where that is what makes it fastest.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from rankspace.errors import RankspaceError
from rankspace.inference.links import Precision

VOCABULARY = 10_000


@dataclass(frozen=True)
class Peer:
    """The fastest of the implementations that others published, at the sizes of a row."""

    name: str
    milliseconds: float
    gigabytes: float


@dataclass(frozen=True)
class Row:
    """A training step; `sizes` for people. Limits are what it must reach, where something is asked for."""

    name: str
    model: str
    settings: Mapping[str, int]
    sizes: str
    lengths: tuple[int, ...]
    precision: Precision
    peer: Peer | None = None
    limit_ms: float | None = None
    limit_gb: float | None = None
    peaked: bool = False  # whether it must be right with logits times 6 as well
    vocabulary: int = VOCABULARY

    @property
    def batch(self) -> str:
        """The sentences, for people."""
        shortest, longest = min(self.lengths), max(self.lengths)
        if shortest == longest:
            return f"{len(self.lengths)} x {longest}"
        return f"{len(self.lengths)} of {shortest}..{longest}"


def spread_lengths(num: int, shortest: int = 5, longest: int = 40) -> tuple[int, ...]:
    """Lengths from the shortest to the longest, equally far apart."""
    return tuple(shortest + (longest - shortest) * place // max(num - 1, 1) for place in range(num))


PAPER_PCFG = {"nonterminals": 4500, "preterminals": 9000, "rank": 1000, "size": 512}
BATCH, HMM_BATCH = (40,) * 16, (64,) * 16
OF_PCFG, OF_HMM = "rank-space PCFG, the paper's authors", "rank-space HMM, the paper's authors"

RANK_PCFG = Row(
    name="rank-pcfg",
    model="rank-pcfg",
    settings=PAPER_PCFG,
    sizes="NT 4500, PT 9000, r 1000",
    lengths=BATCH,
    precision="medium",
    peer=Peer(f"{OF_PCFG}, tf32", 105.0, 4.7),
    limit_ms=6.5,
    limit_gb=1.5,
)
SIMPLE_PCFG = Row(
    name="simple-pcfg",
    model="simple-pcfg",
    settings={"nonterminals": 4096, "preterminals": 8192, "size": 512},
    sizes="NT 4096, PT 8192",
    lengths=BATCH,
    precision="medium",
    peer=Peer("Simple PCFG (FlashInside), its authors, tf32", 109.0, 4.4),
    limit_ms=11.0,
    limit_gb=2.5,
)
RANK_HMM = Row(
    name="rank-hmm",
    model="rank-hmm",
    settings={"states": 16384, "rank": 4096, "size": 256},
    sizes="m 16384, r 4096",
    lengths=(32,) * 8,
    precision="medium",
    peer=Peer(f"{OF_HMM}, tf32", 63.0, 3.5),
    limit_ms=4.0,
    limit_gb=2.5,
)
LARGE_HMM = replace(
    RANK_HMM,
    name="rank-hmm-32768",
    settings={"states": 32768, "rank": 4096, "size": 256},
    sizes="m 32768, r 4096",
    lengths=HMM_BATCH,
    peer=Peer(f"{OF_HMM}, tf32", 111.0, 6.6),
    limit_ms=9.0,
    limit_gb=4.5,
)
LHMM = replace(LARGE_HMM, name="lhmm", model="lhmm", peer=Peer("LHMM, its authors, tf32", 248.0, 7.9), limit_ms=30.0)
N_PCFG = Row(
    name="n-pcfg",
    model="n-pcfg",
    settings={"nonterminals": 30, "preterminals": 60, "size": 512},
    sizes="NT 30, PT 60",
    lengths=BATCH,
    precision="high",
    peer=Peer("C-PCFG, published with TN-PCFG, fp32", 190.0, 1.2),
    limit_ms=8.0,
    limit_gb=1.0,
)
TN_PCFG = Row(
    name="tn-pcfg",
    model="tn-pcfg",
    settings={"nonterminals": 250, "preterminals": 500, "rank": 500, "size": 512},
    sizes="NT 250, PT 500, r 500",
    lengths=BATCH,
    precision="medium",
    peer=Peer("TN-PCFG, its authors, fp32", 201.0, 6.6),
    limit_ms=5.0,
    limit_gb=1.0,
)
LONG = replace(RANK_PCFG, peer=None, limit_ms=None, limit_gb=20.0)

ROWS: tuple[Row, ...] = (
    RANK_PCFG,
    replace(
        RANK_PCFG,
        name="rank-pcfg-64",
        lengths=(40,) * 64,
        peer=Peer(f"{OF_PCFG}, tf32", 234.0, 16.1),
        limit_ms=12.0,
        limit_gb=3.0,
    ),
    replace(RANK_PCFG, name="rank-pcfg-ragged", lengths=spread_lengths(16), peer=None),
    SIMPLE_PCFG,
    RANK_HMM,
    LARGE_HMM,
    LHMM,
    N_PCFG,
    TN_PCFG,
    replace(
        RANK_PCFG,
        name="rank-pcfg-highest",
        precision="highest",
        peer=Peer(f"{OF_PCFG}, fp32", 133.0, 4.7),
        limit_ms=20.0,
        limit_gb=None,
        peaked=True,
    ),
    replace(
        LARGE_HMM,
        name="rank-hmm-highest",
        precision="highest",
        peer=Peer(f"{OF_HMM}, fp32", 180.0, 6.6),
        limit_ms=60.0,
        limit_gb=None,
        peaked=True,
    ),
    replace(LONG, name="length-400", lengths=(400,)),
    replace(LONG, name="length-200", lengths=(200,) * 16),
)
PARSE = "parse"
TRAINING = {"train-rank-pcfg": RANK_PCFG, "train-rank-hmm": RANK_HMM}
NAMES = (*(row.name for row in ROWS), PARSE, *TRAINING)

SWEEPS: Mapping[str, tuple[int, ...]] = {
    "length": (10, 20, 40, 80),
    "rank": (250, 500, 1000, 2000),
    "batch": (4, 16, 64),
}


def swept(varied: str, value: int) -> Row:
    """The step of `rank-pcfg` with one of its sizes changed."""
    row = replace(RANK_PCFG, name=f"{varied} {value}", peer=None, limit_ms=None, limit_gb=None)
    if varied == "rank":
        return replace(row, settings={**PAPER_PCFG, "rank": value}, sizes=f"NT 4500, PT 9000, r {value}")
    return replace(row, lengths=(value,) * 16 if varied == "length" else (40,) * value)


def chosen(names: Sequence[str]) -> list[str]:
    """The names of rows that are measured, in the order of the table: those given, or all."""
    for name in names:
        if name not in NAMES:
            raise RankspaceError(f"bench gpu: there is no row {name!r}; there are {', '.join(NAMES)}.")
    return [name for name in NAMES if not names or name in names]


def small(row: Row) -> Row:
    """A row that takes seconds anywhere: it says nothing of speed, so it is compared with nothing."""
    settings = {name: 8 if name == "size" else 5 + 2 * place for place, name in enumerate(row.settings)}
    lengths = tuple(min(length, 3 + place) for place, length in enumerate(row.lengths[:3]))
    return replace(
        row, settings=settings, sizes="small", lengths=lengths, peer=None, limit_ms=None, limit_gb=None, vocabulary=13
    )
