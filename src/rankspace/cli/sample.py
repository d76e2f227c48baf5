"""`rankspace sample`: sentences drawn from a trained model."""

from typing import Annotated, Any

import typer

from rankspace.cli.output import print_json
from rankspace.cli.run_options import (
    Checkpoint,
    CheckpointName,
    Device,
    DeviceName,
    Fallback,
    JsonLines,
    ModelOption,
    Quiet,
    RunOrNone,
    Seed,
    chosen_run,
    load_run,
    notify,
    progress,
    require_grammar,
)
from rankspace.errors import RankspaceError


def sample(
    run: RunOrNone = None,
    model: ModelOption = None,
    num: Annotated[int, typer.Option("--num", "-n", min=1, help="How many sentences to draw.")] = 10,
    max_length: Annotated[int, typer.Option(min=1, help="Largest number of words in a sentence.")] = 40,
    trees: Annotated[bool, typer.Option("--trees", help="Print the trees of a grammar, with symbols.")] = False,
    seed: Seed = 0,
    as_json: JsonLines = False,
    checkpoint: Checkpoint = CheckpointName.best,
    fallback: Fallback = False,
    device: Device = DeviceName.auto,
    quiet: Quiet = False,
) -> None:
    """Draw sentences from a trained model, one per line.

    A sentence of an HMM is cut at --max-length words; a grammar's tree that grows beyond that is given up and has no
    line.

    How many these are, and how probable such sentences are, is printed on stderr.

    Examples:

    rankspace sample my-run --num 5 --max-length 20

    rankspace sample my-grammar --num 100 --trees --seed 7 > trees.txt
    """
    run, others = chosen_run("sample", run, model, None)
    if others:
        raise RankspaceError("sample: RUN and --model name the same thing; give one of them.")
    trained = load_run("sample", run, checkpoint, device, fallback, quiet)
    if trees:
        require_grammar("sample --trees", trained)
    with progress("drawing", quiet):
        drawn = trained.sample(num, max_length, seed)
        lost_mass, num_nonterminals = _of_distribution(trained, max_length)
    for one in drawn:
        _print(one, trees, num_nonterminals, as_json)
    notify(_summary(drawn, max_length, lost_mass), quiet)


def _of_distribution(trained: Any, max_length: int) -> tuple[float | None, int]:
    """The probability of a longer sentence, None where each sentence has a distribution of its own; nonterminals."""
    from rankspace.models import Model

    distribution: Any = trained.distribution()
    is_one = type(trained.model).sampler is Model.sampler
    lost_mass = float(distribution.sample(0, max_length).lost_mass) if is_one else None
    return lost_mass, distribution.num_nonterminals if trained.kind == "tree" else 0


def _print(sample: Any, trees: bool, num_nonterminals: int, as_json: bool) -> None:
    from rankspace.cli.symbols import with_names

    tree = None if sample.tree is None or not trees else with_names(sample.tree, num_nonterminals).bracketed()
    if as_json:
        with_tree = {"tree": tree} if trees else {}
        print_json({"words": sample.words, **with_tree, "cut": sample.cut})
    elif tree is not None or (not trees and (sample.words or not sample.cut)):
        print(tree or " ".join(sample.words))


def _summary(drawn: list[Any], max_length: int, lost_mass: float | None) -> str:
    num_cut = sum(one.cut for one in drawn)
    text = f"{num_cut} of {len(drawn)} grew beyond {max_length} words"
    return text if lost_mass is None else f"{text}; the model does so with probability {lost_mass:.4g}"
