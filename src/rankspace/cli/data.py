"""`rankspace data`: text and treebanks made ready for training, and what is in a folder of them."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from rankspace.cli.help_text import Command, Group
from rankspace.cli.output import print_json, print_line, print_pairs, print_table, shown
from rankspace.cli.run_options import Quiet, notify, progress

MOST_NAMES = 3  # of files that are listed

app = typer.Typer(
    cls=Group,
    no_args_is_help=True,
    help="""Prepare text and treebanks for training, and look at what is prepared.

    Examples:

    rankspace data prepare train=train.txt valid=valid.txt -o my-data

    rankspace data info my-data
    """,
)


class FileFormat(StrEnum):
    """What a file holds; `auto` takes one that begins with a bracket for a treebank."""

    auto = "auto"
    text = "text"
    trees = "trees"


class Numbers(StrEnum):
    """`digits`: 10-year becomes N-year. `words`: a word that is a number becomes N."""

    keep = "keep"
    digits = "digits"
    words = "words"


class Unary(StrEnum):
    """Which nodes over the same words stay."""

    keep = "keep"
    top = "top"
    bottom = "bottom"


AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")]
Sources = Annotated[
    list[str], typer.Argument(metavar="SOURCE", help="train=FILE, valid=FILE, test=FILE; a folder; nltk:treebank.")
]


@app.command(cls=Command)
def prepare(
    sources: Sources,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="DIR", help="The folder to write.")],
    preset: Annotated[
        str, typer.Option(help="plain, ptb, ptb-lm, nltk, nltk-lm, craft or gum; the options below change it.")
    ] = "plain",
    format: Annotated[
        FileFormat, typer.Option(help="What the files hold; auto: trees if a file begins with a bracket.")
    ] = FileFormat.auto,
    vocabulary: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH", help="Take the vocabulary from this file or prepared folder, not from the training split."
        ),
    ] = None,
    split_table: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A table of which line of a file is in which split.")
    ] = None,
    remove_punctuation: Annotated[
        bool | None,
        typer.Option(
            "--remove-punctuation/--keep-punctuation",
            help="Remove or keep punctuation: by POS tag in trees, by word in text.",
        ),
    ] = None,
    keep_traces: Annotated[
        bool | None, typer.Option("--keep-traces/--remove-traces", help="Keep or remove words tagged -NONE-.")
    ] = None,
    drop_root: Annotated[
        list[str] | None, typer.Option(metavar="LABEL", help="Leave out trees with this label; may be repeated.")
    ] = None,
    keep_function_tags: Annotated[
        bool | None,
        typer.Option(
            "--keep-function-tags/--strip-function-tags", help="Keep labels such as NP-SBJ, or cut them to NP."
        ),
    ] = None,
    unary: Annotated[Unary | None, typer.Option(help="Of several nodes over the same words, which to keep.")] = None,
    lower_case: Annotated[
        bool | None, typer.Option("--lower-case/--keep-case", help="Turn words into lower case, or keep their case.")
    ] = None,
    numbers: Annotated[
        Numbers | None,
        typer.Option(help="Keep numbers, or write N: for digits within words, or only for words that are numbers."),
    ] = None,
    max_words: Annotated[
        int | None, typer.Option(min=1, help="Size of the vocabulary, without <unk> and <eos>.")
    ] = None,
    min_count: Annotated[int | None, typer.Option(min=1, help="Rarer words become <unk>.")] = None,
    eos: Annotated[bool | None, typer.Option("--eos/--no-eos", help="Give <eos> a number, for HMMs.")] = None,
    max_length: Annotated[
        int | None, typer.Option(min=0, help="Longer sentences are bad input; 1000 if left out, 0 for no limit.")
    ] = None,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Leave out bad input, count it and go on.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite DIR if it is prepared data.")] = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Read text or trees, preprocess them, and write vocabulary, encoded sentences, gold spans and a card.

    Examples:

    rankspace data prepare train=train.txt valid=valid.txt -o my-data --lower-case --max-words 10000

    rankspace data prepare /data/wsj -o wsj --preset ptb
    """
    from rankspace.data.lines import BadInput
    from rankspace.data.preparation import prepare as read
    from rankspace.data.prepared import check_output, save_prepared
    from rankspace.data.presets import preset as preset_of
    from rankspace.data.sources import find_sources, ignored_files

    chosen = preset_of(preset)
    changes = {
        "keep_traces": keep_traces,
        "removed_roots": None if drop_root is None else tuple(drop_root),
        "keep_function_tags": keep_function_tags,
        "unary": None if unary is None else unary.value,
        "lower_case": lower_case,
        "numbers": None if numbers is None else numbers.value,
        "max_words": max_words,
        "min_count": min_count,
        "eos": eos,
        "max_length": max_length,
    }
    options = _changed(chosen.preprocessing, remove_punctuation, changes)
    check_output(output, force)
    bad = BadInput(skip_bad)
    found = find_sources(sources, chosen.files, split_table)
    if ignored := ignored_files(sources, found):
        notify(_ignored(ignored), quiet)
    with progress("reading", quiet):
        data = read(found, options, vocabulary, format.value, bad, preset)
    card = save_prepared(output, data, force).card
    if warning := _unknown_warning(card):
        notify(warning, quiet)
    _report(card, bad, output, as_json)


