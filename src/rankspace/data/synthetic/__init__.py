"""A treebank made by a hand-written grammar of English: any number of sentences, with their true probabilities."""

from rankspace.data.synthetic.generator import SyntheticSentence, SyntheticTreebank
from rankspace.data.synthetic.grammar import Expansion, TreebankGrammar, english

__all__ = ["Expansion", "SyntheticSentence", "SyntheticTreebank", "TreebankGrammar", "english"]
