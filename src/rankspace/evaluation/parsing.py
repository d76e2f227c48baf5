"""Scores of unlabelled parsing, in per cent.

S-F1 is the mean over sentences of more than one word of the F1 of their brackets (`brackets.py`); corpus F1 is that of
all brackets together. Where gold has no bracket, recall is 1, and precision is 1 only if nothing was predicted either:
sentences of two words score 100, longer flat ones 0 under a binary tree. One-word sentences are skipped and counted.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from math import fsum
from typing import Any, NamedTuple

from rankspace.evaluation.brackets import Comparison, Parse, compare
from rankspace.evaluation.text_table import percentage, text_table

LENGTHS = (10, 20, 30, 40)  # the last lengths of buckets; one more has what is longer
UNLABELLED = "(none)"  # the name of gold nodes without label


class F1(NamedTuple):
    """Precision, recall and their harmonic mean, in per cent."""

    precision: float
    recall: float
    f1: float


@dataclass(frozen=True)
class Bucket:
    """Scores of the sentences of some lengths; None where there are none."""

    shortest: int
    longest: int | None  # None: no limit
    num_sentences: int
    s_f1: float | None
    corpus_f1: float | None


@dataclass(frozen=True)
class LabelRecall:
    """How many gold brackets of a label were predicted, under whatever label."""

    num_gold: int
    num_found: int

    @property
    def recall(self) -> float:
        return 100 * self.num_found / self.num_gold


@dataclass(frozen=True)
class ParseScores:
    """Scores of one list of parses, in per cent; None where no sentence counts.

    `s_f1_longer` is S-F1 over sentences of more than two words. Sentences without a predicted tree (`num_unparsed`) are
    scored as predicting no brackets.
    """

    num_sentences: int  # scored
    num_skipped: int  # of one word
    num_unparsed: int
    s_f1: float | None
    s_f1_longer: float | None
    corpus_precision: float | None
    corpus_recall: float | None
    corpus_f1: float | None
    by_label: dict[str, LabelRecall]
    by_length: tuple[Bucket, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain objects, for `json.dumps`."""
        labels = {label: {**asdict(found), "recall": found.recall} for label, found in self.by_label.items()}
        return {**asdict(self), "by_label": labels, "by_length": [asdict(bucket) for bucket in self.by_length]}

    def table(self) -> str:
        """The scores as text: the totals, then lengths, then labels."""
        totals = [
            ("S-F1", percentage(self.s_f1)),
            ("S-F1, more than 2 words", percentage(self.s_f1_longer)),
            ("corpus F1", percentage(self.corpus_f1)),
            ("corpus precision", percentage(self.corpus_precision)),
            ("corpus recall", percentage(self.corpus_recall)),
            ("sentences scored", str(self.num_sentences)),
            ("skipped, of one word", str(self.num_skipped)),
            ("without a tree", str(self.num_unparsed)),
        ]
        lengths = [
            (_range(bucket), str(bucket.num_sentences), percentage(bucket.s_f1), percentage(bucket.corpus_f1))
            for bucket in self.by_length
            if bucket.num_sentences
        ]
        labels = [(label, str(found.num_gold), percentage(found.recall)) for label, found in self.by_label.items()]
        parts = [text_table(("score", ""), totals), text_table(("words", "sentences", "S-F1", "corpus F1"), lengths)]
        return "\n\n".join([*parts, text_table(("gold label", "brackets", "recall"), labels)])


def score(
    gold: Sequence[Parse],
    predicted: Sequence[Parse | None],
    lengths: Sequence[int] | None = None,
    last_lengths: Sequence[int] = LENGTHS,
) -> ParseScores:
    """Scores of predicted parses, each a `Tree`, spans, or None where no tree was found.

    Gold parses are trees, or spans with `lengths`. Buckets of lengths end at `last_lengths`. Raises ShapeError where
    numbers of sentences or of words do not match.
    """
    everything = compare(gold, predicted, lengths)
    scored = [sentence for sentence in everything if sentence.length > 1]
    total = corpus_f1(scored) if scored else None
    return ParseScores(
        num_sentences=len(scored),
        num_skipped=len(everything) - len(scored),
        num_unparsed=sum(not sentence.is_parsed for sentence in scored),
        s_f1=s_f1(scored),
        s_f1_longer=s_f1([sentence for sentence in scored if sentence.length > 2]),
        corpus_precision=total and total.precision,
        corpus_recall=total and total.recall,
        corpus_f1=total and total.f1,
        by_label=label_recalls(scored),
        by_length=tuple(_buckets(scored, last_lengths)),
    )


def f1(num_common: int, num_gold: int, num_predicted: int) -> F1:
    """From counts of brackets; with no gold bracket, recall is 1 and precision is 1 only if none was predicted."""
    recall = num_common / num_gold if num_gold else 1.0
    precision = num_common / num_predicted if num_predicted else float(num_gold == 0)
    mean = 2 * precision * recall / (precision + recall) if precision + recall else 0.0
    return F1(100 * precision, 100 * recall, 100 * mean)


def s_f1(sentences: Sequence[Comparison]) -> float | None:
    """The mean of sentences' F1; None of none."""
    scores = [f1(each.num_common, len(each.gold), len(each.predicted)).f1 for each in sentences]
    return fsum(scores) / len(scores) if scores else None


def corpus_f1(sentences: Iterable[Comparison]) -> F1:
    """F1 of the brackets of all sentences together."""
    counts = [(each.num_common, len(each.gold), len(each.predicted)) for each in sentences]
    return f1(*(sum(column) for column in zip(*counts, strict=True)))


def label_recalls(sentences: Iterable[Comparison]) -> dict[str, LabelRecall]:
    """For each gold label, most frequent first, how many of its brackets were predicted."""
    gold, found = Counter[str](), Counter[str]()
    for sentence in sentences:
        for begin, end, symbol in sentence.labels:
            label = UNLABELLED if symbol is None else str(symbol)
            gold[label] += 1
            found[label] += (begin, end) in sentence.predicted
    order = sorted(gold, key=lambda label: (-gold[label], label))
    return {label: LabelRecall(gold[label], found[label]) for label in order}


def _buckets(sentences: Sequence[Comparison], last_lengths: Sequence[int]) -> Iterable[Bucket]:
    first = 2
    for last in (*sorted(last_lengths), None):
        inside = [each for each in sentences if first <= each.length and (last is None or each.length <= last)]
        yield Bucket(first, last, len(inside), s_f1(inside), corpus_f1(inside).f1 if inside else None)
        first = first if last is None else last + 1


def _range(bucket: Bucket) -> str:
    return f"{bucket.shortest}-{bucket.longest}" if bucket.longest else f"{bucket.shortest}-"
