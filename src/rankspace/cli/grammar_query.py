"""What `rankspace fgg z` computes and how it prints it."""

import re
import sys
from collections.abc import Mapping, Sequence
from itertools import islice, product
from typing import Any

import torch
from torch import Tensor

from rankspace.cli.output import exponential, number, print_line, print_pairs, print_table, shown
from rankspace.errors import GrammarError
from rankspace.fgg import FGG, Derivation, observe, sum_product
from rankspace.fgg.observation import word_label
from rankspace.fgg.sum_product import SemiringName

MOST_ROWS = 50  # of a result over the endpoints of the start symbol; --json gives all

NAMES = {
    "z": "Z",
    "log_z": "log Z",
    "weight": "best weight",
    "log_weight": "log weight",
    "possible": "possible",
    "count": "derivations with assignments",
    "entropy": "entropy",
}


def observed(fgg: FGG, sentence: str, label: str | None) -> FGG:
    """The grammar conjoined with a sentence, whose words are read as numbers where the domain has those."""
    words = sentence.split()
    label = label or _word_label(fgg, words)
    if label in fgg.domains:
        domain = fgg.domains[label]
        return observe(fgg, [w if domain.index(w) is not None else _as_number(w) for w in words], label)
    return observe(fgg, words, label)


def _word_label(fgg: FGG, words: Sequence[str]) -> str:
    try:
        return word_label(fgg, words)
    except GrammarError:
        return word_label(fgg, [_as_number(word) for word in words])


def _as_number(word: str) -> object:
    return int(word) if re.fullmatch("-?[0-9]{1,18}", word) else word


def answer(fgg: FGG, semiring: SemiringName) -> dict[str, Any]:
    """The sum-product as plain objects: numbers, or nested lists over `endpoints` where the start symbol has some.

    The best derivation is a list of the rules it uses, parents first; `parent` is the place of the parent in it.
    """
    ends: dict[str, Any] = {"endpoints": list(fgg.grammar.nonterminals[fgg.start])}
    if semiring == "max":
        best = sum_product(fgg, "max")
        steps = None if best.derivation is None else derivation_steps(fgg, best.derivation)
        log_weight = float(best.log_weight)
        return ends | {"weight": float(best.log_weight.exp()), "log_weight": log_weight, "derivation": steps}
    if semiring == "boolean":
        return ends | {"possible": sum_product(fgg, "boolean").tolist()}
    if semiring == "counting":
        count = sum_product(fgg, "counting")
        sys.set_int_max_str_digits(0)  # it may have more digits than Python prints of its own accord
        return ends | {"count": count if isinstance(count, int) else count.tolist()}
    if semiring == "entropy":
        log_z, entropy = sum_product(fgg, "entropy")
        return ends | {"z": log_z.exp().tolist(), "log_z": log_z.tolist(), "entropy": entropy.tolist()}
    z, log_z = _z_and_log_z(fgg, semiring)
    return ends | {"z": z.tolist(), "log_z": log_z.tolist()}


def _z_and_log_z(fgg: FGG, semiring: SemiringName) -> tuple[Tensor, Tensor]:
    """Both from the wanted semiring, unless Z is outside of the range of its dtype."""
    log_z = sum_product(fgg, "log")
    z = log_z.exp()
    if semiring == "log" or bool(z.isinf().any()):
        return z, log_z
    z = sum_product(fgg, "real")
    return z, z.log() if bool((z >= torch.finfo(z.dtype).tiny).all()) else log_z


def derivation_steps(fgg: FGG, derivation: Derivation) -> list[dict[str, Any]]:
    """The rules of a derivation, parents first, with the assignment of their nodes in values of the domains."""
    steps: list[dict[str, Any]] = []
    waiting: list[tuple[Derivation, int | None]] = [(derivation, None)]
    while waiting:  # a stack, since derivations of long sentences are deep
        here, parent = waiting.pop()
        waiting.extend((child, len(steps)) for child in here.ordered_children()[::-1])
        label_of = here.rule.rhs.label_of
        values = {node: fgg.domains[label_of[node]].values[index] for node, index in here.assignment.items()}
        steps.append({"lhs": here.rule.lhs, "rule": here.rule.name, "parent": parent, "assignment": values})
    return steps


def print_answer(fgg: FGG, result: Mapping[str, Any]) -> None:
    """The answer for people."""
    quantities = {key: value for key, value in result.items() if key in NAMES}
    if result["endpoints"]:
        _print_tensor(fgg, quantities)
        return
    print_pairs((NAMES[key], _text(key, quantities)) for key in quantities)
    if "derivation" in result:
        _print_derivation(result["derivation"])


def _print_tensor(fgg: FGG, quantities: Mapping[str, Any]) -> None:
    ends = fgg.grammar.nonterminals[fgg.start]
    rows = []
    for place in islice(product(*(range(fgg.size(end)) for end in ends)), MOST_ROWS):
        entries = {key: _entry(value, place) for key, value in quantities.items()}
        values = [shown(fgg.domains[end].values[index]) for end, index in zip(ends, place, strict=True)]
        rows.append([*values, *(_text(key, entries) for key in entries)])
    print_table([*map(shown, ends), *(NAMES[key] for key in quantities)], rows)
    left = torch.Size(fgg.shape_of(fgg.start)).numel() - len(rows)
    if left:
        print_line(f"... and {left} more; --json gives all.")


def _entry(nested: Any, place: Sequence[int]) -> Any:
    for index in place:
        nested = nested[index]
    return nested


def _text(key: str, quantities: Mapping[str, Any]) -> str:
    value = quantities[key]
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return str(value)
    log = quantities.get(f"log_{key}")
    in_range = sys.float_info.min <= value <= sys.float_info.max
    return number(value) if log is None or in_range else exponential(log)


def _print_derivation(steps: Sequence[Mapping[str, Any]] | None) -> None:
    """One line per rule, indented below rules that branch, so that a chain stays straight."""
    if steps is None:
        print_line("no derivation has positive weight")
        return
    children = [0] * len(steps)
    for step in steps[1:]:
        children[step["parent"]] += 1
    depths: list[int] = []
    for step in steps:
        parent = step["parent"]
        depths.append(0 if parent is None else depths[parent] + (children[parent] > 1))
    print_table(
        ["symbol", "rule", "assignment"],
        [
            ["  " * depth + shown(step["lhs"]), shown(step["rule"]), _assigned(step["assignment"])]
            for depth, step in zip(depths, steps, strict=True)
        ],
    )


def _assigned(values: Mapping[str, object]) -> str:
    return " ".join(f"{node}={shown(value)}" for node, value in values.items())
