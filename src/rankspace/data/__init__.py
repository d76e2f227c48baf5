"""Text and treebanks: reading, preprocessing, vocabularies, prepared folders, batches; a treebank made by a grammar.

Neither torch nor nltk is imported with it; `Batches` imports torch when it yields.
"""

from rankspace.data.batches import Batch, Batches
from rankspace.data.corpus import Corpus, Gold
from rankspace.data.encoding import encode_text, encode_trees
from rankspace.data.lines import BadInput
from rankspace.data.preparation import load_vocabulary, prepare
from rankspace.data.prepared import PreparedData, load_card, load_prepared, save_prepared
from rankspace.data.preprocessing import Cleaner, Preprocessing
from rankspace.data.presets import PRESETS, Preset
from rankspace.data.sentence import Sentence
from rankspace.data.sources import Source, find_sources
from rankspace.data.text import read_sentences, read_text
from rankspace.data.treebank import read_treebank
from rankspace.data.vocabulary import Vocabulary

__all__ = [
    "PRESETS",
    "BadInput",
    "Batch",
    "Batches",
    "Cleaner",
    "Corpus",
    "Gold",
    "PreparedData",
    "Preprocessing",
    "Preset",
    "Sentence",
    "Source",
    "Vocabulary",
    "encode_text",
    "encode_trees",
    "find_sources",
    "load_card",
    "load_prepared",
    "load_vocabulary",
    "prepare",
    "read_sentences",
    "read_text",
    "read_treebank",
    "save_prepared",
]
