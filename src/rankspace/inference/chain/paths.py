"""Hidden paths of a sentence, from its last word to its first: the best one, or samples of the posterior.

Both go the same way: the last vector's place is chosen from the forward table, each earlier one given the next. What is
chosen from are log-weights; `best` takes the largest, a `Draw` draws in proportion to their exponentials.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from rankspace.inference.chain.log_space import LogRecursion
from rankspace.inference.logarithms import CHUNK, LogMap, LogProduct

Choose = Callable[[Tensor], Tensor]  # log-weights [..., choice] -> [...]


@dataclass(frozen=True)
class Trace:
    """Places chosen in the vector of each word, and in each space that lies on the way from it to the next word's."""

    vectors: Int[Tensor, "token num"]
    between: tuple[Int[Tensor, "token num"], ...]  # -1 at the last word of a sentence


def trace(
    recursion: LogRecursion,
    forward: Float[Tensor, "token size"],
    product: LogProduct,
    choose: Choose,
    num: int = 1,
    log_end: Float[Tensor, "size"] | None = None,
) -> Trace:
    """`num` paths through each sentence. `product` is what `forward` was made with; `log_end` weighs the last vector.

    Costs |tokens| times the links before the last, and a row of each link for each path and word.
    """
    layout, links = recursion.layout, recursion.log_links
    maps = [product(link) for link in links[:-1]]
    tables = [torch.full((layout.num_tokens, num), -1, device=layout.device) for _ in links]
    for time in range(layout.longest - 1, -1, -1):
        rows, alive = layout.step(time), layout.alive[time + 2]
        block = forward[rows]
        ended = block[alive:] if log_end is None else block[alive:] + log_end
        tables[0][rows][alive:] = choose_often(ended, num, choose)
        if not alive:
            continue
        place, stages = tables[0][layout.step(time + 1)], _stages(block[:alive], maps)
        for link, stage, table in zip(reversed(links), reversed(stages), reversed(tables), strict=True):
            place = choose_before(stage, link, place, choose)
            table[rows][:alive] = place
    return Trace(tables[0], tuple(tables[1:]))


def _stages(block: Tensor, maps: list[LogMap]) -> list[Tensor]:
    stages = [block]
    for move in maps:
        stages.append(move(stages[-1]))
    return stages


def choose_often(log_rows: Float[Tensor, "row in"], num: int, choose: Choose) -> Int[Tensor, "row num"]:
    """`num` choices from each row."""
    width = max(1, CHUNK // max(1, log_rows.numel()))
    counts = [min(width, num - begin) for begin in range(0, num, width)] or [0]
    return torch.cat([choose(log_rows[:, None].expand(-1, count, -1)) for count in counts], 1)


def choose_before(
    log_rows: Float[Tensor, "row in"],
    link: Float[Tensor, "out in"],
    place: Int[Tensor, "row num"],
    choose: Choose,
) -> Int[Tensor, "row num"]:
    """Where a path was before it passed a link, given where it is after: weights rows[in] * link[place, in]."""
    width = max(1, CHUNK // max(1, log_rows.numel()))
    return torch.cat([choose(log_rows[:, None] + link[part]) for part in place.split(width, 1)], 1)


def choose_between(
    first: Float[Tensor, "middle in"],
    second: Float[Tensor, "out middle"],
    before: Int[Tensor, "path"],
    after: Int[Tensor, "path"],
    choose: Choose,
) -> Int[Tensor, "path"]:
    """Where paths were between two links, given where they were before and after: first[., before] second[after, .]."""
    chunks = [pair.split(max(1, CHUNK // len(first))) for pair in (before, after)]
    chosen = [choose(first.T[one] + second[other]) for one, other in zip(*chunks, strict=True)]
    return torch.cat(chosen)


def best(log_weights: Float[Tensor, "*rows choice"]) -> Int[Tensor, "*rows"]:
    return log_weights.argmax(-1)


@dataclass(frozen=True)
class Draw:
    """Draws by inverse cumulative distribution, in float64; what has weight zero is never drawn, but NaN always is."""

    generator: torch.Generator | None

    def __call__(self, log_weights: Float[Tensor, "*rows choice"]) -> Int[Tensor, "*rows"]:
        log_weights = log_weights.double()
        top = log_weights.amax(-1, keepdim=True) if log_weights.numel() else log_weights[..., :1]
        weights = (log_weights - torch.where(top == -math.inf, 0, top)).exp()
        sums = weights.cumsum(-1)
        level = self._uniform(top) * sums[..., -1:]
        drawn = torch.searchsorted(sums, level, right=True).clamp(max=weights.shape[-1] - 1)
        allowed = (weights.gather(-1, drawn) > 0) & ~level.isnan()  # rounding can bring the level up to the whole sum
        return torch.where(allowed, drawn, weights.argmax(-1, keepdim=True)).squeeze(-1)

    def _uniform(self, like: Tensor) -> Tensor:
        device = self.generator.device if self.generator is not None else like.device
        return torch.rand(like.shape, dtype=torch.float64, generator=self.generator, device=device).to(like.device)


def max_product(log_matrix: Float[Tensor, "out in"]) -> LogMap:
    """rows -> the largest of rows[in] + matrix[out, in], through tables of limited size."""

    def apply(log_rows: Float[Tensor, "row in"]) -> Float[Tensor, "row out"]:
        parts = log_matrix.split(max(1, CHUNK // max(1, log_rows.numel())))
        return torch.cat([(log_rows[:, None] + part).amax(-1) for part in parts], 1)

    return apply


def log_weight(recursion: LogRecursion, trace: Trace) -> Float[Tensor, "batch num"]:
    """Log-weight of each path with its sentence's words, by place, in the recursion's own terms; 0 for an empty one.

    Needs the links that the trace went through.
    """
    layout, first = recursion.layout, recursion.layout.alive[1]
    rows = recursion.log_words[recursion.index].gather(1, trace.vectors)
    rows[:first] += recursion.log_start[trace.vectors[:first]]
    places = [table[layout.previous] for table in (trace.vectors, *trace.between)] + [trace.vectors[first:]]
    for link, before, after in zip(recursion.log_links, places[:-1], places[1:], strict=True):
        rows[first:] += link[after, before]
    return layout.unpack(rows).sum(1)[layout.sentence_at]
