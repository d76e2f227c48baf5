"""From files to prepared data: read, clean, number, count, encode."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from rankspace import __version__
from rankspace.data.corpus import Corpus
from rankspace.data.encoding import Encoder, Names
from rankspace.data.lines import BadInput
from rankspace.data.prepared import CARD, PreparedData, load_prepared, sha256
from rankspace.data.preprocessing import Cleaner, Preprocessing
from rankspace.data.sentence import Sentence
from rankspace.data.sources import Source
from rankspace.data.split_table import SPLITS
from rankspace.data.text import Format, read_sentences
from rankspace.data.vocabulary import END, Vocabulary
from rankspace.errors import FormatError, RankspaceError


@dataclass
class Split:
    """A split in the making, and what was left out of it."""

    encoder: Encoder
    num_emptied: int = 0  # sentences of which preprocessing left no word
    num_removed: int = 0  # trees with a label that is left out


@dataclass
class Preparation:
    """All splits in the making. Words are numbered as they come, so files are read once."""

    preprocessing: Preprocessing
    format: Format = "auto"
    bad: BadInput = field(default_factory=BadInput)

    def __post_init__(self) -> None:
        self._cleaner = Cleaner(self.preprocessing)
        self._names = Names()
        self.splits: dict[str, Split] = {}

    def read(self, source: Source) -> None:
        """Adds the sentences of a source. Raises FormatError, with file and line, or counts what is bad."""
        for file in source.files:
            for split, sentence in self._sentences(file, source):
                own = self.splits.setdefault(split, Split(Encoder(self._names)))
                if self._cleaner.is_removed(sentence):
                    own.num_removed += 1
                    continue
                sentence = self._cleaner.clean(sentence)
                own.num_emptied += not sentence.words
                if found := self._problem(sentence):
                    problem, remedy = found
                    self.bad.report(f"{file}: line {sentence.line}: {problem}", remedy)
                elif sentence.words:
                    self._add(own, sentence, file)

    def _sentences(self, file: Path, source: Source) -> Iterator[tuple[str, Sentence]]:
        lines = set[int]()
        for sentence in read_sentences(file, self.format, self.bad):
            if source.table is None:
                yield source.split, sentence
            elif split := source.table.split_of.get(sentence.line):
                lines.add(sentence.line)
                yield split, sentence
            else:
                problem = f"{file}: line {sentence.line}: has no split in {source.table.file}"
                self.bad.report(problem, "add a row for it")
        if source.table is not None and not self.bad.skip and (missing := source.table.split_of.keys() - lines):
            raise FormatError(
                f"{source.table.file}: has a split for line {min(missing) - 1}, where {file} has no tree."
            )

    def _problem(self, sentence: Sentence) -> tuple[str, str] | None:
        """What is wrong with a sentence, and the remedy."""
        most, length = self.preprocessing.max_length, len(sentence.words)
        if most and length > most:
            return (
                f"the sentence has {length} words, more than --max-length {most}",
                "divide it, leave it out with --skip-bad, or allow it with a larger --max-length",
            )
        if self.preprocessing.eos and END in sentence.words:
            return f"holds {END}, which is added to every sentence", "remove it"
        return None

    def _add(self, split: Split, sentence: Sentence, file: Path) -> None:
        try:
            split.encoder.add(sentence)
        except RankspaceError as error:
            raise FormatError(f"{file}: line {sentence.line}: {error}") from None


def prepare(
    sources: Sequence[Source],
    preprocessing: Preprocessing,
    vocabulary: Path | None = None,
    format: Format = "auto",
    bad: BadInput | None = None,
    preset: str | None = None,
) -> PreparedData:
    """Reads sources and encodes them; `save_prepared` writes the result.

    The vocabulary is that of the training split, or one from a file or from a folder of prepared data. Memory is four
    bytes a word (with trees about twelve a node more) and one entry per different word; text itself is not kept.
    Raises FormatError, with file and line, for bad input that `bad` does not skip, for a split of which nothing is
    left, and where there is no training split and no vocabulary.
    """
    known = None if vocabulary is None else load_vocabulary(vocabulary)
    if known is not None:
        preprocessing = replace(preprocessing, eos=known.eos is not None)
    preparation = Preparation(preprocessing, format, bad or BadInput())
    for source in sources:
        preparation.read(source)
    splits = {name: preparation.splits[name] for name in SPLITS if name in preparation.splits}
    _check_splits(sources, splits, known)
    if known is None:
        counts, options = splits["train"].encoder.counts(), preprocessing
        known = Vocabulary.from_counts(counts, options.max_words, options.min_count, options.eos)
    corpora = {name: split.encoder.corpus(known) for name, split in splits.items()}
    card = make_card(preset, preprocessing, [_source_entry(source) for source in sources], corpora)
    card["num_skipped"] = preparation.bad.num_skipped
    card["vocabulary"]["from"] = "train" if vocabulary is None else vocabulary.name
    for name, split in splits.items():
        card["splits"][name] |= {"num_emptied": split.num_emptied, "num_removed": split.num_removed}
    return PreparedData(card, known, corpora)


def make_card(
    preset: str | None, preprocessing: Preprocessing, sources: list[dict[str, Any]], corpora: Mapping[str, Corpus]
) -> dict[str, Any]:
    """The card of corpora with one vocabulary, that of their training split, of which nothing was left out."""
    return {
        "writer": f"rankspace {__version__}",
        "preset": preset,
        "preprocessing": asdict(preprocessing),
        "sources": sources,
        "num_skipped": 0,
        "vocabulary": {"num_words": len(next(iter(corpora.values())).vocabulary), "from": "train"},
        **_names(corpora),
        "splits": {name: _split_entry(corpus) for name, corpus in corpora.items()},
    }


def load_vocabulary(path: Path) -> Vocabulary:
    """From a file, or from a folder of prepared data."""
    if not path.exists():
        raise FormatError(f"{path}: there is no such file or folder; give a vocabulary.")
    return load_prepared(path).vocabulary if path.is_dir() or path.name == CARD else Vocabulary.load(path)


def _check_splits(sources: Sequence[Source], splits: Mapping[str, Split], known: Vocabulary | None) -> None:
    for source in sources:
        if source.table is None and not (source.split in splits and len(splits[source.split].encoder)):
            raise FormatError(f"{source.name}: no sentence is left for the split {source.split}; look at the options.")
    if known is None and not ("train" in splits and len(splits["train"].encoder)):
        raise FormatError("prepare: there is no training split to take the vocabulary from; give one, or --vocabulary.")


def _names(corpora: Mapping[str, Corpus]) -> dict[str, list[str]]:
    gold = next((corpus.gold for corpus in corpora.values() if corpus.gold is not None), None)
    return {"labels": list(gold.label_names) if gold else [], "tags": list(gold.tag_names) if gold else []}


def _source_entry(source: Source) -> dict[str, Any]:
    table = {} if source.table is None else {"table": source.table.file.name}
    split = source.split if source.table is None else None
    return {
        "name": source.name,
        "split": split,
        **table,
        "num_files": len(source.files),
        "sha256": sha256(source.files),
    }


def _split_entry(corpus: Corpus) -> dict[str, Any]:
    return {
        "num_sentences": len(corpus),
        "num_words": len(corpus.tokens),
        "num_unknown": int((corpus.tokens == corpus.vocabulary.unk).sum()),
        "longest": int(corpus.lengths.max(initial=0)),
        "num_emptied": 0,
        "num_removed": 0,
        "num_spans": None if corpus.gold is None else len(corpus.gold.spans),
    }
