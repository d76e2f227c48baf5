"""Factor graph grammars: definition 5 of the paper, a grammar with domains and factors."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from typing import Any

import torch
from torch import Tensor

from rankspace.errors import GrammarError, ShapeError
from rankspace.fgg.grammar import Grammar, Rule, Useless, named


@dataclass(frozen=True)
class Domain:
    """The finite set of values of a node label, in order."""

    values: Sequence[Any]

    def __post_init__(self) -> None:
        if len(self._index) != len(self.values):
            repeated = next(value for i, value in enumerate(self.values) if self._index[value] != i)
            raise GrammarError(f"the value {repeated!r} occurs twice; values are distinct.")

    def __len__(self) -> int:
        return len(self.values)

    @cached_property
    def _index(self) -> Mapping[Any, int]:
        return {value: i for i, value in enumerate(self.values)}

    def index(self, value: object) -> int | None:
        """Place of a value, or None if it is not in the domain."""
        return self._index.get(value)


@dataclass(frozen=True)
class Indicator:
    """The factor [v = value]: one at `index`, zero elsewhere. Observed words are factors of this kind.

    It stands for a one-hot vector of length `size`; engines turn it into a look-up.
    """

    index: int
    size: int

    @property
    def shape(self) -> tuple[int]:
        return (self.size,)

    def dense(self, dtype: torch.dtype, device: torch.device) -> Tensor:
        result = torch.zeros(self.size, dtype=dtype, device=device)
        result[self.index] = 1
        return result


Factor = Tensor | Indicator


@dataclass(frozen=True)
class FGG:
    """A grammar with Omega (node label -> domain) and F (terminal label -> nonnegative tensor over its endpoints).

    Raises GrammarError or ShapeError, naming rule and label, when a domain or factor is missing or does not fit.
    Factors may require gradients. `table_names` are the names the rank-space compiler gives to its tables.
    """

    grammar: Grammar
    domains: Mapping[str, Domain]
    factors: Mapping[str, Factor]
    table_names: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for rule in self.rules:
            for node in rule.rhs.nodes:
                if node.label not in self.domains:
                    raise GrammarError(
                        f"{rule}: node {node.id!r} has label {node.label!r}, which has no domain; "
                        f"add domains[{node.label!r}]."
                    )
        for label, ends in self.grammar.terminals.items():
            self._check_factor(label, ends)
        for label in self.factors:
            if label not in self.grammar.terminals:
                raise GrammarError(f"factor {label!r} belongs to no terminal: no edge carries it; remove it or use it.")

    @classmethod
    def build(
        cls,
        start: str,
        rules: Iterable[Rule],
        domains: Mapping[str, int | Sequence[Any]],
        factors: Mapping[str, Factor],
        *,
        terminals: Mapping[str, Sequence[str]] | None = None,
        nonterminals: Mapping[str, Sequence[str]] | None = None,
        open_start: bool = False,
        table_names: Mapping[str, str] | None = None,
    ) -> "FGG":
        """An FGG as one writes it down.

        `domains` maps each node label to its values or to their number. Types that are not given are read off the
        rules: a nonterminal's from its first rule, a terminal's from the first edge that carries it.
        """
        rules = named(rules)
        inside = dict(nonterminals or {})
        outside = dict(terminals or {})
        for rule in rules:
            inside.setdefault(rule.lhs, tuple(rule.rhs.label_of[node] for node in rule.rhs.external))
            for edge in rule.rhs.edges:
                if edge.label in factors:
                    outside.setdefault(edge.label, tuple(rule.rhs.label_of[node] for node in edge.nodes))
        return cls(
            Grammar(start, rules, _as_types(outside), _as_types(inside), open_start),
            {label: _as_domain(label, values) for label, values in domains.items()},
            dict(factors),
            dict(table_names or {}),
        )

    @property
    def start(self) -> str:
        return self.grammar.start

    @property
    def rules(self) -> tuple[Rule, ...]:
        return self.grammar.rules

    @cached_property
    def tensors(self) -> Mapping[str, Tensor]:
        """Every factor as a dense tensor of the common dtype (gradients flow through)."""
        return {
            label: factor.dense(self.dtype, self.device) if isinstance(factor, Indicator) else factor.to(self.dtype)
            for label, factor in self.factors.items()
        }

    @cached_property
    def dtype(self) -> torch.dtype:
        """The dtype all factors are promoted to; torch's default where there are none."""
        dtypes = [factor.dtype for factor in self.factors.values() if isinstance(factor, Tensor)]
        return reduce(torch.promote_types, dtypes) if dtypes else torch.get_default_dtype()

    @cached_property
    def device(self) -> torch.device:
        tensors = [factor for factor in self.factors.values() if isinstance(factor, Tensor)]
        return tensors[0].device if tensors else torch.device("cpu")

    @cached_property
    def like(self) -> Tensor:
        """An empty tensor of the FGG's dtype and device, for making others like it."""
        return torch.empty(0, dtype=self.dtype, device=self.device)

    def size(self, label: str) -> int:
        """Number of values of a node label."""
        return len(self.domains[label])

    def shape_of(self, label: str) -> tuple[int, ...]:
        """Shape of the tensor of an edge label: the domain sizes of its endpoints."""
        ends = self.grammar.type_of(label)
        if ends is None:
            raise GrammarError(f"FGG: label {label!r} is unknown.")
        return tuple(self.size(end) for end in ends)

    def with_factors(self, factors: Mapping[str, Factor]) -> "FGG":
        """The same grammar with some factors replaced, checked anew."""
        unknown = [label for label in factors if label not in self.factors]
        if unknown:
            raise GrammarError(f"with_factors: there is no factor {unknown[0]!r} to replace.")
        return replace(self, factors={**self.factors, **factors})

    def to(self, dtype: torch.dtype | None = None, device: torch.device | str | None = None) -> "FGG":
        """The same FGG with its factors in another dtype or on another device (differentiable)."""
        moved = {
            label: factor if isinstance(factor, Indicator) else factor.to(device=device, dtype=dtype)
            for label, factor in self.factors.items()
        }
        return replace(self, factors=moved)

    def detached(self) -> "FGG":
        """The same FGG outside of any graph of gradients."""
        return replace(self, factors={k: f.detach() if isinstance(f, Tensor) else f for k, f in self.factors.items()})

    def useless(self) -> Useless:
        """Unreachable and unproductive nonterminals; see `Grammar.useless`."""
        return self.grammar.useless()

    def _check_factor(self, label: str, ends: Sequence[str]) -> None:
        for end in ends:
            if end not in self.domains:
                raise GrammarError(
                    f"terminal {label!r}{self._used_in(label)}: node label {end!r} has no domain; add domains[{end!r}]."
                )
        if label not in self.factors:
            raise GrammarError(f"terminal {label!r}{self._used_in(label)} has no factor; add factors[{label!r}].")
        factor = self.factors[label]
        if not isinstance(factor, Tensor | Indicator):
            raise GrammarError(
                f"factor {label!r}{self._used_in(label)} is a {type(factor).__name__}; give it as a torch tensor."
            )
        expected = tuple(self.size(end) for end in ends)
        if tuple(factor.shape) != expected:
            raise ShapeError(
                f"factor {label!r}{self._used_in(label)} has shape {tuple(factor.shape)} but its endpoints "
                f"({', '.join(ends)}) have domains of sizes {expected}; make them agree."
            )
        if isinstance(factor, Tensor):
            self._check_entries(label, factor.detach())

    def _check_entries(self, label: str, factor: Tensor) -> None:
        name = f"factor {label!r}"
        if not factor.is_floating_point():
            raise GrammarError(
                f"{name}{self._used_in(label)} has dtype {factor.dtype}; give it a floating-point dtype."
            )
        if factor.numel() == 0:
            return
        least, largest = torch.aminmax(factor)  # NaN if any entry is, and then no comparison holds
        if least.item() >= 0 and largest.item() < math.inf:
            return
        for verdict, fault in ((factor.isnan(), "NaN"), (factor.isinf(), "infinite"), (factor < 0, "negative")):
            if verdict.any():
                place = tuple(verdict.nonzero()[0].tolist())
                raise GrammarError(
                    f"{name}{self._used_in(label)} is {fault} at {place} ({factor[place].item()}); "
                    f"weights are finite and >= 0."
                )

    def _used_in(self, label: str) -> str:
        users = (rule for rule in self.rules if any(edge.label == label for edge in rule.rhs.edges))
        return next((f" ({rule})" for rule in users), "")


def _as_domain(label: str, values: int | Sequence[Any] | Domain) -> Domain:
    if isinstance(values, Domain):
        return values
    if isinstance(values, int) and values < 0:
        raise GrammarError(f"domain {label!r} has {values} values; give at least 0.")
    try:
        return Domain(range(values) if isinstance(values, int) else tuple(values))
    except TypeError:
        raise GrammarError(f"domain {label!r} has values that cannot be told apart; use strings or numbers.") from None
    except GrammarError as error:
        raise GrammarError(f"domain {label!r}: {str(error).removeprefix('domain: ')}") from None


def _as_types(types: Mapping[str, Sequence[str]]) -> dict[str, tuple[str, ...]]:
    return {label: tuple(ends) for label, ends in types.items()}
