"""`rankspace parse`: sentences in, trees out."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rankspace.cli.memory import marginals_of_all, within_memory
from rankspace.cli.run_options import (
    MAX_TOKENS,
    Checkpoint,
    CheckpointName,
    Device,
    DeviceName,
    Fallback,
    Force,
    MaxTokens,
    ModelOption,
    Quiet,
    RunOrNone,
    With,
    check_file,
    check_folder,
    chosen_run,
    counting,
    load_others,
    load_run,
    notify,
    require_grammar,
)
from rankspace.cli.sentences import Clean, Files, Given, Trees, read_chunks, read_through
from rankspace.errors import RankspaceError

if TYPE_CHECKING:
    from rankspace.cli.parsed import Parsed, Wanted

Write = Callable[[int, "Parsed"], None]  # the number of the sentence, from 1, and its parse


class TreeFormat(StrEnum):
    """How trees are written."""

    brackets = "brackets"
    json = "json"
    drawing = "drawing"
    svg = "svg"


def parse(
    run: RunOrNone = None,
    files: Files = None,
    model: ModelOption = None,
    format: Annotated[
        TreeFormat, typer.Option("--format", "-f", help="How to write trees: brackets, json, drawing or svg.")
    ] = TreeFormat.brackets,
    labels: Annotated[bool, typer.Option("--labels", help="Show the symbols of the grammar: NT-12, PT-3.")] = False,
    kbest: Annotated[int, typer.Option(min=1, metavar="K", help="Print the K best trees of each sentence.")] = 1,
    trees: Trees = False,
    clean: Clean = False,
    others: With = None,
    max_length: Annotated[
        int | None, typer.Option(min=1, help="Longer sentences get no tree, and take neither time nor memory.")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="PATH", help="Write to this file or, with --format svg, this folder."),
    ] = None,
    force: Force = False,
    checkpoint: Checkpoint = CheckpointName.best,
    fallback: Fallback = False,
    max_tokens: MaxTokens = MAX_TOKENS,
    device: Device = DeviceName.auto,
    quiet: Quiet = False,
) -> None:
    """Parse sentences with a trained grammar: trees with the most spans that are right in expectation (MBR).

    The input has one sentence per line, as words with blanks between them; trees come in the same order.

    A sentence that the grammar cannot produce has () in place of its tree, and an empty line stays an empty line.

    Grammars of different seeds or recipes make different errors. With --with, several parse together: each span counts
    with the mean of its probabilities under all of them.

    Examples:

    echo "the dog sleeps" | rankspace parse my-run

    echo "these mice have a mutation in the gene" | rankspace parse --model craft-small

    rankspace parse my-run text.txt --format json --labels > trees.jsonl

    rankspace parse my-run text.txt --format svg --output pictures

    rankspace parse runs/seed-1 text.txt --with runs/seed-2 --with runs/seed-3
    """
    _check(format, labels, kbest, output, force)
    if labels and others:
        raise RankspaceError("parse: grammars that parse together have no symbols in common; leave out --labels.")
    run, files = chosen_run("parse", run, model, files)
    trained = load_run("parse", run, checkpoint, device, fallback, quiet)
    require_grammar("parse", trained)
    grammars = [trained, *load_others("parse", others, checkpoint, device, fallback, quiet)]
    for each in grammars:
        each.max_tokens = max_tokens
    from rankspace.cli.parsed import Wanted

    wanted = Wanted(labels, kbest, format in (TreeFormat.json, TreeFormat.svg))
    with counting("reading", quiet, output is None) as counter, _opened(format, output, wanted) as write:
        counter.begin("parsing", read_through(files, trees))
        counter.follow(grammars)
        num_all = num_none = 0
        for chunk in read_chunks(files, trees, trained.card if clean else None, partial(notify, quiet=quiet)):
            for parsed in _parsed(grammars, chunk, wanted, max_length):
                num_all += 1
                num_none += bool(parsed.words) and not parsed.trees
                write(num_all, parsed)
            counter.reach(num_all)
    if output is not None:
        notify(f"wrote {output}", quiet)
    if num_none:
        notify(f"{num_none} of {num_all} sentences have no tree: they are impossible or too long.", quiet)


def _check(format: TreeFormat, labels: bool, kbest: int, output: Path | None, force: bool) -> None:
    """What can be known to fail beforehand."""
    if labels and kbest > 1:
        raise RankspaceError("parse: --kbest has no --labels; its trees differ in spans.")
    if format == TreeFormat.svg:
        if output is None:
            raise RankspaceError("parse: --format svg writes a file for each sentence; give a folder with --output.")
        check_folder(output)
    elif output is not None:
        check_file(output, force)


def _parsed(grammars: list[Any], chunk: list[Given], wanted: "Wanted", max_length: int | None) -> "list[Parsed]":
    from rankspace.cli.parsed import Parsed

    results = [Parsed(tuple(sentence.words)) for sentence in chunk]
    short = [place for place, each in enumerate(chunk) if max_length is None or len(each.words) <= max_length]
    sentences = [chunk[place] for place in short]
    for place, parsed in zip(short, _all_parsed(grammars, sentences, wanted), strict=True):
        results[place] = parsed
    return results


def _all_parsed(grammars: list[Any], sentences: list[Given], wanted: "Wanted") -> "list[Parsed]":
    from rankspace.cli.parsed import parse_all, parse_together

    if len(grammars) == 1:
        return within_memory(grammars[0], sentences, lambda model, some: parse_all(model, some, wanted), parses=True)
    return parse_together(grammars, marginals_of_all(grammars, sentences), [each.words for each in sentences], wanted)


@contextmanager
def _opened(format: TreeFormat, output: Path | None, wanted: "Wanted") -> Iterator[Write]:
    """Where parses go: to stdout at once, or to a file or folder that is there when all are written."""
    from rankspace.cli.tree_formats import as_brackets, as_drawing, as_json
    from rankspace.files import whole_directory, whole_file

    if output is not None and format == TreeFormat.svg:
        with whole_directory(output) as folder:
            yield lambda number, parsed: _draw(folder, number, parsed)
        return
    text = {TreeFormat.brackets: as_brackets, TreeFormat.json: as_json, TreeFormat.drawing: as_drawing}[format]
    if output is None:
        yield lambda number, parsed: print(text(number, parsed, wanted), end="")
        return
    with whole_file(output) as unfinished, unfinished.open("w", encoding="utf-8") as file:
        yield lambda number, parsed: print(text(number, parsed, wanted), end="", file=file)


def _draw(folder: Path, number: int, parsed: "Parsed") -> None:
    """A picture for each tree: 00001.svg, or 00001-2.svg for the second best one."""
    from rankspace.viz import tree_picture

    for rank, candidate in enumerate(parsed.trees, start=1):
        name = f"{number:05d}.svg" if candidate.score is None else f"{number:05d}-{rank}.svg"
        tree_picture(candidate.tree, parsed.probabilities).save(folder / name)
