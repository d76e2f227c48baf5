"""`rankspace show`: trees, charts, training curves and states as pictures and tables."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rankspace.cli.help_text import Command, Group
from rankspace.cli.output import print_json
from rankspace.cli.run_options import (
    MAX_TOKENS,
    AsJson,
    Checkpoint,
    CheckpointName,
    Device,
    DeviceName,
    Fallback,
    Force,
    MaxTokens,
    Quiet,
    RunOrNone,
    RunPath,
    Seed,
    check_file,
    load_run,
    notify,
    progress,
    require_grammar,
    tell_lacking,
)
from rankspace.errors import FormatError, RankspaceError

if TYPE_CHECKING:
    from rankspace.cli.parsed import Parsed
    from rankspace.trees import Tree
    from rankspace.viz import Picture

app = typer.Typer(
    cls=Group,
    no_args_is_help=True,
    help="""Draw a parse, the chart of a sentence or training curves; list the words of states.

    Examples:

    rankspace show tree my-run "the dog sees the cat" -o tree.svg

    rankspace show curves my-run -o curves.svg
    """,
)

PictureFile = Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="A .svg or .png file.")]
Sentence = Annotated[str, typer.Argument(metavar="SENTENCE", help="Words with blanks between them, in quotes.")]
GoldTree = Annotated[
    str | None, typer.Option(metavar="BRACKETS", help="The gold tree to compare with: '(S (NP the dog) barks)'.")
]


@app.command(cls=Command)
def tree(
    output: PictureFile,
    run: RunOrNone = None,
    sentence: Annotated[
        str | None, typer.Argument(metavar="SENTENCE", help="Words with blanks between them, in quotes.")
    ] = None,
    brackets: Annotated[
        str | None, typer.Option(metavar="BRACKETS", help="Draw this tree, without a run: '(S (NP the dog) barks)'.")
    ] = None,
    gold: GoldTree = None,
    labels: Annotated[bool, typer.Option("--labels", help="Show the symbols of the grammar: NT-12, PT-3.")] = False,
    checkpoint: Checkpoint = CheckpointName.best,
    fallback: Fallback = False,
    device: Device = DeviceName.auto,
    force: Force = False,
    quiet: Quiet = False,
) -> None:
    """Draw the parse of a sentence with the probability of each span, or draw a given tree.

    Examples:

    rankspace show tree my-run "the dog sees the cat" -o tree.svg

    rankspace show tree my-run "the dog barks" --gold "(S (NP the dog) barks)" -o pair.svg

    rankspace show tree --brackets "(S (NP the dog) barks)" -o tree.svg
    """
    _check_picture(output, force)
    right = None if gold is None else _tree("--gold", gold)
    if brackets is not None:
        if run is not None:
            raise RankspaceError("show tree: give either RUN and SENTENCE or --brackets, not both.")
        picture = _drawn(_tree("--brackets", brackets), {}, right)
    elif run is None or sentence is None:
        raise RankspaceError("show tree: there is nothing to draw; give RUN and SENTENCE, or --brackets.")
    else:
        _check_gold(sentence.split(), right)
        trained = load_run("show tree", run, checkpoint, device, fallback, quiet)
        parsed = _parsed("show tree", trained, sentence, labels)
        picture = _drawn(parsed.trees[0].tree, parsed.probabilities, right)
    _save(picture, output, quiet)


@app.command(cls=Command)
def heat_map(
    run: RunPath,
    sentence: Sentence,
    output: PictureFile,
    gold: GoldTree = None,
    checkpoint: Checkpoint = CheckpointName.best,
    fallback: Fallback = False,
    device: Device = DeviceName.auto,
    force: Force = False,
    quiet: Quiet = False,
) -> None:
    """Draw the chart of a sentence: the probability that each span is a constituent.

    Examples:

    rankspace show heat-map my-run "the dog sees the cat" -o chart.svg
    """
    from rankspace.viz import heat_map as draw

    _check_picture(output, force)
    words, right = sentence.split(), None if gold is None else _tree("--gold", gold)
    _check_gold(words, right)
    trained = load_run("show heat-map", run, checkpoint, device, fallback, quiet)
    require_grammar("show heat-map", trained)
    _check_words("show heat-map", words)
    (_, posed), *_ = trained.posed([words])
    query: Any = posed.distribution
    marginals = query.span_marginals(posed.words, posed.lengths)[0].tolist()
    if not marginals[0][len(words)]:
        raise RankspaceError(
            "show heat-map: the grammar cannot produce this sentence; all its spans have probability 0."
        )
    _save(draw(words, marginals, right), output, quiet)


@app.command(cls=Command)
def curves(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN", help="Folders of runs, or models of the package.")],
    output: PictureFile,
    title: Annotated[str, typer.Option(help="Title above the picture.")] = "",
    force: Force = False,
    quiet: Quiet = False,
) -> None:
    """Draw loss, perplexity and F1 of runs over training.

    Examples:

    rankspace show curves runs/seed-1 runs/seed-2 -o curves.png
    """
    from rankspace.training import RunDirectory
    from rankspace.training.shipped import find_run
    from rankspace.viz import training_curves

    _check_picture(output, force)
    records = {name: RunDirectory.open(find_run(path)).metrics() for name, path in _names(runs).items()}
    _save(training_curves(records, title), output, quiet)


@app.command(cls=Command)
def words(
    run: RunPath,
    top: Annotated[int, typer.Option(min=1, metavar="K", help="Number of words for each state.")] = 10,
    states: Annotated[int, typer.Option(min=1, metavar="N", help="Number of states, the most used ones.")] = 20,
    data: Annotated[
        str | None,
        typer.Option("--data", metavar="DATA", help="Count use in prepared data instead of 1,000 drawn sentences."),
    ] = None,
    split: Annotated[str, typer.Option(help="Split of DATA: train, valid or test.")] = "valid",
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write an .html page instead of the table.")
    ] = None,
    seed: Seed = 0,
    checkpoint: Checkpoint = CheckpointName.best,
    fallback: Fallback = False,
    max_tokens: MaxTokens = MAX_TOKENS,
    device: Device = DeviceName.auto,
    force: Force = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Print the preterminals, states or ranks that are used most: share of use and likeliest words of each.

    Examples:

    rankspace show words my-run --top 8 --states 30

    rankspace show words my-run --data my-data -o words.html
    """
    from rankspace.training.likely_words import likely_words

    if output is not None:
        _check_page(output, force)
    trained = load_run("show words", run, checkpoint, device, fallback, quiet)
    trained.max_tokens = max_tokens
    with progress("counting", quiet):
        corpus = None if data is None else _corpus(run, trained, data, split)
        found = likely_words(trained, top, states, corpus, seed)
    if output is not None:
        _write_page(found, run, trained, output)
        notify(f"wrote {output}", quiet)
    if as_json:
        print_json({"run": str(run), "states": [_entry(each) for each in found]})
    elif output is None:
        from rankspace.viz import state_words_text

        print(state_words_text(*_columns(found), num_words=top))


