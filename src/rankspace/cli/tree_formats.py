"""Parses as text, one function for each format: brackets, JSON lines, drawings."""

import json
from typing import TYPE_CHECKING, Any

from rankspace.trees import Tree
from rankspace.trees.nodes import Node, steps

if TYPE_CHECKING:
    from rankspace.cli.parsed import Candidate, Parsed, Wanted

NO_TREE = "()"  # `evaluate --predicted` and other readers of brackets take it for a sentence without a tree


def as_brackets(number: int, parsed: "Parsed", wanted: "Wanted") -> str:
    """One line for each sentence; of several trees one for each, with the sentence's number and the score before it."""
    if not parsed.words:
        return "" if wanted.num_best > 1 else "\n"
    if wanted.num_best == 1:
        return "".join(f"{each.tree.bracketed(wanted.labels)}\n" for each in parsed.trees) or f"{NO_TREE}\n"
    lines = [f"{number}\t{each.score:.6f}\t{each.tree.bracketed(wanted.labels)}\n" for each in parsed.trees]
    return "".join(lines) or f"{number}\t\t{NO_TREE}\n"


def as_drawing(number: int, parsed: "Parsed", wanted: "Wanted") -> str:
    """The trees in several lines each, the score above if there may be several, and an empty line after each.

    One word, of which a grammar says nothing, stands alone.
    """
    if not parsed.trees:
        return f"{NO_TREE}\n\n" if parsed.words else "\n"
    scores = [f"{number}: {each.score:.6f}\n" if wanted.num_best > 1 else "" for each in parsed.trees]
    return "".join(f"{score}{_drawing(each.tree)}\n\n" for score, each in zip(scores, parsed.trees, strict=True))


def _drawing(tree: Tree) -> str:
    return tree.drawing() if len(tree) > 1 else str(tree.words[0])


def as_json(number: int, parsed: "Parsed", wanted: "Wanted") -> str:
    """One object a line. Its tree is nested lists; written without recursion, for trees are as deep as they like."""
    log_prob = parsed.log_prob
    entries: dict[str, Any] = {
        "number": number,
        "words": parsed.words,
        "unknown": parsed.unknown,
        "log_prob": str(log_prob) if log_prob == float("-inf") else log_prob,  # JSON has no infinities
    }
    if wanted.num_best > 1:
        trees = ", ".join(f"{{{_candidate(each, parsed, wanted)}}}" for each in parsed.trees)
        return f'{json.dumps(entries)[:-1]}, "trees": [{trees}]}}\n'
    tree = _candidate(parsed.trees[0], parsed, wanted) if parsed.trees else '"tree": null, "spans": []'
    return f"{json.dumps(entries)[:-1]}, {tree}}}\n"


def nested_json(tree: Tree, labelled: bool) -> str:
    """[["the", "dog"], "barks"]; labelled, ["NT-0", ["NT-1", ...], ...]."""
    pieces: list[str] = []
    for step in steps(tree.words, tree.nodes):
        if step is None:
            pieces.append("]")
            continue
        if pieces and pieces[-1] != "[":
            pieces.append(", ")
        if isinstance(step, Node):
            pieces += ["[", json.dumps(step.symbol)] if labelled else ["["]
        else:
            pieces.append(json.dumps(step))
    return "".join(pieces)


def _candidate(candidate: "Candidate", parsed: "Parsed", wanted: "Wanted") -> str:
    """The entries of one tree, without braces."""
    spans = []
    for begin, end, symbol in candidate.tree.spans(min_width=2):
        label = {"label": symbol} if wanted.labels else {}
        spans.append({"begin": begin, "end": end, **label, "probability": parsed.probabilities[begin, end]})
    score = "" if candidate.score is None else f'"score": {json.dumps(candidate.score)}, '
    return f'{score}"tree": {nested_json(candidate.tree, wanted.labels)}, "spans": {json.dumps(spans)}'
