"""A trained model with its vocabulary: what `rankspace.load` gives, and what users ask of it in words."""

import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from rankspace.data.preprocessing import Cleaner, Preprocessing
from rankspace.data.sentence import Sentence
from rankspace.data.vocabulary import Vocabulary
from rankspace.distributions.contract import Distribution
from rankspace.errors import FormatError, NotEnoughMemoryError, RankspaceError, lack_told
from rankspace.models import Model, Posed, create
from rankspace.models.memory import shortage_of_samples, shortage_of_tables, shortage_of_weights
from rankspace.training.checkpoints import Checkpoint
from rankspace.training.config import Config, config_from_text
from rankspace.training.machine import without_weights
from rankspace.training.run_directory import BEST, Good, RunDirectory
from rankspace.training.shipped import find_run
from rankspace.trees import Tree

Words = Sequence[str]

MAX_TOKENS = 2048  # words of a batch with its padding
ELSEWHERE = "load the model on a device with more memory"


class Part(NamedTuple):
    """Some of the sentences a user gave: their places, and the batch."""

    places: list[int]
    words: Int[Tensor, "batch length"]
    lengths: list[int]


class Sample(NamedTuple):
    """A sentence drawn from a model. A grammar gives no words to a sentence that was cut off."""

    words: tuple[str, ...]  # without <eos>
    tree: Tree | None  # of a grammar, with symbols as numbers
    cut: bool  # it grew longer than allowed


def unwatched(num_sentences: int) -> None:
    """Nobody asks how far a query is."""