def _entry(likely: Any) -> dict[str, Any]:
    pairs = [{"word": word, "probability": value} for word, value in likely.words]
    return {"name": likely.name, "share": likely.share, "words": pairs}


def _columns(found: Sequence[Any]) -> tuple[list[str], list[list[tuple[str, float]]], list[float]]:
    return [each.name for each in found], [each.words for each in found], [each.share for each in found]


def _write_page(found: Sequence[Any], run: Path, trained: Any, output: Path) -> None:
    from rankspace.viz import Report, state_words_html

    longest = max((len(each.words) for each in found), default=0)
    page = Report(f"Words of {run.name}", f"{trained.model.NAME}, step {trained.step}")
    page.fragment(state_words_html(*_columns(found), num_words=longest)).save(output)


def _corpus(run: Path, trained: Any, data: str, split: str) -> Any:
    from rankspace.cli.matching_data import load_matching

    return load_matching(run, trained, data, split)


def _check_picture(output: Path, force: bool) -> None:
    if output.suffix.lower() not in (".svg", ".png"):
        raise FormatError(f"{output}: is no name of a picture; it must end in .svg or .png.")
    check_file(output, force)


def _check_page(output: Path, force: bool) -> None:
    if output.suffix.lower() not in (".html", ".htm"):
        raise FormatError(f"{output}: is no name of a page; it must end in .html.")
    check_file(output, force)


def _tree(option: str, text: str) -> "Tree":
    from rankspace.trees import Tree

    try:
        return Tree.parse(text)
    except FormatError as error:
        raise FormatError(str(error).replace("Tree.parse", option, 1)) from None


def _check_words(command: str, words: Sequence[str]) -> None:
    if len(words) < 2:
        raise RankspaceError(f"{command}: the sentence has {len(words)} words; give at least 2, in quotes.")


def _check_gold(words: Sequence[str], gold: "Tree | None") -> None:
    if gold is not None and tuple(words) != gold.words:
        raise RankspaceError(
            f"--gold: its words are {' '.join(map(str, gold.words))!r}, but the sentence is {' '.join(words)!r}; give "
            f"trees of one sentence."
        )


def _parsed(command: str, trained: Any, sentence: str, labels: bool) -> "Parsed":
    from rankspace.cli.parsed import Wanted, parse_all

    require_grammar(command, trained)
    _check_words(command, sentence.split())
    (parsed,) = parse_all(trained, [sentence.split()], Wanted(labels, details=True))
    if not parsed.trees:
        raise RankspaceError(f"{command}: the grammar cannot produce this sentence; there is no tree to draw.")
    return parsed


def _drawn(tree: "Tree", probabilities: dict[tuple[int, int], float], gold: "Tree | None") -> "Picture":
    from rankspace.viz import tree_pair_picture, tree_picture

    return tree_picture(tree, probabilities) if gold is None else tree_pair_picture(tree, gold, probabilities)


def _save(picture: "Picture", output: Path, quiet: bool) -> None:
    lacking = picture.save(output)
    notify(f"wrote {output}", quiet)
    tell_lacking("show", output, lacking, quiet)


def _names(runs: Sequence[Path]) -> dict[str, Path]:
    """Runs by the name of their folder, or by their path where that is not enough to tell them apart."""
    short = [run.resolve().name for run in runs]
    return {name if short.count(name) == 1 else str(run): run for name, run in zip(short, runs, strict=True)}
