"""Factor graph grammars as files, in the JSON format of the public `fggs` library.

    {"grammar": {"terminals": {"start": {"type": ["T"]}}, "nonterminals": {"S": {"type": []}}, "start": "S",
                 "rules": [{"lhs": "S", "rhs": {"nodes": [{"label": "T"}],
                                                "edges": [{"attachments": [0], "label": "start"}],
                                                "externals": []}}]},
     "interpretation": {"domains": {"T": {"class": "finite", "values": ["noun", "verb"]}},
                        "factors": {"start": {"function": "finite", "weights": [0.25, 0.75]}}}}

Nodes and edges may carry an "id". Keys that mean nothing here, such as "comment", are ignored. Two older layouts are
read as well: "domains" and "factors" beside "grammar"; and everything at the top, without "terminals". Factors tell
their own "type" there, and their function is called "categorical".

Keys of our own, which that library ignores: a rule's "name"; "table_names" at the top; "tuples" beside the "values" of
a domain of tuples (a list is no value for that library, so "values" holds their text); and "unused_domains" beside
"domains" for those that no label mentions (that library refuses them among the others).
"""

import math
import os
from collections.abc import Sequence
from json import dumps
from pathlib import Path
from typing import Any

import torch

from rankspace.errors import FormatError
from rankspace.fgg.factor_graph_grammar import FGG, Domain, Factor, Indicator
from rankspace.fgg.grammar import Rule
from rankspace.fgg.json_places import Place, parse
from rankspace.fgg.json_reader import read
from rankspace.files import whole_file


def load_json(path: str | os.PathLike[str], *, open_start: bool = False) -> FGG:
    """The FGG in a file; its factors are float64 tensors.

    Raises FormatError, in one line that names the file and the place in it, when the file cannot be read or breaks the
    format or a definition. A start symbol with endpoints is refused unless `open_start=True`.
    """
    try:
        return read(parse(Path(path).read_bytes()), open_start)
    except FormatError as error:
        raise FormatError(f"{os.fspath(path)}: {_one_line(error)}") from None
    except IsADirectoryError:
        raise FormatError(f"{os.fspath(path)}: is a folder; give the name of a file.") from None
    except OSError as error:
        raise FormatError(f"{os.fspath(path)}: cannot be read ({error.strerror}).") from None


def save_json(fgg: FGG, path: str | os.PathLike[str]) -> None:
    """Writes an FGG so that `load_json` gives it back: the same rules, identifiers, domain values and weights.

    Weights are written as the shortest decimals that round to them, so float64 comes back bit for bit and narrower
    types as the equal float64. An `Indicator` comes back as the one-hot tensor it stands for. The file appears whole
    or not at all. Raises FormatError on values that JSON cannot hold and when the file cannot be written.
    """
    text = _layout(to_json(fgg)) + "\n"
    with whole_file(path) as file:
        file.write_text(text, encoding="utf-8")


def from_json(data: object, *, open_start: bool = False) -> FGG:
    """The FGG in what `json.load` returns; see `load_json`. Messages of FormatError begin with the place."""
    return read(Place(data), open_start)


def to_json(fgg: FGG) -> dict[str, Any]:
    """An FGG as an object that `json.dump` can write; see `save_json`."""
    grammar = fgg.grammar
    labels = {node.label for rule in fgg.rules for node in rule.rhs.nodes}
    labels.update(end for ends in (*grammar.terminals.values(), *grammar.nonterminals.values()) for end in ends)
    interpretation: dict[str, Any] = {
        "domains": {label: _domain_entry(label, d) for label, d in fgg.domains.items() if label in labels},
        "factors": {label: _factor_entry(factor) for label, factor in fgg.factors.items()},
    }
    unused = {label: _domain_entry(label, d) for label, d in fgg.domains.items() if label not in labels}
    if unused:
        interpretation["unused_domains"] = unused
    result: dict[str, Any] = {
        "grammar": {
            "terminals": {label: {"type": list(ends)} for label, ends in grammar.terminals.items()},
            "nonterminals": {label: {"type": list(ends)} for label, ends in grammar.nonterminals.items()},
            "start": grammar.start,
            "rules": [_rule_entry(rule, number) for number, rule in enumerate(fgg.rules, start=1)],
        },
        "interpretation": interpretation,
    }
    if fgg.table_names:
        result["table_names"] = dict(fgg.table_names)
    return result


def _domain_entry(label: str, domain: Domain) -> dict[str, Any]:
    values = [_plain(label, value) for value in domain.values]
    if not any(isinstance(value, list) for value in values):
        return {"class": "finite", "values": values}
    shown = [str(value) if isinstance(value, tuple) else value for value in domain.values]
    return {"class": "finite", "values": shown, "tuples": values}


def _plain(label: str, value: object) -> object:
    if isinstance(value, tuple):
        return [_plain(label, part) for part in value]
    if type(value) in (str, int, bool, type(None)) or (type(value) is float and math.isfinite(value)):
        return value
    raise FormatError(
        f"save_json: domain {label!r} has the value {value!r} of type {type(value).__name__}; "
        f"a file holds strings, finite numbers, booleans, None and tuples of these."
    )


def _factor_entry(factor: Factor) -> dict[str, Any]:
    dense = factor.dense(torch.float64, torch.device("cpu")) if isinstance(factor, Indicator) else factor.detach()
    return {"function": "finite", "weights": dense.tolist()}


def _rule_entry(rule: Rule, number: int) -> dict[str, Any]:
    place = {node.id: i for i, node in enumerate(rule.rhs.nodes)}
    entry = {
        "lhs": rule.lhs,
        "rhs": {
            "nodes": [{"label": node.label, "id": node.id} for node in rule.rhs.nodes],
            "edges": [
                {"attachments": [place[node] for node in edge.nodes], "label": edge.label, "id": edge.id}
                for edge in rule.rhs.edges
            ],
            "externals": [place[node] for node in rule.rhs.external],
        },
    }
    return entry if rule.name == f"#{number}" else {"name": rule.name, **entry}


def _layout(value: object, indent: str = "") -> str:
    """JSON for people: what fits on a line stands on one, and so does a row of numbers of any length."""
    if not isinstance(value, dict | list) or not any(isinstance(part, dict | list) for part in _parts(value)):
        return dumps(value, allow_nan=False)
    if isinstance(value, dict):
        parts = [f"{dumps(key)}: {_layout(part, indent + '  ')}" for key, part in value.items()]
    else:
        parts = [_layout(part, indent + "  ") for part in value]
    left, right = "{}" if isinstance(value, dict) else "[]"
    line = f"{left}{', '.join(parts)}{right}"
    if len(indent) + len(line) <= 100 and "\n" not in line:
        return line
    inner = ",\n".join(f"{indent}  {part}" for part in parts)
    return f"{left}\n{inner}\n{indent}{right}"


def _parts(value: dict[str, Any] | list[Any]) -> Sequence[Any]:
    return list(value.values()) if isinstance(value, dict) else value


def _one_line(error: Exception) -> str:
    return " ".join(str(error).splitlines())
