"""A sentence on its way from a file to numbers: words and, where it comes from a treebank, tags and spans."""

from typing import NamedTuple

from rankspace.trees import Node, Span, Tree

LabelledSpan = tuple[int, int, str]  # words begin, ..., end - 1; the label "" of a node that has none


class Sentence(NamedTuple):
    """Words of a sentence, and its gold tree as tags and spans; both None where there is no tree.

    `tags` has one entry per word, "" for a word without preterminal. `spans` are the constituents above the
    preterminals in preorder: by begin, wider ones first, of a unary chain the topmost first.
    """

    words: list[str]
    tags: list[str] | None = None
    spans: list[LabelledSpan] | None = None
    line: int = 0  # of the file it comes from, counted from 1

    def tree(self) -> Tree | None:
        """The gold tree with tags as preterminals, or None."""
        if self.spans is None:
            return None
        tags = [""] * len(self.words) if self.tags is None else self.tags
        return joined_tree(self.words, tags, self.spans)


def joined_tree(words: list[str], tags: list[str], spans: list[LabelledSpan]) -> Tree:
    """The tree of words, tags and spans; a root without symbol is added where no span covers the sentence."""
    nodes: list[Span] = [Node(begin, end, label or None) for begin, end, label in spans]
    nodes += [Node(place, place + 1, tag) for place, tag in enumerate(tags) if tag]  # after, hence below, the spans
    return Tree.from_spans(words, nodes)
