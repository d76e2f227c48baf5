"""The generic engine: log Z of any acyclic FGG, or of one grammar over a ragged batch of sentences.

All items of one topological level with rule shapes of one kind are evaluated as one batched contraction. For the PCFG
this is width-by-width parallelism; nothing in here knows of widths.
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
from rankspace.inference.generic.layout import Sizes
from rankspace.inference.generic.linear_pass import Chart, Weights, evaluate_group, run_linear
from rankspace.inference.generic.outside import differentiate
from rankspace.inference.generic.plain_pass import run_plain
from rankspace.inference.generic.program import Group, Program, build_program
from rankspace.inference.generic.semiring_pass import run_semiring
from rankspace.inference.generic.sketch import Sketch, sketch_grammar, sketch_sentence
from rankspace.inference.scaled import ZERO, shifted, too_low

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

        Padding is never read. -1 marks a word that is summed over. Memory is one number per entry of each item, message
        and factor at a word, and one per rule application, plus O(1) groups; time is that of
        `statistics(words, lengths).cost`, and about twice that backward.
        """
        fgg = self.fgg.with_factors(factors) if factors else self.fgg
        _check_dtype(fgg)
        sentences = _sentences(words, lengths, fgg.size(self.reading.label))
        # by length, so that permuted batches share their programs
        order = sorted(range(len(sentences)), key=lambda b: len(sentences[b]))
        ordered = [sentences[b] for b in order]
        result, low = _run(self._program(ordered), _joined(ordered, fgg.device), fgg.tensors)
        result = self._redo(result, low, ordered, fgg.tensors)
        return result[torch.tensor(order, device=fgg.device).argsort()] if order else result

    def statistics(self, words: Int[Tensor, "batch length"], lengths: Int[Tensor, "batch"] | None = None) -> Statistics:
        """Counts of the program that `log_z` would run."""
        return _statistics(self._program(_sentences(words, lengths, self.fgg.size(self.reading.label))))

    def _redo(
        self, result: Tensor, low: Tensor, sentences: Sequence[Sequence[int]], factors: Mapping[str, Tensor]
    ) -> Tensor:
        """The result with the sentences that left the range of the dtype computed again in log space."""
        again = low.nonzero().reshape(-1)
        if not len(again):
            return result
        chosen = [sentences[b] for b in again.tolist()]
        redone = _in_log_space(self._program(chosen), factors, _joined(chosen, self.fgg.device))
        return result.index_put((again,), redone.to(result.dtype))

    def _program(self, sentences: Sequence[Sequence[int]]) -> Program:
        keys = [(len(row), tuple(i for i, word in enumerate(row) if word == OPEN)) for row in sentences]
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
    used = {label for plan in program.plans for label in plan.all_labels}
    tensors = {label: factor for label, factor in fgg.tensors.items() if label in used}
    result, low = _run(program, words, tensors)
    if bool(low.any()):
        result = _in_log_space(program, tensors, words).to(result.dtype)
    return result[0]


def _check_dtype(fgg: FGG) -> None:
    if fgg.dtype not in (torch.float32, torch.float64):
        raise GrammarError(f"generic engine: factors are {fgg.dtype}; give them as float32 or float64.")


def _joined(sentences: Sequence[Sequence[int]], device: torch.device) -> Tensor:
    """The words of all sentences, one after the other."""
    return torch.tensor([word for sentence in sentences for word in sentence], dtype=torch.int64, device=device)


def _check_start(fgg: FGG) -> None:
    if fgg.grammar.nonterminals[fgg.start]:
        raise GrammarError(f"generic engine: the start symbol {fgg.start!r} has endpoints; add a rule that sums them.")


def statistics(fgg: FGG) -> Statistics:
    """Counts of the program that `log_z(fgg)` runs."""
    return _statistics(_conjoined_program(fgg)[0])


def _conjoined_program(fgg: FGG) -> tuple[Program, Tensor]:
    sketch, words = sketch_grammar(fgg)
    sizes = {name: len(domain) for name, domain in fgg.domains.items()}
    program = build_program([sketch], [len(words)], sizes, conjoined=True).to(fgg.device)
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
        weights, chart, low, full = _evaluate(program, dict(zip(labels, tensors, strict=True)), words)
        mantissa, exponent = _roots(program, chart)
        log = torch.where(mantissa > 0, mantissa.double().log() + exponent.double() * math.log(2), -torch.inf)
        ctx.program, ctx.weights, ctx.chart, ctx.words, ctx.labels = program, weights, chart, words, labels
        ctx.full = full
        ctx.mark_non_differentiable(low)
        return log.to(mantissa.dtype), low

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, _: Tensor) -> Any:
        if torch.is_grad_enabled():  # create_graph=True
            raise RankspaceError("log_z: second derivatives are not available; use sum_product(fgg, 'real').")
        program, weights, chart = ctx.program, ctx.weights, ctx.chart
        mantissa = chart.tables[()].mantissa[program.roots, 0]
        slope = torch.where(mantissa > 0, gradient[program.possible] / torch.where(mantissa > 0, mantissa, 1), 0)
        found = differentiate(program, chart, weights, ctx.words, slope, ctx.full)
        return None, None, None, *(_unscaled(found[label], weights, label) for label in ctx.labels)