@app.command(cls=Command)
def info(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="A folder that `data prepare` wrote.")],
    as_json: AsJson = False,
) -> None:
    """Check prepared data and print what is in it.

    Examples:

    rankspace data info my-data

    rankspace data info my-data --json
    """
    from rankspace.data.prepared import load_prepared

    card = load_prepared(directory).card
    if as_json:
        print_json({"directory": str(directory), **card})
    else:
        _show(card)


def _changed(options: Any, remove_punctuation: bool | None, changes: dict[str, Any]) -> Any:
    """The options of a preset with those that were given in their place."""
    from dataclasses import replace

    from rankspace.data.presets import PUNCTUATION_TAGS, PUNCTUATION_WORDS

    if remove_punctuation is not None:
        changes["removed_tags"] = PUNCTUATION_TAGS if remove_punctuation else ()
        changes["removed_words"] = PUNCTUATION_WORDS if remove_punctuation else ()
    return replace(options, **{name: value for name, value in changes.items() if value is not None})


def _ignored(files: list[Path]) -> str:
    names = ", ".join(str(file) for file in files[:MOST_NAMES])
    more = f" and {len(files) - MOST_NAMES:,} more" if len(files) > MOST_NAMES else ""
    return f"prepare: ignored {names}{more}; name files to take them: train=FILE valid=FILE test=FILE."


def _unknown_warning(card: dict[str, Any]) -> str | None:
    """What a vocabulary of all words of the training split does to the words of the others."""
    counts = {split: entry["num_unknown"] for split, entry in card["splits"].items()}
    others = {split: count for split, count in counts.items() if split != "train" and count}
    if counts.get("train") != 0 or not others:
        return None
    found = " and ".join(f"{split} has {count:,}" for split, count in others.items())
    return (
        f"warning: no word of train is <unk>, but {found}, of which a model learns nothing; use --min-count 2 or "
        f"--max-words."
    )


def _report(card: dict[str, Any], bad: Any, output: Path, as_json: bool) -> None:
    if as_json:
        print_json({"directory": str(output), **card, "skipped": bad.examples})
        return
    _show(card)
    for message in bad.examples:
        print_line(f"skipped {message}")
    print_line(f"\nwrote {output}")


def _show(card: dict[str, Any]) -> None:
    vocabulary = card["vocabulary"]
    print_pairs(
        [
            ("preset", str(card["preset"])),
            ("vocabulary", f"{vocabulary['num_words']:,} words, from {vocabulary['from']}"),
            ("labels", f"{len(card['labels'])}, and {len(card['tags'])} tags"),
            ("skipped as bad", f"{card['num_skipped']:,}"),
            *((name.replace("_", " "), _text(value)) for name, value in card["preprocessing"].items()),
        ]
    )
    print_table(
        ["split", "sentences", "words", "unknown", "longest", "gold spans", "emptied", "removed"],
        [[split, *map(_text, _counts(entry))] for split, entry in card["splits"].items()],
    )
    print_table(
        ["source", "split", "files", "sha256"],
        [
            [shown(entry["name"]), entry["split"] or entry["table"], str(entry["num_files"]), entry["sha256"][:16]]
            for entry in card["sources"]
        ],
    )


def _counts(entry: dict[str, Any]) -> list[Any]:
    names = ("sentences", "words", "unknown", "longest", "spans", "emptied", "removed")
    return [entry[name if name == "longest" else f"num_{name}"] for name in names]


def _text(value: Any) -> str:
    if isinstance(value, list | tuple):
        return " ".join(map(str, value)) or "none"
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "none"}[value]
    return f"{value:,}" if isinstance(value, int) else str(value)
