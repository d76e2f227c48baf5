"""Constituency trees over words. A tree is kept flat, as its words and its nodes in preorder.

Nothing here recurses, so a tree may be as deep as its sentence is long; equality, hashing, copies and pickles are those
of two tuples.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from rankspace.errors import FormatError, MissingExtraError
from rankspace.trees.nodes import Assembly, Node, Span, Symbol, Word, check_names, check_nodes, preorder, steps
from rankspace.trees.text import draw, read_brackets, write_brackets


@dataclass(frozen=True)
class Tree:
    """A tree whose leaves are words and whose nodes may have symbols.

    `nodes` are in preorder: by begin, wider ones first, and of a unary chain the topmost first. The first is the root
    and spans all words. A node may have any number of children, each a node or a word, and a word needs no preterminal.
    Text is not empty and holds no white space. Raises RankspaceError for anything else.
    """

    words: tuple[Word, ...]
    nodes: tuple[Node, ...]

    def __post_init__(self) -> None:
        check_names("word", self.words)
        check_names("symbol", (node.symbol for node in self.nodes))
        check_nodes(self.nodes, len(self.words))

    @classmethod
    def from_spans(cls, words: Iterable[Word], spans: Iterable[Span]) -> "Tree":
        """The tree with a node for each (begin, end) or (begin, end, symbol), given in any order.

        Of equal spans the one given first is the topmost. A root without symbol is added where no span covers the
        sentence. Raises RankspaceError if spans cross or leave the sentence.
        """
        words = tuple(words)
        nodes = sorted((Node(*span) for span in spans), key=preorder)
        if not nodes or nodes[0][:2] != (0, len(words)):
            nodes.insert(0, Node(0, len(words)))
        return cls(words, tuple(nodes))

    @classmethod
    def from_nested(cls, nested: tuple[Any, ...] | list[Any], labelled: bool = True) -> "Tree":
        """("S", ("NP", "the", "dog"), "barks"), or without symbols, if not labelled, (("the", "dog"), "barks")."""
        return _grow("Tree.from_nested", nested, lambda node: _nested_parts(node, labelled))

    @classmethod
    def parse(cls, text: str, labelled: bool = True) -> "Tree":
        """The tree of a text such as (S (NP the dog) barks), in which words and symbols are strings.

        A symbol follows its bracket at once: ( the dog) is a node without symbol over two words. If not labelled, there
        are no symbols and ((the dog) barks) has three words. -LRB- and -RRB- stand for brackets in words and symbols.
        Raises FormatError, with line and column.
        """
        return _tree(read_brackets(text, labelled))

    @classmethod
    def from_nltk(cls, tree: Any) -> "Tree":
        """The same tree from nltk's; an empty label is no symbol."""
        return _grow("Tree.from_nltk", tree, _nltk_parts)

    def to_nltk(self) -> Any:
        """The same tree as `nltk.Tree`; a node without symbol has the label "". Raises MissingExtraError."""
        try:
            from nltk.tree import Tree as NltkTree
        except ModuleNotFoundError as error:
            raise MissingExtraError(
                "Tree.to_nltk: nltk is not installed; install it with pip install 'rankspace[pictures]'."
            ) from error
        top: list[Any] = []
        path = [top]
        for step in self._walk():
            if isinstance(step, Node):
                path[-1].append(NltkTree("" if step.symbol is None else step.symbol, []))
                path.append(path[-1][-1])
            elif step is None:
                path.pop()
            else:
                path[-1].append(step)
        return top[0]

    def __len__(self) -> int:
        """The number of words."""
        return len(self.words)

    def __str__(self) -> str:
        return self.bracketed()

    @property
    def symbol(self) -> Symbol:
        """The symbol of the root."""
        return self.nodes[0].symbol

    @property
    def children(self) -> "tuple[Tree | Word, ...]":
        """What hangs on the root: trees and, where there is no node, words. Linear in the size of the tree."""
        children: list[Tree | Word] = []
        place, position = 0, 1
        while place < len(self):
            if position < len(self.nodes) and self.nodes[position].begin == place:
                child = self._subtree(position)
                place, position = place + len(child), position + len(child.nodes)
                children.append(child)
            else:
                children.append(self.words[place])
                place += 1
        return tuple(children)

    @property
    def is_binary(self) -> bool:
        """Whether each node over several words has two children, and each word at most one node of its own."""
        ranges = [(node.begin, node.end) for node in self.nodes]
        num_wide = sum(end - begin > 1 for begin, end in ranges)
        # of different spans that do not cross, n words have room for n - 1 wide ones, and for all only if binary
        return len(set(ranges)) == len(ranges) and num_wide == len(self) - 1

    @property
    def height(self) -> int:
        """The number of nodes above the deepest word; a preterminal counts."""
        depth = highest = 0
        for step in self._walk():
            depth += isinstance(step, Node) - (step is None)
            highest = max(highest, depth)
        return highest

    def spans(self, min_width: int = 1, whole: bool = True) -> list[Node]:
        """(begin, end, symbol) of the nodes of some width, in preorder; those over the whole sentence only if `whole`.

        A word without preterminal has no node, so it is not listed.
        """
        most = len(self) if whole else len(self) - 1
        return [node for node in self.nodes if min_width <= node.end - node.begin <= most]

    def map_words(self, function: Callable[[Word], Word]) -> "Tree":
        """The same tree over other words."""
        return Tree(tuple(function(word) for word in self.words), self.nodes)

    def map_symbols(self, function: Callable[[str | int], Symbol]) -> "Tree":
        """The same tree with other symbols; nodes without symbol stay so, and None takes one away."""
        kept = (node.symbol if node.symbol is None else function(node.symbol) for node in self.nodes)
        return Tree(self.words, tuple(node._replace(symbol=name) for node, name in zip(self.nodes, kept, strict=True)))

    def bracketed(self, labelled: bool = True) -> str:
        """The tree in one line. `Tree.parse` with the same `labelled` reads it, numbers as strings.

        A node without symbol is written ( the dog). If not labelled, symbols are left out: ((the dog) barks).
        """
        return write_brackets(self._walk(), labelled)

    def drawing(self) -> str:
        """The tree in several lines, one for each node and word; a preterminal stands before its word.

        S
        ├─ NP
        │  ├─ the
        │  └─ dog
        └─ barks
        """
        return draw(self._walk())

    def _walk(self) -> Iterator[Node | Word | None]:
        return steps(self.words, self.nodes)

    def _subtree(self, position: int) -> "Tree":
        """The tree below the node at a position of `nodes`."""
        begin, end, _ = self.nodes[position]
        below = takewhile(lambda node: node.begin < end, self.nodes[position:])
        return Tree(self.words[begin:end], tuple(Node(b - begin, e - begin, symbol) for b, e, symbol in below))


