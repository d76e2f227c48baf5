"""`rankspace evaluate`: the scores of a trained model on data, or of any parser's trees against gold ones."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from rankspace.cli.memory import marginals_of_all, within_memory
from rankspace.cli.output import print_json, print_line, print_pairs, print_table, shown
from rankspace.cli.run_options import (
    MAX_TOKENS,
    AsJson,
    Checkpoint,
    CheckpointName,
    Device,
    DeviceName,
    Fallback,
    MaxTokens,
    Quiet,
    RunOrNone,
    Seed,
    With,
    counting,
    load_others,
    load_run,
    require_grammar,
)
from rankspace.cli.sentences import Given
from rankspace.errors import RankspaceError

BOUNDS = {
    "left_branching": "left-branching",
    "right_branching": "right-branching",
    "random": "random trees",
    "oracle": "binarised gold",
}
SPLIT = "test"
TOO_LONG = "left out, longer than --max-length"


def evaluate(
    run: RunOrNone = None,
    data: Annotated[
        str | None,
        typer.Argument(
            metavar="DATA",
            help="A folder that `data prepare` wrote, or synthetic[:N]; if left out, the data that RUN was trained on.",
        ),
    ] = None,
    split: Annotated[str, typer.Option(help="train, valid or test.")] = SPLIT,
    predicted: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Trees of any parser, one per line, instead of a run.")
    ] = None,
    gold: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The gold trees to compare --predicted with.")
    ] = None,
    unlabelled: Annotated[
        bool, typer.Option("--unlabelled", help="The predicted brackets have no symbols: ((the dog) barks).")
    ] = False,
    gold_unlabelled: Annotated[
        bool, typer.Option("--gold-unlabelled", help="The gold brackets have no symbols.")
    ] = False,
    preset: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Clean --gold as `data prepare` does with a preset: ptb, nltk, nltk-lm, craft, gum, plain.",
        ),
    ] = None,
    max_length: Annotated[int | None, typer.Option(min=1, help="Leave out longer sentences, and count them.")] = None,
    others: With = None,
    checkpoint: Checkpoint = CheckpointName.best,
    fallback: Fallback = False,
    max_tokens: MaxTokens = MAX_TOKENS,
    device: Device = DeviceName.auto,
    seed: Seed = 0,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Evaluate a run on prepared data, or one file of bracketed trees against another.

    Perplexity counts the words of each sentence, plus one for a grammar; of an HMM <eos> counts, if it has it.

    F1 is unlabelled, over spans of more than one word that are shorter than the sentence. S-F1 is the mean over
    sentences; corpus F1 counts all spans together.

    A tag is right if it is the gold tag that the word's preterminal, or state, meets most often.

    For grammars that parse together (--with), only the trees are scored.

    Examples:

    rankspace evaluate my-run my-data --split valid

    rankspace evaluate runs/seed-1 my-data --with runs/seed-2 --with runs/seed-3

    rankspace evaluate --predicted trees.txt --gold gold.mrg --preset ptb --json
    """
    if others and (run is None or predicted is not None or gold is not None):
        raise RankspaceError("evaluate: --with names grammars that parse together with RUN; give RUN and DATA.")
    if predicted is not None or gold is not None:
        of_runs = {
            "--split": split != SPLIT,
            "--checkpoint": checkpoint is not CheckpointName.best,
            "--fallback": fallback,
            "--max-tokens": max_tokens != MAX_TOKENS,
            "--device": device is not DeviceName.auto,
        }
        given = [name for name, is_given in of_runs.items() if is_given]
        if given and run is None:
            raise RankspaceError(f"evaluate: {given[0]} is for RUN and DATA; leave it out with --predicted and --gold.")
        result = _of_files(run, predicted, gold, not unlabelled, not gold_unlabelled, preset, seed, max_length)
    elif run is None:
        raise RankspaceError("evaluate: there is nothing to evaluate; give RUN and DATA, or --predicted and --gold.")
    elif unlabelled or gold_unlabelled:
        raise RankspaceError("evaluate: --unlabelled and --gold-unlabelled are for --predicted and --gold.")
    elif preset is not None:
        raise RankspaceError("evaluate: --preset cleans --gold; the data of a run are prepared already.")
    else:
        trained = load_run("evaluate", run, checkpoint, device, fallback, quiet)
        grammars = [trained, *load_others("evaluate", others, checkpoint, device, fallback, quiet)]
        for each in grammars:
            each.max_tokens = max_tokens
        about = {"run": str(run), "checkpoint": trained.checkpoint, "step": trained.step, "model": trained.model.NAME}
        with counting("reading", quiet) as counter:
            wanted = _Wanted(run, data, split, max_length, seed)
            if others:
                result = about | {"with": [str(each) for each in others]} | _of_all(grammars, wanted, counter)
            else:
                result = about | _of_model(trained, wanted, counter)
    if as_json:
        print_json(result)
    else:
        _show(result)


class _Wanted(NamedTuple):
    """What is asked of a model."""

    run: Path
    data: str | None
    split: str
    max_length: int | None
    seed: int

    def read(self, trained: Any) -> "_Read":
        from rankspace.cli.matching_data import load_matching

        source = self.data or trained.config.data.source
        corpus = load_matching(self.run, trained, self.data, self.split)
        numbers, kept = [], []
        for number in range(len(corpus)):
            words = corpus.words(number)
            if self.max_length is None or len(words) <= self.max_length:
                numbers.append(number)
                kept.append(Given(words, f"{source}: {self.split} sentence {number + 1}"))
        about = {"data": source, "split": self.split, "num_too_long": len(corpus) - len(kept)}
        return _Read(corpus, numbers, kept, about)


