"""Trees as text: brackets in one line, which can be read back, and a drawing in several."""

import re
from collections.abc import Iterator, Sequence

from rankspace.errors import FormatError
from rankspace.trees.nodes import Assembly, Node, Word

Walk = Iterator[Node | Word | None]  # see `nodes.steps`

EXAMPLE = "(S (NP the dog) barks)"
TOKENS = re.compile(r"\([^\s()]*|\)|[^\s()]+")  # a bracket takes its symbol along
TOKENS_WITHOUT_SYMBOLS = re.compile(r"\(|\)|[^\s()]+")


def read_brackets(text: str, labelled: bool) -> Assembly:
    """Words and nodes of the one tree in a text. Raises FormatError, with line and column."""
    assembly, opened = Assembly(), list[int]()
    for match in (TOKENS if labelled else TOKENS_WITHOUT_SYMBOLS).finditer(text):
        if not opened:
            _check_outside(text, match, assembly)
        if match[0].startswith("("):
            opened.append(match.start())
            assembly.open(_unescaped(match[0][1:]) or None)
        elif match[0] != ")":
            assembly.word(_unescaped(match[0]))
        elif not assembly.close():
            raise _broken(text, opened[-1], "this node has no words; remove it, or put a space after the (.")
        else:
            opened.pop()
    if opened:
        raise _broken(text, opened[-1], "this ( is never closed; add the missing ).")
    if not assembly.nodes:
        raise FormatError(f"Tree.parse: the text is empty; write a tree such as {EXAMPLE}.")
    return assembly


def write_brackets(walk: Walk, labelled: bool) -> str:
    pieces: list[str] = []
    for step in walk:
        if isinstance(step, Node):
            pieces.append(" (" if step.symbol is None or not labelled else f" ({_escaped(step.symbol)}")
        else:
            pieces.append(")" if step is None else f" {_escaped(step)}")
    text = "".join(pieces).removeprefix(" ")
    return text if labelled else text.replace("( ", "(")  # no word or symbol holds a bracket or a space


def draw(walk: Walk) -> str:
    lines: list[str] = []
    path: list[tuple[Node, str]] = []  # the open nodes, and what stands left of their children
    place = 0
    for step in walk:
        if isinstance(step, Node):
            lines.append(_branch(path, step.end, step.symbol))
            path.append((step, _margin(path, step.end)))
        elif step is None:
            path.pop()
        else:
            place += 1
            if _is_preterminal(path[-1][0]):
                lines[-1] += f" {step}"
            else:
                lines.append(_branch(path, place, step))
    return "\n".join(lines)


def _check_outside(text: str, match: re.Match[str], assembly: Assembly) -> None:
    """What stands outside of all brackets must be the bracket of the root."""
    if match[0] == ")":
        raise _broken(text, match.start(), "this ) closes nothing; remove it or add its (.")
    if not match[0].startswith("("):
        raise _broken(text, match.start(), f"{match[0]!r} stands outside of the brackets; write {EXAMPLE}.")
    if assembly.nodes:
        raise _broken(text, match.start(), "a second tree begins here; parse one tree at a time.")


def _broken(text: str, position: int, what: str) -> FormatError:
    line, column = text.count("\n", 0, position) + 1, position - text.rfind("\n", 0, position)
    return FormatError(f"Tree.parse: line {line}, column {column}: {what}")


def _escaped(name: Word) -> str:
    """Brackets as -LRB- and -RRB-, and what looks like these with a backslash more: -LRB- as -\\LRB-."""
    marked = re.sub(r"-(\\*[LR]RB)", r"-\\\1", str(name))
    return marked.replace("(", "-LRB-").replace(")", "-RRB-")


def _unescaped(text: str) -> str:
    return re.sub(r"-([LR])RB-|-\\(\\*[LR]RB)", _unescaped_match, text)


def _unescaped_match(match: re.Match[str]) -> str:
    if match[1]:
        return "(" if match[1] == "L" else ")"
    return f"-{match[2]}"


def _is_preterminal(node: Node) -> bool:
    """Whether a node is drawn in one line with its word."""
    return node.symbol is not None and node.end - node.begin == 1


def _branch(path: Sequence[tuple[Node, str]], end: int, label: Word | None) -> str:
    """The line of a node or word that ends at a place, below the open nodes."""
    if not path:
        return "┐" if label is None else str(label)
    parent, margin = path[-1]
    corner = "└─" if end == parent.end else "├─"
    return margin + corner + ("─┐" if label is None else f" {label}")


def _margin(path: Sequence[tuple[Node, str]], end: int) -> str:
    """What stands left of the children of a node that ends at a place, below the open nodes."""
    if not path:
        return ""
    parent, margin = path[-1]
    return margin + ("   " if end == parent.end else "│  ")