def _tree(assembly: Assembly) -> Tree:
    return Tree(tuple(assembly.words), tuple(assembly.nodes))


def _grow(operation: str, root: Any, parts: Callable[[Any], tuple[Symbol, Iterable[Any]]]) -> Tree:
    """The tree of something nested, of which `parts` gives the symbol and children of a node."""
    assembly, closing = Assembly(), object()
    pending = [root]
    while pending:
        part = pending.pop()
        if isinstance(part, str | int):
            assembly.word(part)
        elif part is not closing:
            symbol, children = parts(part)
            assembly.open(symbol)
            pending += [closing, *reversed(list(children))]
        elif not assembly.close():
            num_words = len(assembly.words)
            raise FormatError(f"{operation}: a node after {num_words} words has none of its own; remove it.")
    return _tree(assembly)


def _nested_parts(node: Any, labelled: bool) -> tuple[Symbol, Sequence[Any]]:
    if not isinstance(node, tuple | list):
        raise FormatError(
            f"Tree.from_nested: {node!r} is neither a word nor a node; a word is a str or an int, a node a tuple."
        )
    if not labelled:
        return None, node
    if not node or isinstance(node[0], tuple | list):
        raise FormatError(
            "Tree.from_nested: a node does not begin with its symbol; put it (or None) first, or pass labelled=False."
        )
    return node[0], node[1:]


def _nltk_parts(node: Any) -> tuple[Symbol, Iterable[Any]]:
    if not hasattr(node, "label"):
        raise FormatError(f"Tree.from_nltk: {node!r} is neither a word nor an nltk.Tree; a word is a str or an int.")
    return None if node.label() == "" else node.label(), node