class Trained:
    """A trained model. All queries take lists of words and keep their order; unknown words are <unk>.

    model: in evaluation mode. card: of the run: model, data, environment, precision, results. checkpoint, step: of the
    weights.
    notice: what was wrong with the checkpoint that was asked for, if another was taken.
    max_tokens: words of a batch, padding included; lower it where memory is short.
    watch: called with the number of sentences of each batch that is done.
    """

    def __init__(
        self,
        model: Model,
        vocabulary: Vocabulary,
        card: dict[str, Any],
        config: str = "",
        step: int = 0,
        notice: str | None = None,
        max_tokens: int = MAX_TOKENS,
        checkpoint: str = BEST,
    ) -> None:
        self.model, self.vocabulary, self.card = model.eval(), vocabulary, card
        self.step, self.notice, self.max_tokens = step, notice, max_tokens
        self.checkpoint = checkpoint
        self.watch: Callable[[int], None] = unwatched
        self._config = config
        preprocessing = card.get("data", {}).get("preprocessing", {})
        known = {name: preprocessing[name] for name in ("lower_case", "numbers") if name in preprocessing}
        self._cleaner = Cleaner(Preprocessing(**known))

    @cached_property
    def config(self) -> Config:
        """How it was trained."""
        return config_from_text(self._config, "config.toml")

    @property
    def kind(self) -> str:
        """tree or chain."""
        return self.model.KIND

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    @property
    def eos(self) -> int | None:
        """The number of <eos> if it ends every sentence of this model."""
        return end_of(self.model)

    def encode(self, sentences: Sequence[Words]) -> tuple[Int[Tensor, "batch length"], list[int]]:
        """Words as numbers, padded, and lengths: lower-cased and with numbers replaced as the training text was.

        Unknown words become <unk>; <eos> is appended, and counted, where the model has it. On the model's device.
        """
        end = [] if self.eos is None else [self.eos]
        rows = [[*self.vocabulary.encode(self._cleaned(words)).tolist(), *end] for words in sentences]
        lengths = [len(row) for row in rows]
        table = torch.zeros(len(rows), max(lengths, default=0), dtype=torch.int64)
        for place, row in enumerate(rows):
            table[place, : len(row)] = torch.tensor(row, dtype=torch.int64)
        return table.to(self.device), lengths

    def _cleaned(self, words: Words) -> list[str]:
        """Words of the vocabulary stay as they are: those of prepared data are cleaned, and N would become n."""
        cleaned = self._cleaner.clean(Sentence(list(words))).words
        return [own if own in self.vocabulary else other for own, other in zip(words, cleaned, strict=True)]

    def parts(self, sentences: Sequence[Words]) -> Iterator[Part]:
        """The sentences in batches of at most `max_tokens` words with padding, short ones first."""
        for places in self.division(sentences):
            yield Part(places, *self.encode([sentences[place] for place in places]))
            self.watch(len(places))

    def division(self, sentences: Sequence[Words]) -> Iterator[list[int]]:
        """The places of the sentences of each of these batches."""
        extra = self.eos is not None
        order = sorted(range(len(sentences)), key=lambda place: len(sentences[place]))
        batch: list[int] = []
        for place in order:
            if batch and (len(batch) + 1) * (len(sentences[place]) + extra) > self.max_tokens:
                yield batch
                batch = []
            batch.append(place)
        if batch:
            yield batch

    def posed(self, sentences: Sequence[Words]) -> Iterator[tuple[Part, Posed]]:
        """Each batch with the distribution over its words, for queries of one's own; no gradient."""
        for part in self.parts(sentences):
            with torch.no_grad():
                posed = self.model.pose(part.words, part.lengths)
            yield part, posed

    def parse(self, sentences: Sequence[Words]) -> list[Tree | None]:
        """The tree of each sentence with the largest expected number of correct spans, with the words as given.

        One word has the trivial tree; a sentence that is impossible or has no word, None. Raises RankspaceError for a
        chain, which has no trees.
        """
        self._check_trees("parse", sentences)
        results: list[Tree | None] = [_trivial(words) for words in sentences]
        long = [place for place, words in enumerate(sentences) if len(words) > 1]
        for part, posed in self.posed([sentences[place] for place in long]):
            query: Any = posed.distribution
            for place, tree in zip(part.places, query.mbr(posed.words, posed.lengths), strict=True):
                words = tuple(sentences[long[place]])
                results[long[place]] = None if tree is None else Tree(words, tree.nodes)
        return results

    def span_marginals(self, sentences: Sequence[Words]) -> list[Float[Tensor, "_ _"] | None]:
        """p(words i to j - 1 are a constituent) at [i, j], of each sentence, on the host; single words have 1.

        A sentence that is impossible or has no word has None. Raises RankspaceError for a chain.
        """
        self._check_trees("span_marginals", sentences)
        results: list[Tensor | None] = [_one_word() if len(words) == 1 else None for words in sentences]
        long = [place for place, words in enumerate(sentences) if len(words) > 1]
        for part, posed in self.posed([sentences[place] for place in long]):
            query: Any = posed.distribution
            found = query.span_marginals(posed.words, posed.lengths).cpu()
            for place, length, chart in zip(part.places, part.lengths, found, strict=True):
                if chart[0, length] > 0:  # the whole sentence
                    results[long[place]] = chart[: length + 1, : length + 1].double()
        return results

    def log_prob(self, sentences: Sequence[Words]) -> list[float]:
        """log p of each sentence, -inf for an impossible one; for a compound model, the figure that it has instead."""
        check_sentences("log_prob", sentences)
        results = [float("-inf")] * len(sentences)
        for part in self.parts(sentences):
            with torch.no_grad():
                found = self.model.log_prob(part.words, part.lengths).tolist()
            for place, value in zip(part.places, found, strict=True):
                results[place] = value
        return results

    def surprisal(self, sentences: Sequence[Words]) -> list[list[float]]:
        """- log p(word | words before it) of each word, in nats; the last is that of <eos>, where the model has it, and
        for a grammar that of the end of the sentence. They sum to minus the log-probability of the sentence.

        Raises RankspaceError for a compound grammar, which is made for each sentence from all of its words.
        """
        self.check_surprisal()
        check_sentences("surprisal", sentences)
        results: list[list[float]] = [[] for _ in sentences]
        for part, posed in self.posed(sentences):
            query: Any = posed.distribution
            has_end = {"end": True} if self.kind == "tree" else {}
            rows = query.surprisal(posed.words, posed.lengths, **has_end).tolist()
            for place, row, length in zip(part.places, rows, part.lengths, strict=True):
                results[place] = row[: length + len(has_end)]
        return results

    def check_surprisal(self) -> None:
        """Raises RankspaceError for a model that knows no p(word | words before it)."""
        if self.model.BOUND:
            raise RankspaceError(
                f"surprisal: {self.model.NAME} makes a grammar for each sentence from all of its words, so no word has "
                f"a probability given those before it alone; take a grammar that is not compound, or a chain."
            )

    def sample(self, num: int, max_length: int = 40, seed: int = 0) -> list[Sample]:
        """`num` sentences drawn from the model, the same for the same seed on the same device."""

        def tell(error: BaseException) -> NotEnoughMemoryError:
            remedy = f"draw fewer at a time, or {ELSEWHERE}"
            return shortage_of_samples(self.model, num, max_length).told("sample", error, remedy)

        generator = torch.Generator(self.device).manual_seed(seed)
        with torch.no_grad(), lack_told(tell):
            if type(self.model).sampler is Model.sampler:  # one distribution for all sentences
                return self._drawn(self.model.sampler(generator), num, max_length, generator)
            return [self._drawn(self.model.sampler(generator), 1, max_length, generator)[0] for _ in range(num)]

    def _drawn(self, distribution: Any, num: int, max_length: int, generator: torch.Generator) -> list[Sample]:
        drawn = distribution.sample(num, max_length, generator)
        if self.kind == "tree":
            return [self._sampled_tree(tree) for tree in drawn.trees]
        rows = zip(drawn.words.tolist(), drawn.lengths.tolist(), drawn.cut.tolist(), strict=True)
        return [self._sampled_words(row[:length], cut) for row, length, cut in rows]

    def _sampled_tree(self, tree: Tree | None) -> Sample:
        if tree is None:
            return Sample((), None, True)
        words = tuple(self.vocabulary.decode(int(word) for word in tree.words))
        return Sample(words, Tree(words, tree.nodes), False)

    def _sampled_words(self, numbers: list[int], cut: bool) -> Sample:
        if numbers and numbers[-1] == self.eos:
            numbers = numbers[:-1]
        return Sample(tuple(self.vocabulary.decode(numbers)), None, cut)

    def distribution(self) -> Distribution:
        """The distribution over the whole vocabulary; without gradient."""
        with (
            torch.no_grad(),
            lack_told(lambda error: shortage_of_tables(self.model).told("distribution", error, ELSEWHERE)),
        ):
            distribution: Distribution = self.model()
            return distribution

    def _check_trees(self, query: str, sentences: Sequence[Words]) -> None:
        if self.kind != "tree":
            raise RankspaceError(f"{query}: {self.model.NAME} is a chain; this is for grammars, which have trees.")
        check_sentences(query, sentences)


