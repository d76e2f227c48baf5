"""The generic engine: log Z of any acyclic FGG, or of one grammar over a ragged batch of sentences.

All items of one topological level with the same rule shape are evaluated as one batched contraction. For the PCFG this
is width-by-width parallelism; nothing in here knows of widths.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from rankspace.errors import GrammarError, RankspaceError, ShapeError
from rankspace.fgg import FGG
from rankspace.fgg.observation import Reading, word_label
from rankspace.fgg.semirings import Log, Support
from rankspace.inference.generic.linear_pass import Chart, Weights, differentiate, evaluate_group, run_linear
from rankspace.inference.generic.program import Ends, Group, Program, Rows, build_program
from rankspace.inference.generic.scaled import ZERO, times_power, too_low
from rankspace.inference.generic.semiring_pass import run_semiring
from rankspace.inference.generic.sketch import Sketch, sketch_grammar, sketch_sentence

OPEN = -1  # a word that is not observed but summed over
MOST_PROGRAMS = 256  # kept by an engine; the oldest goes first


class Statistics(NamedTuple):
    """What a program looks like: sizes that the time of a run depends on."""

    levels: int
    shapes: int
    groups: int
    contractions: int  # batched contractions in a forward pass: messages, meetings and conclusions
    items: int
    applications: int
    cost: int  # operations and, counted as such, numbers moved, as the planner estimates them


class GenericEngine:
    """log Z of an FGG for batches of sentences of any lengths; keeps the programs of batches it has seen.

    The result is exact: impossible sentences give -inf with zero gradient, and sentences whose numbers leave the range
    of the dtype (found out, not guessed) are done again in log space. Weights that are exactly zero get gradient zero,
    as in `sum_product(fgg, "log")`. First derivatives only.
    """

    def __init__(self, fgg: FGG, label: str | None = None) -> None:
        _check_start(fgg)
        self.fgg = fgg
        self.reading = Reading(fgg, label or word_label(fgg))
        self.sizes = {name: len(domain) for name, domain in fgg.domains.items()}
        self._sketches: dict[tuple[int, tuple[int, ...]], Sketch | None] = {}
        self._programs: dict[tuple[object, ...], Program] = {}

    def encode(self, sentences: Sequence[Sequence[object]]) -> tuple[Int[Tensor, "batch length"], Int[Tensor, "batch"]]:
        """Words and lengths of sentences given as domain values; None leaves a word open."""
        lengths = [len(sentence) for sentence in sentences]
        words = torch.zeros(len(sentences), max(lengths, default=0), dtype=torch.int64)
        for row, sentence in zip(words, sentences, strict=True):
            indices = [OPEN if index is None else index for index in self.reading.indices(sentence)]
            row[: len(sentence)] = torch.tensor(indices, dtype=torch.int64)
        return words.to(self.fgg.device), torch.tensor(lengths, dtype=torch.int64, device=self.fgg.device)

    def log_z(
        self,
        words: Int[Tensor, "batch length"],
        lengths: Int[Tensor, "batch"] | None = None,
        factors: Mapping[str, Tensor] | None = None,
    ) -> Float[Tensor, "batch"]:
        """log Z of each sentence; differentiable in the factors of the FGG, or in those given in their place.

        Padding is never read. -1 marks a word that is summed over. Memory is one number per entry of each item and
        message, plus O(1) groups; time is that of `statistics(words, lengths).cost`, and about twice that backward.
        """
        fgg = self.fgg.with_factors(factors) if factors else self.fgg
        _check_dtype(fgg)
        sentences = _sentences(words.to(fgg.device), lengths, fgg.size(self.reading.label))
        # by length, so that permuted batches share their programs
        order = sorted(range(len(sentences)), key=lambda b: len(sentences[b]))
        ordered = [sentences[b] for b in order]
        result, low = _run(self._program(ordered), _joined(ordered), fgg.tensors)
        result = self._redo(result, low, ordered, fgg.tensors)
        return result[torch.tensor(order, device=fgg.device).argsort()] if order else result

    def statistics(self, words: Int[Tensor, "batch length"], lengths: Int[Tensor, "batch"] | None = None) -> Statistics:
        """Counts of the program that `log_z` would run."""
        return _statistics(self._program(_sentences(words, lengths, self.fgg.size(self.reading.label))))

    def _redo(self, result: Tensor, low: Tensor, sentences: Sequence[Tensor], factors: Mapping[str, Tensor]) -> Tensor:
        """The result with the sentences that left the range of the dtype computed again in log space."""
        again = low.nonzero().reshape(-1)
        if not len(again):
            return result
        chosen = [sentences[b] for b in again.tolist()]
        redone = _in_log_space(self._program(chosen), factors, _joined(chosen))
        return result.index_put((again,), redone.to(result.dtype))

    def _program(self, sentences: Sequence[Tensor]) -> Program:
        keys = [(len(row), tuple((row == OPEN).nonzero().reshape(-1).tolist())) for row in sentences]
        device = self.fgg.device
        name = (device, *keys)
        if name not in self._programs:
            while len(self._programs) >= MOST_PROGRAMS:
                del self._programs[next(iter(self._programs))]
            for key in keys:
                if key not in self._sketches:
                    self._sketches[key] = sketch_sentence(self.reading, *key)
            sketches = [self._sketches[key] for key in keys]
            self._programs[name] = build_program(sketches, [length for length, _ in keys], self.sizes).to(device)
        return self._programs[name]


def log_z(fgg: FGG) -> Float[Tensor, ""]:
    """log Z of a conjoined, acyclic FGG, with all of its items of one level and shape evaluated at once.

    Equals `sum_product(fgg, "log")`. Raises GrammarError if the grammar is recursive.
    """
    _check_start(fgg)
    _check_dtype(fgg)
    program, words = _conjoined_program(fgg)
    used = {label for level in program.levels for group in level.groups for label in group.plan.all_labels}
    tensors = {label: factor for label, factor in fgg.tensors.items() if label in used}
    result, low = _run(program, words, tensors)
    if bool(low.any()):
        result = _in_log_space(program, tensors, words).to(result.dtype)
    return result[0]


def _check_dtype(fgg: FGG) -> None:
    if fgg.dtype not in (torch.float32, torch.float64):
        raise GrammarError(f"generic engine: factors are {fgg.dtype}; give them as float32 or float64.")


def _joined(sentences: Sequence[Tensor]) -> Tensor:
    """The words of all sentences, one after the other."""
    return torch.cat([*sentences]) if sentences else torch.zeros(0, dtype=torch.int64)


def _check_start(fgg: FGG) -> None:
    if fgg.grammar.nonterminals[fgg.start]:
        raise GrammarError(f"generic engine: the start symbol {fgg.start!r} has endpoints; add a rule that sums them.")


def statistics(fgg: FGG) -> Statistics:
    """Counts of the program that `log_z(fgg)` runs."""
    return _statistics(_conjoined_program(fgg)[0])


def _conjoined_program(fgg: FGG) -> tuple[Program, Tensor]:
    sketch, words = sketch_grammar(fgg)
    sizes = {name: len(domain) for name, domain in fgg.domains.items()}
    program = build_program([sketch], [len(words)], sizes).to(fgg.device)
    return program, torch.tensor(words, dtype=torch.int64, device=fgg.device)


def _run(program: Program, words: Tensor, factors: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
    if not factors:  # a grammar without factors has weights all the same: ones
        factors = {"1": torch.ones(1)}
    result, low = _LogZ.apply(program, words, tuple(factors), *factors.values())  # type: ignore[no-untyped-call]
    return result, low


class _LogZ(torch.autograd.Function):
    """log Z [sentence] of a program and, beside it, which sentences must be computed in log space."""

    @staticmethod
    def forward(ctx: Any, program: Program, words: Tensor, labels: tuple[str, ...], *tensors: Tensor) -> Any:
        weights = Weights(dict(zip(labels, tensors, strict=True)))
        chart = run_linear(program, weights, words)
        mantissa, exponent = _roots(program, chart, weights.like)
        log = torch.where(mantissa > 0, mantissa.double().log() + exponent.double() * math.log(2), -torch.inf)
        low = _too_low(program, chart, weights.like) | _lost(program, chart, weights, words) | _narrowed(weights)
        ctx.program, ctx.weights, ctx.chart, ctx.words, ctx.labels = program, weights, chart, words, labels
        ctx.mark_non_differentiable(low)
        return log.to(mantissa.dtype), low

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, _: Tensor) -> Any:
        if torch.is_grad_enabled():  # create_graph=True
            raise RankspaceError("log_z: second derivatives are not available; use sum_product(fgg, 'real').")
        program, weights, chart = ctx.program, ctx.weights, ctx.chart
        mantissa, _ = _roots(program, chart, weights.like)
        slope = torch.where(mantissa > 0, gradient / torch.where(mantissa > 0, mantissa, 1), 0)
        roots = {ends: torch.zeros_like(table.mantissa) for ends, table in chart.items.items()}
        for b, root in enumerate(program.roots):
            if root is not None:
                roots[root[0]][root[1]] = slope[b]
        found = differentiate(program, chart, weights, ctx.words, roots)
        return None, None, None, *(_unscaled(found[label], weights, label) for label in ctx.labels)


def _unscaled(gradient: Tensor, weights: Weights, label: str) -> Tensor:
    """The derivative with respect to a factor, from that with respect to its mantissa; zero at weights of zero."""
    return times_power(gradient * weights.positive[label], -weights.exponent[label])


def _roots(program: Program, chart: Chart, like: Tensor) -> tuple[Tensor, Tensor]:
    """Mantissa and exponent of each sentence; zero where nothing can be derived."""
    mantissa = torch.zeros(len(program.roots), dtype=like.dtype, device=like.device)
    exponent = torch.full((len(program.roots),), ZERO, dtype=torch.int32, device=like.device)
    for b, root in enumerate(program.roots):
        if root is not None:
            mantissa[b] = chart.items[root[0]].mantissa[root[1]]
            exponent[b] = chart.items[root[0]].exponent[root[1]]
    return mantissa, exponent


def _narrowed(weights: Weights) -> Tensor:
    """Whether some factor spans more than the range of its dtype, so that its mantissa lost entries."""
    lost = [(weights.positive[label] & (mantissa == 0)).any() for label, mantissa in weights.mantissa.items()]
    return torch.stack(lost).any()


def _too_low(program: Program, chart: Chart, like: Tensor) -> Tensor:
    """Sentences with an item so low as a whole that rounding no longer explains what was lost."""
    result = torch.zeros(len(program.roots), dtype=torch.bool, device=like.device)
    if chart.tops and bool(too_low(torch.cat([top for _, _, top in chart.tops])).any()):
        for ends, rows, top in chart.tops:
            result[program.sentence_of[ends][rows.numbers[too_low(top)]]] = True
    return result


def _lost(program: Program, chart: Chart, weights: Weights, words: Tensor) -> Tensor:
    """Sentences with a zero, in some group or message, that should not be there."""
    lost = torch.zeros(len(program.roots), dtype=torch.bool, device=words.device)
    tables = [*(table.mantissa for table in chart.items.values()), *chart.messages.values()]
    if not any(bool((table == 0).any()) for table in tables) and not any(map(bool, chart.holes)):
        return lost

    def mark(ends: Ends, rows: Rows, values: Tensor, possible: Tensor) -> None:
        gone = ((values == 0) & (possible > 0)).reshape(len(values), -1).any(1)
        lost[program.sentence_of[ends][rows.numbers[gone]]] = True

    def compare(group: Group, possible: Tensor) -> None:
        mark(group.ends, group.rows, evaluate_group(group, chart, weights, words)[0].mantissa, possible)

    support = Support()
    possible = {label: positive.to(weights.like.dtype) for label, positive in weights.positive.items()}
    found = run_semiring(program, support, possible, words, compare)
    for ends, table in chart.items.items():
        mark(ends, program.all_rows(ends), table.mantissa, found.items[ends])
    for level in program.levels:
        for message, rows, _ in level.passing:
            mark(message.ends, rows, rows.take(chart.messages[message]), rows.take(found.messages[message]))
    return lost


def _in_log_space(program: Program, factors: Mapping[str, Tensor], words: Tensor) -> Tensor:
    log = Log()
    factors = factors or {"1": torch.ones(1)}
    tables = run_semiring(program, log, {label: log.lift(factor.double()) for label, factor in factors.items()}, words)
    impossible = log.zeros((), next(iter(factors.values())).double())
    return torch.stack([impossible if root is None else tables.items[root[0]][root[1]] for root in program.roots])


def _sentences(words: Tensor, lengths: Tensor | None, size: int) -> list[Tensor]:
    """The words of each sentence without its padding, checked."""
    if words.dim() != 2 or words.is_floating_point():
        raise ShapeError(
            f"log_z: words are {words.dtype} of shape {tuple(words.shape)}; give integers [batch, length]."
        )
    batch, longest = words.shape
    counts = [longest] * batch if lengths is None else lengths.tolist()
    if len(counts) != batch or any(not 0 <= count <= longest for count in counts):
        raise ShapeError(f"log_z: lengths {counts[:8]} do not fit words of shape ({batch}, {longest}).")
    rows = [row[:count] for row, count in zip(words, counts, strict=True)]
    for b, row in enumerate(rows):
        if len(row) and not bool(((row >= OPEN) & (row < size)).all()):
            raise ShapeError(f"log_z: sentence {b} has a word outside of 0..{size - 1} (and -1 for an open one).")
    return rows


def _statistics(program: Program) -> Statistics:
    groups = [group for level in program.levels for group in level.groups]
    plans = {id(group.plan): group.plan for group in groups}
    conclusions = sum(group.last is not None for group in groups)
    passing = sum(len(level.passing) for level in program.levels)
    return Statistics(
        levels=len(program.levels),
        shapes=len(plans),
        groups=len(groups),
        contractions=len(groups) + conclusions + passing,
        items=program.num_items,
        applications=program.num_applications,
        cost=sum(plan.cost for plan in plans.values()),
    )
