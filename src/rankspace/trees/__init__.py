"""Constituency trees over words. Neither torch nor nltk is imported with them."""

from rankspace.trees.nodes import Node, Span, Symbol, Word
from rankspace.trees.tree import Tree

__all__ = ["Node", "Span", "Symbol", "Tree", "Word"]