def load(
    directory: str | os.PathLike[str], checkpoint: str = "best", device: str = "cpu", *, fallback: bool = False
) -> Trained:
    """The trained model of a run, or of the package by its name, from a checkpoint: best, held-out, last or
    previous.

    A folder comes before a model of the package that has its name. Where there is no best checkpoint, that which
    held-out text chose is taken for it, or else the last one; `Trained.checkpoint` is its name. With `fallback`, a
    checkpoint that cannot be read is replaced by another of the run, with a warning that says so. Raises FormatError
    for what is no run, and for a checkpoint that is missing, foreign, truncated or of a later version;
    NotEnoughMemoryError for a model that the device does not hold.
    """
    run = RunDirectory.open(find_run(Path(directory)))
    vocabulary = run.vocabulary()
    with lack_told(lambda error: _without_room(run, error)):
        found = run.read_good(checkpoint) if fallback else Good(run.read(checkpoint), run.name_of(checkpoint), None)
        if found.notice:
            warnings.warn(found.notice, stacklevel=2)
        model = restored(run, found.checkpoint).to(device)
    step, name, notice = found.checkpoint.step, found.name, found.notice
    return Trained(model, vocabulary, run.card, run.config, step, notice, checkpoint=name)


def _without_room(run: RunDirectory, error: BaseException) -> NotEnoughMemoryError:
    """What is told of a lack of memory for the model of a run."""
    model = without_weights(*_named(run))
    return shortage_of_weights(model, learns=False).told("load", error, f"free memory, or {ELSEWHERE}")


def check_sentences(query: str, sentences: Sequence[Words]) -> None:
    """Raises RankspaceError for text in the place of words, whose letters would be taken for them."""
    text = (
        sentences if isinstance(sentences, str) else next((each for each in sentences if isinstance(each, str)), None)
    )
    if text is not None:
        raise RankspaceError(f"{query}: {text!r} is text; give lists of words, such as {[text.split()]}.")


def end_of(model: Model) -> int | None:
    """The number of <eos> if it ends every sentence of a model."""
    return model.settings.get("eos") if model.KIND == "chain" else None


def restored(run: RunDirectory, checkpoint: Checkpoint) -> Model:
    """A model of a run's kind with the weights of a checkpoint. Raises FormatError where these do not fit."""
    name, settings = _named(run)
    with torch.random.fork_rng([]):  # the weights drawn here are replaced at once
        model = create(name, **settings)
    load_weights(model, checkpoint, run.path)
    return model


def _named(run: RunDirectory) -> tuple[str, dict[str, Any]]:
    """The name and the settings of the model of a run."""
    try:
        return run.card["model"]["name"], run.card["model"]["settings"]
    except (KeyError, TypeError):
        raise FormatError(f"{run.path}: the card names no model; bring back card.json, or train again.") from None


def load_weights(model: Model, checkpoint: Checkpoint, path: Path) -> None:
    """Puts the weights of a checkpoint into a model. Raises FormatError where they do not fit."""
    own = model.state_dict()
    for name in own.keys() | checkpoint.weights.keys():
        shapes = [tuple(table[name].shape) if name in table else None for table in (own, checkpoint.weights)]
        if shapes[0] != shapes[1]:
            raise FormatError(
                f"{path}: the checkpoint does not fit {model.NAME}: {name} is {shapes[1]}, not {shapes[0]}; it belongs "
                f"to another run."
            )
    model.load_state_dict(dict(checkpoint.weights))


def _one_word() -> Float[Tensor, "end end"]:
    return torch.tensor([[0.0, 1.0], [0.0, 0.0]], dtype=torch.float64)


def _trivial(words: Words) -> Tree | None:
    return Tree.from_spans(words, []) if len(words) == 1 else None