def _unscaled(gradient: Tensor, weights: Weights, label: str) -> Tensor:
    """The derivative with respect to a factor, from that with respect to its mantissa; zero at weights of zero."""
    return shifted(torch.where(weights.given[label] > 0, gradient, 0), -weights.shift[label])


def _roots(program: Program, chart: Chart) -> tuple[Tensor, Tensor]:
    """Mantissa and exponent of each sentence; zero where nothing can be derived."""
    table = chart.tables[()]
    mantissa = table.mantissa.new_zeros(program.num_sentences)
    exponent = table.exponent.new_full((program.num_sentences,), ZERO)
    mantissa[program.possible] = table.mantissa[program.roots, 0]
    exponent[program.possible] = table.exponent[program.roots]
    return mantissa, exponent


def _evaluate(program: Program, factors: Mapping[str, Tensor], words: Tensor) -> tuple[Weights, Chart, Tensor, bool]:
    """Weights and chart, which sentences these cannot be trusted for, and whether the chart has no zero.

    Plain arithmetic is tried first; the whole batch is scaled where that does not do.
    """
    low = torch.zeros(program.num_sentences, dtype=torch.bool, device=words.device)
    weights = Weights(factors, scaled=False)
    found = run_plain(program, weights, words)
    if found is not None:
        return weights, found, low, True
    weights = Weights(factors, scaled=True)
    chart = run_linear(program, weights, words)
    full = chart.least() > 0
    low = low | _narrowed(weights) | _too_low(program, chart)
    return weights, chart, low if full else low | _lost(program, chart, weights, words), full


def _narrowed(weights: Weights) -> bool:
    """Whether some factor spans more than the range of its dtype, so that its mantissa lost entries."""
    return any(
        bool(((weights.given[label] > 0) & (mantissa == 0)).any()) for label, mantissa in weights.mantissa.items()
    )


def _too_low(program: Program, chart: Chart) -> Tensor:
    """Sentences with an item so low as a whole that rounding no longer explains what was lost."""
    result = torch.zeros(program.num_sentences, dtype=torch.bool, device=program.roots.device)
    if chart.tops and bool(too_low(torch.cat(chart.tops)).any()):
        groups = (group for level in program.levels for group in level.groups)
        for group, top in zip(groups, chart.tops, strict=True):
            result[program.owners[group.table][group.rows.numbers[too_low(top)]]] = True
    return result


def _lost(program: Program, chart: Chart, weights: Weights, words: Tensor) -> Tensor:
    """Sentences with a zero, in some row or in what some group adds to an item, that should not be there."""
    lost = torch.zeros(program.num_sentences, dtype=torch.bool, device=words.device)

    def mark(table: Sizes, rows: Tensor, values: Tensor, possible: Tensor) -> None:
        gone = ((values == 0) & (possible > 0)).any(1)
        lost[program.owners[table][rows[gone]]] = True

    def compare(group: Group, possible: Tensor) -> None:
        if group.shared:  # elsewhere the items show it
            part, _, _ = evaluate_group(group, chart, weights)
            mark(group.table, group.rows.numbers, part.mantissa, possible)

    possible = {label: (factor > 0).to(factor.dtype) for label, factor in weights.given.items()}
    for table, values in run_semiring(program, Support(), possible, words, compare).items():
        mark(table, torch.arange(len(values), device=words.device), chart.tables[table].mantissa, values)
    return lost


def _in_log_space(program: Program, factors: Mapping[str, Tensor], words: Tensor) -> Tensor:
    log = Log()
    factors = factors or {"1": torch.ones(1)}
    tables = run_semiring(program, log, {label: log.lift(factor.double()) for label, factor in factors.items()}, words)
    result = log.zeros((program.num_sentences,), next(iter(tables.values())))
    return result.index_copy(0, program.possible, tables[()][program.roots, 0])


def _sentences(words: Tensor, lengths: Tensor | None, size: int) -> list[list[int]]:
    """The words of each sentence without its padding, checked."""
    if words.dim() != 2 or words.is_floating_point():
        raise ShapeError(
            f"log_z: words are {words.dtype} of shape {tuple(words.shape)}; give integers [batch, length]."
        )
    batch, longest = words.shape
    counts = [longest] * batch if lengths is None else lengths.tolist()
    if len(counts) != batch or any(not 0 <= count <= longest for count in counts):
        raise ShapeError(f"log_z: lengths {counts[:8]} do not fit words of shape ({batch}, {longest}).")
    sentences = [row[:count] for row, count in zip(words.tolist(), counts, strict=True)]
    for b, sentence in enumerate(sentences):
        if sentence and not OPEN <= min(sentence) <= max(sentence) < size:
            raise ShapeError(f"log_z: sentence {b} has a word outside of 0..{size - 1} (and -1 for an open one).")
    return sentences


def _statistics(program: Program) -> Statistics:
    groups = [group for level in program.levels for group in level.groups]
    conclusions = sum(group.last is not None for group in groups)
    passing = sum(len(level.passing) for level in program.levels)
    return Statistics(
        levels=len(program.levels),
        shapes=len(program.plans),
        groups=len(groups),
        contractions=len(groups) + conclusions + passing,
        items=program.num_items,
        applications=program.num_applications,
        cost=sum(plan.cost for plan in program.plans),
    )
