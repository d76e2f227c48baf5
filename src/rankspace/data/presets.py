"""Ready choices of preprocessing, each for a corpus as it is distributed."""

from typing import NamedTuple

from rankspace.data.preprocessing import Preprocessing
from rankspace.errors import RankspaceError

PUNCTUATION_TAGS = (".", ",", ":", "(", ")", "``", "''")
PUNCTUATION_WORDS = (
    *(".", ",", ":", ";", "?", "!", "-", "--", "...", "``", "''", "`", '"', "(", ")", "[", "]", "{", "}"),
    *("-LRB-", "-RRB-", "-LCB-", "-RCB-", "-LSB-", "-RSB-", "\u2013", "\u2014", "\u2026"),
    *("\u2018", "\u2019", "\u201c", "\u201d"),
)
CURRENCY = ("$", "#")  # tags and words alike

# The data behind the paper's parsing results keeps words whose tag is that of a word: of the tags of the Penn Treebank
# that leaves out punctuation, currency signs and traces.
PTB = Preprocessing(
    removed_tags=PUNCTUATION_TAGS + CURRENCY,
    removed_words=PUNCTUATION_WORDS + CURRENCY,
    lower_case=True,
    numbers="digits",
    max_words=10_000,
)
# What Mikolov's text did to the sentences of the treebank; the vocabulary has to be that of the text.
LIKE_LM_TEXT = Preprocessing(
    removed_tags=PUNCTUATION_TAGS, removed_words=PUNCTUATION_WORDS, lower_case=True, numbers="words", eos=True
)


class Preset(NamedTuple):
    description: str
    preprocessing: Preprocessing
    files: str = "*"  # which files of a folder are meant


def _with_hyphens_removed(**changes: tuple[str, ...]) -> Preprocessing:
    """As for the Penn Treebank, in a tag set that splits words at hyphens."""
    return Preprocessing(**{**vars(PTB), "removed_tags": (*PTB.removed_tags, "HYPH"), **changes})


PRESETS = {
    "plain": Preset("words as they stand; traces and function tags of trees removed", Preprocessing()),
    "ptb": Preset("trees of the Penn Treebank as in the paper; sections 02-21, 22, 23 of a folder", PTB),
    "ptb-lm": Preset("the PTB language-model text, with <eos>", Preprocessing(eos=True), "ptb.*.txt"),
    "nltk": Preset("nltk's sample of the Penn Treebank, as ptb", PTB, "nltk_ptb_sample.mrg"),
    "nltk-lm": Preset(
        "the sample with words as in the PTB language-model text; give the text's --vocabulary",
        LIKE_LM_TEXT,
        "nltk_ptb_sample.mrg",
    ),
    "craft": Preset(
        "CRAFT as ptb, without hyphens, headings, titles and captions",
        _with_hyphens_removed(removed_roots=("HEADING", "TITLE", "CAPTION")),
        "craft.*.mrg",
    ),
    "gum": Preset("GUM as ptb, without hyphens", _with_hyphens_removed(), "gum.*.mrg"),
}


def preset(name: str, command: str = "prepare") -> Preset:
    """Raises RankspaceError, with the names there are."""
    if name not in PRESETS:
        raise RankspaceError(f"{command}: there is no preset {name!r}; the presets are {', '.join(PRESETS)}.")
    return PRESETS[name]
