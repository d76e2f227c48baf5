"""`rankspace score`: how probable sentences are, and how surprising each word."""

import math
from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any

import typer

from rankspace.cli.memory import within_memory
from rankspace.cli.output import number, print_json
from rankspace.cli.run_options import (
    MAX_TOKENS,
    Checkpoint,
    CheckpointName,
    Device,
    DeviceName,
    Fallback,
    JsonLines,
    MaxTokens,
    ModelOption,
    Quiet,
    RunOrNone,
    chosen_run,
    counting,
    load_run,
    notify,
)
from rankspace.cli.sentences import Clean, Files, Given, Trees, read_chunks, read_through
from rankspace.errors import RankspaceError

COLUMNS = ("sentence", "place", "word", "seen", "surprisal")  # with --surprisal


def score(
    run: RunOrNone = None,
    files: Files = None,
    model: ModelOption = None,
    surprisal: Annotated[
        bool, typer.Option("--surprisal", help="Print a line for each word: - log p(word | words before it).")
    ] = False,
    base: Annotated[str, typer.Option(help="Base of the logarithms: e (nats), 2 (bits) or 10.")] = "e",
    trees: Trees = False,
    clean: Clean = False,
    as_json: JsonLines = False,
    checkpoint: Checkpoint = CheckpointName.best,
    fallback: Fallback = False,
    max_tokens: MaxTokens = MAX_TOKENS,
    device: Device = DeviceName.auto,
    quiet: Quiet = False,
) -> None:
    """Print the log-probability of each sentence, a tab and the sentence; on stderr, totals and perplexity.

    An impossible sentence has -inf. An empty line stays empty and is not scored.

    With --surprisal the first line names the columns. Each line after it has the number of the sentence, the place of
    the word in it, the word, the word as the model sees it, and its surprisal. The last line of a sentence is that of
    its end.

    Examples:

    rankspace score my-run text.txt > scores.tsv

    echo "the horse raced past the barn fell" | rankspace score my-run --surprisal --base 2
    """
    unit = _unit(base)
    run, files = chosen_run("score", run, model, files)
    trained = load_run("score", run, checkpoint, device, fallback, quiet)
    if surprisal:
        trained.check_surprisal()
    trained.max_tokens = max_tokens
    totals = Totals(trained)
    num_read = 0
    with counting("reading", quiet, is_printing=True) as counter:
        counter.begin("scoring", read_through(files, trees))
        counter.follow([trained])
        for chunk in read_chunks(files, trees, trained.card if clean else None, partial(notify, quiet=quiet)):
            for entry in _scored(trained, chunk, surprisal):
                if surprisal and not as_json and not num_read:
                    print(*COLUMNS, sep="\t")
                num_read += 1
                totals.add(entry)
                _print_json(trained, num_read, entry, base) if as_json else _print(trained, num_read, entry, unit)
            counter.reach(num_read)
    notify(totals.line(base, unit), quiet)


class Totals:
    """What perplexity needs of the sentences; those without words do not count."""

    def __init__(self, trained: Any) -> None:
        self.is_tree, self.num_ends = trained.kind == "tree", int(trained.eos is not None)
        self.log_probs: list[float] = []
        self.lengths: list[int] = []

    def add(self, entry: dict[str, Any]) -> None:
        if entry["words"]:
            self.log_probs.append(entry["log_prob"])
            self.lengths.append(len(entry["words"]))

    def line(self, base: str, unit: float) -> str:
        """Sentences, words, log p and perplexity in one line."""
        from rankspace.evaluation import chain_perplexity, tree_perplexity

        if self.is_tree:
            found = tree_perplexity(self.log_probs, self.lengths)
        else:
            found = chain_perplexity(self.log_probs, [length + self.num_ends for length in self.lengths])
        text = (
            f"{len(self.lengths):,} sentences, {sum(self.lengths):,} words: log p {found.log_prob / unit:.4f} "
            f"(base {base}), perplexity {found.of_possible:.4f}"
        )
        if found.num_skipped:
            text += f"; {found.num_skipped:,} of one word left out of both"
        return f"{text}; {found.num_impossible:,} impossible left out of both" if found.num_impossible else text


def _unit(base: str) -> float:
    """What a logarithm is divided by."""
    units = {"e": 1.0, "2": math.log(2), "10": math.log(10)}
    if base not in units:
        raise RankspaceError(f"score: base is {base!r}; give e, 2 or 10.")
    return units[base]


def _scored(trained: Any, chunk: Sequence[Given], surprisal: bool) -> list[dict[str, Any]]:
    """words and log_prob of each sentence, None where it has no words, and its surprisals if wanted; in nats."""
    from rankspace.training import Trained

    nothing: dict[str, Any] = {"surprisal": []} if surprisal else {}
    entries: list[dict[str, Any]] = [{"words": sentence.words, "log_prob": None, **nothing} for sentence in chunk]
    chosen = [place for place, sentence in enumerate(chunk) if sentence.words]
    sentences = [chunk[place] for place in chosen]
    if not surprisal:
        found = within_memory(trained, sentences, Trained.log_prob)
        for place, value in zip(chosen, found, strict=True):
            entries[place]["log_prob"] = value
        return entries
    rows = within_memory(trained, sentences, Trained.surprisal)
    for place, row in zip(chosen, rows, strict=True):
        entries[place] |= {"log_prob": -math.fsum(row), "surprisal": row}
    return entries


def _print_json(trained: Any, place: int, entry: dict[str, Any], base: str) -> None:
    """One object; a sentence without words has no log-probability and lists without entries."""
    words, log_prob, unit = entry["words"], entry["log_prob"], _unit(base)
    found = {"number": place, "words": words, "base": base, "log_prob": log_prob and log_prob / unit}
    if "surprisal" in entry:
        found["seen"] = _seen(trained, words) if words else []
        found["surprisal"] = [value / unit for value in entry["surprisal"]]
    print_json(found)


def _print(trained: Any, place: int, entry: dict[str, Any], unit: float) -> None:
    words, log_prob, surprisals = entry["words"], entry["log_prob"], entry.get("surprisal")
    if not words:
        print()
    elif surprisals is None:
        print(f"{number(log_prob / unit)}\t{' '.join(words)}")
    else:
        seen_as = _seen(trained, words)
        shown = [*words, *seen_as[len(words) :]]
        for at, (word, seen_word, value) in enumerate(zip(shown, seen_as, surprisals, strict=True), start=1):
            print(f"{place}\t{at}\t{word}\t{seen_word}\t{number(value / unit)}")


def _seen(trained: Any, words: Sequence[str]) -> list[str]:
    """The words as the model reads them, <eos> included; of a grammar, too, where the end is no word."""
    from rankspace.data.vocabulary import END

    numbers, lengths = trained.encode([words])
    seen: list[str] = trained.vocabulary.decode(numbers[0, : lengths[0]].tolist())
    return [*seen, END] if trained.kind == "tree" else seen
