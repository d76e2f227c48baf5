"""What `rankspace fgg check` tells about a grammar."""

from pathlib import Path
from typing import Any

from rankspace.cli.output import print_pairs, print_table, shown, shown_all
from rankspace.errors import GrammarError
from rankspace.fgg import FGG
from rankspace.fgg.components import is_recursive, strong_components
from rankspace.lowrank import is_b_fgg


def refuse_useless(fgg: FGG, file: Path) -> None:
    """Raises GrammarError, with their names, if there are unreachable or unproductive nonterminals."""
    useless = fgg.useless()
    found = [f"{kind}: {shown_all(labels)}" for kind, labels in useless._asdict().items() if labels]
    if found:
        raise GrammarError(f"{file}: useless nonterminals ({'; '.join(found)}); remove them, or leave --strict out.")


def summarise(fgg: FGG, file: Path) -> dict[str, Any]:
    """Everything `check` prints, as plain objects."""
    grammar = fgg.grammar
    verdict = is_b_fgg(fgg)
    cycles = [part for part in strong_components(grammar.uses) if is_recursive(part, grammar.uses)]
    return {
        "file": str(file),
        "start": fgg.start,
        "num_rules": len(fgg.rules),
        "is_b_fgg": bool(verdict),
        "why_no_b_fgg": verdict.reason or None,
        "recursive": [label for label in grammar.nonterminals if any(label in part for part in cycles)],
        "unreachable": list(fgg.useless().unreachable),
        "unproductive": list(fgg.useless().unproductive),
        "domains": {label: len(domain) for label, domain in fgg.domains.items()},
        "terminals": {
            label: {"type": list(ends), "shape": list(fgg.shape_of(label))} for label, ends in grammar.terminals.items()
        },
        "nonterminals": {
            label: {"type": list(ends), "shape": list(fgg.shape_of(label)), "num_rules": len(grammar.rules_of[label])}
            for label, ends in grammar.nonterminals.items()
        },
    }


def print_summary(summary: dict[str, Any]) -> None:
    """The summary for people: the findings, then a table of node labels and one of edge labels."""
    reason = f"no: {summary['why_no_b_fgg']}"
    print_pairs(
        [
            ("file", summary["file"]),
            ("start symbol", shown(summary["start"])),
            ("rules", str(summary["num_rules"])),
            ("B-FGG", "yes" if summary["is_b_fgg"] else reason),
            ("recursive", shown_all(summary["recursive"]) or "no"),
            ("unreachable", shown_all(summary["unreachable"]) or "none"),
            ("unproductive", shown_all(summary["unproductive"]) or "none"),
        ]
    )
    print_table(["node label", "values"], [[shown(label), str(size)] for label, size in summary["domains"].items()])
    print_table(
        ["edge label", "kind", "type", "shape"],
        [
            [
                shown(label),
                _kind(entry),
                f"({shown_all(entry['type'])})",
                " x ".join(map(str, entry["shape"])) or "scalar",
            ]
            for part in ("nonterminals", "terminals")
            for label, entry in summary[part].items()
        ],
    )


def _kind(entry: dict[str, Any]) -> str:
    if "num_rules" not in entry:
        return "factor"
    return f"nonterminal, {entry['num_rules']} rule{'' if entry['num_rules'] == 1 else 's'}"
