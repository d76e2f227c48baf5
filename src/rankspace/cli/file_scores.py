"""Scores of a file of predicted trees against one of gold trees, which may be a treebank that is to be cleaned."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from rankspace.data.preprocessing import Cleaner
from rankspace.data.presets import preset as preset_of
from rankspace.data.sentence import Sentence
from rankspace.data.treebank import read_treebank
from rankspace.errors import FormatError
from rankspace.evaluation import bounds, read_trees, score
from rankspace.evaluation.bracket_files import LineTree, paired
from rankspace.trees import Tree

REMEDIES = (", or leave the line out with --skip-bad", ", or say --format text")  # of `data prepare`, not of this


class Files(NamedTuple):
    """What is compared, and how it is written. `preset` is that of `data prepare` by which gold is cleaned."""

    predicted: Path
    gold: Path
    labelled: bool = True
    gold_labelled: bool = True
    preset: str | None = None


def score_pair(files: Files, seed: int, max_length: int | None = None) -> dict[str, Any]:
    """Scores beside bounds, for `print_json`. Sentences of more than `max_length` words, as gold has them, are left out
    and counted. Raises FormatError, with file and line."""
    pairs = _pairs(files)
    short = [pair for pair in pairs if max_length is None or len(pair[0]) <= max_length]
    right, found = [gold for gold, _ in short], [predicted for _, predicted in short]
    about = {"predicted": str(files.predicted), "gold": str(files.gold)}
    about |= {} if files.preset is None else {"preset": files.preset}
    scores = {"parsing": score(right, found).to_json(), "bounds": bounds(right, seed=seed).to_json()}
    return {**about, "num_too_long": len(pairs) - len(short), **scores}


def _pairs(files: Files) -> list[tuple[Tree, Tree | None]]:
    try:
        right, found = _rows(files)
        return paired(files.gold, right, files.predicted, found)
    except FormatError as error:
        is_read_wrong = files.labelled and str(error).startswith(str(files.predicted)) and "word" in str(error)
        hint = "; if its brackets have no symbols, say --unlabelled." if is_read_wrong else "."
        raise FormatError(str(error).removesuffix(".") + hint) from None


def _rows(files: Files) -> tuple[list[LineTree], list[LineTree]]:
    """Gold and predicted trees. Those that a preset leaves out are left out of the predicted ones if they are there."""
    if files.preset is None:
        return read_trees(files.gold, files.gold_labelled), read_trees(files.predicted, files.labelled)
    cleaner = Cleaner(preset_of(files.preset, "evaluate").preprocessing)
    everything = _cleaned(files.gold, cleaner)
    found = read_trees(files.predicted, files.labelled)
    right = [row for row, is_left_out in everything if not is_left_out]
    if len(found) == len(everything):
        found = [row for row, (_, is_left_out) in zip(found, everything, strict=True) if not is_left_out]
    return right, _as_gold(found, right, cleaner)


def _cleaned(gold: Path, cleaner: Cleaner) -> list[tuple[LineTree, bool]]:
    """The trees of a treebank with words left after cleaning, and whether each is left out for its label."""
    rows = []
    try:
        for sentence in read_treebank(gold):
            cleaned = cleaner.clean(sentence)
            if cleaned.words:
                rows.append((LineTree(sentence.line, cleaned.tree()), cleaner.is_removed(sentence)))
    except FormatError as error:
        message = str(error)
        for remedy in REMEDIES:
            message = message.replace(remedy, "")
        raise FormatError(message) from None
    return rows


def _as_gold(found: Sequence[LineTree], right: Sequence[LineTree], cleaner: Cleaner) -> list[LineTree]:
    """Predicted trees with words written as in gold: in lower case, numbers as N, where the preset writes them so."""
    write = Cleaner(replace(cleaner.options, removed_words=()))
    partners = [*right, *[LineTree(0, None)] * (len(found) - len(right))]
    return [_written(row, partner.tree, write) for row, partner in zip(found, partners, strict=False)]


def _written(row: LineTree, gold: Tree | None, write: Cleaner) -> LineTree:
    if row.tree is None or gold is None or len(gold) != len(row.tree):
        return row
    words = [str(word) for word in row.tree.words]
    pairs = zip(words, write.clean(Sentence(words)).words, gold.words, strict=True)
    return row._replace(tree=replace(row.tree, words=tuple(r if cleaned == r else w for w, cleaned, r in pairs)))