class _Read(NamedTuple):
    """Sentences of a corpus, by their numbers there."""

    corpus: Any
    numbers: list[int]
    sentences: list[Given]
    about: dict[str, Any]


def _of_model(trained: Any, wanted: _Wanted, counter: Any) -> dict[str, Any]:
    from rankspace.cli.model_scores import Scores, evaluate_model

    found = wanted.read(trained)
    counter.follow([trained])

    def say(step: str, num_sentences: int | None) -> None:
        counter.begin(f"evaluating: {step}", num_sentences)

    def compute(model: Any, sentences: list[list[str]]) -> Scores:
        return evaluate_model(model, found.corpus, found.numbers, wanted.seed, say)

    scores = within_memory(trained, found.sentences, compute, parses=found.corpus.gold is not None)
    return {**found.about, **scores.to_json()}


def _of_all(grammars: list[Any], wanted: _Wanted, counter: Any) -> dict[str, Any]:
    """Of grammars that parse together."""
    from rankspace.cli.model_scores import evaluate_together
    from rankspace.training.together import best_of

    require_grammar("evaluate", grammars[0])
    found = wanted.read(grammars[0])
    if found.corpus.gold is None:
        raise RankspaceError(
            f"evaluate: {found.about['data']} has no gold trees to hold parses against; give DATA that have them."
        )
    counter.begin("evaluating: parses", len(found.sentences))
    counter.follow(grammars)
    trees = best_of([each.words for each in found.sentences], marginals_of_all(grammars, found.sentences))
    return {**found.about, **evaluate_together(found.corpus, found.numbers, trees, wanted.seed).to_json()}


def _of_files(
    run: Path | None,
    predicted: Path | None,
    gold: Path | None,
    labelled: bool,
    gold_labelled: bool,
    preset: str | None,
    seed: int,
    max_length: int | None,
) -> dict[str, Any]:
    if run is not None:
        raise RankspaceError("evaluate: give either RUN and DATA or --predicted and --gold, not both.")
    if predicted is None or gold is None:
        raise RankspaceError("evaluate: --predicted and --gold go together; give both.")
    if preset is not None and not gold_labelled:
        raise RankspaceError("evaluate: --preset goes by the tags of gold trees; leave out --gold-unlabelled.")
    from rankspace.cli.file_scores import Files, score_pair

    return score_pair(Files(predicted, gold, labelled, gold_labelled, preset), seed, max_length)


def _show(result: Mapping[str, Any]) -> None:
    about = ("run", "with", "model", "checkpoint", "step", "data", "split", "predicted", "gold", "preset")
    print_pairs([(name, _text(result[name])) for name in about if name in result])
    if result.get("perplexity") is not None:
        _show_perplexity(result)
    if result.get("parsing") is not None:
        is_told = result.get("perplexity") is not None
        _show_parsing(result["parsing"], result["bounds"], 0 if is_told else result["num_too_long"])
    if result.get("tags") is not None:
        tags = result["tags"]
        print_line("")
        print_pairs(
            [
                ("many-to-one tag accuracy", _per_cent(tags["accuracy"])),
                ("words with a gold tag", f"{tags['num_words']:,}"),
                ("preterminals or states in use", f"{tags['num_tags']:,}"),
            ]
        )


def _show_perplexity(result: Mapping[str, Any]) -> None:
    found = result["perplexity"]
    pairs = [("perplexity", f"{float(found['perplexity']):.2f}"), ("sentences", f"{found['num_sentences']:,}")]
    left_out = {
        "left out, of one word": found["num_skipped"],
        TOO_LONG: result["num_too_long"],
        "impossible": found["num_impossible"],
    }
    pairs += [(name, f"{number:,}") for name, number in left_out.items() if number]
    if found["num_impossible"]:
        pairs.append(("perplexity without these", f"{float(found['of_possible']):.2f}"))
    print_line("")
    print_pairs(pairs)


def _show_parsing(
    parsing: Mapping[str, Any], bounds: Mapping[str, Mapping[str, float | None]], num_too_long: int
) -> None:
    figures = ("s_f1", "s_f1_longer", "corpus_f1")
    rows = [("predicted", *(_per_cent(parsing[name]) for name in figures))]
    rows += [(title, *(_per_cent(bounds[name][figure]) for figure in figures)) for name, title in BOUNDS.items()]
    print_table(["parser", "S-F1", "S-F1, > 2 words", "corpus F1"], rows)
    print_line("")
    print_pairs(
        [
            ("corpus precision", _per_cent(parsing["corpus_precision"])),
            ("corpus recall", _per_cent(parsing["corpus_recall"])),
            ("sentences scored", f"{parsing['num_sentences']:,}"),
            ("left out, of one word", f"{parsing['num_skipped']:,}"),
            *([(TOO_LONG, f"{num_too_long:,}")] if num_too_long else []),
            ("without a tree", f"{parsing['num_unparsed']:,}"),
        ]
    )
    lengths = [
        [_range(each), f"{each['num_sentences']:,}", _per_cent(each["s_f1"]), _per_cent(each["corpus_f1"])]
        for each in parsing["by_length"]
        if each["num_sentences"]
    ]
    labels = [
        [shown(name), f"{each['num_gold']:,}", _per_cent(each["recall"])] for name, each in parsing["by_label"].items()
    ]
    print_table(["words", "sentences", "S-F1", "corpus F1"], lengths)
    print_table(["gold label", "spans", "recall"], labels)


def _text(value: Any) -> str:
    return ", ".join(value) if isinstance(value, list) else str(value)


def _per_cent(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _range(bucket: Mapping[str, Any]) -> str:
    return f"{bucket['shortest']}-{bucket['longest'] or ''}"
