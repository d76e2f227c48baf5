"""The demonstration as one page."""

from pathlib import Path
from typing import Any

from rankspace.demo.grammars import Model
from rankspace.demo.scores import Scores
from rankspace.demo.treebank import Treebank
from rankspace.training import RunDirectory, Trained
from rankspace.training.likely_words import likely_words
from rankspace.trees import Tree
from rankspace.viz import Report, heat_map, state_words_html, training_curves, tree_pair_picture

SHOWN_LENGTHS = (6, 9, 12, 15)  # of the sentences whose parses are drawn: the first of each
MAPPED_LENGTH = 10
NUM_STATES, NUM_WORDS = 12, 8


def write_report(
    path: Path, models: list[Model], grammar: Trained, chain: Trained, treebank: Treebank, scores: Scores
) -> None:
    """Scores, curves, parses beside gold, a chart, words of states, rank space checked by brute force."""
    data = treebank.data
    words = sum(len(corpus.tokens) for corpus in data.splits.values())
    report = Report("rankspace: the demonstration", f"{len(data['train']):,} sentences to train on, {words:,} words")
    _scores(report, scores)
    report.section("Training")
    records = {name: RunDirectory.open(path.parent / name).metrics() for name in ("grammar", "hmm")}
    report.picture(training_curves({"rank-pcfg": records["grammar"]}, "rank-pcfg"))
    report.picture(training_curves({"rank-hmm": records["hmm"]}, "rank-hmm"))
    _parses(report, grammar, treebank)
    _words(report, grammar, chain, treebank)
    _rank_space(report, models)
    report.save(path)


def _scores(report: Report, scores: Scores) -> None:
    found = scores.parses
    report.figures(
        [
            ("S-F1", f"{found.s_f1:.1f}", f"{scores.points_above_right_branching:+.1f} over right-branching"),
            (
                "perplexity, HMM",
                f"{scores.perplexities['rank-hmm']:.1f}",
                f"{scores.share_below_unigram:.0%} < unigram",
            ),
            ("true perplexity", f"{scores.perplexities['true grammar']:.1f}", "of the grammar behind the text"),
        ]
    )
    report.section("Parses of the test sentences").paragraph(
        "The grammar was trained on words alone. F1 is unlabelled and does not count whole sentences and single words. "
        "No binary trees can score higher than the binarised gold trees."
    )
    columns = ["parser", "S-F1", "S-F1, > 2 words", "corpus F1"]
    bounds = range(1, len(scores.rows))
    report.table(columns, [list(row) for row in scores.rows], digits=1, apart=list(bounds))
    report.section("Perplexity of the test sentences").paragraph(
        "Perplexity is per word, and the end of a sentence counts as a word. The text was drawn from a known grammar, "
        "so its true perplexity is known; no model can be expected to do better."
    )
    rows: list[list[str | float | None]] = [[name, value] for name, value in scores.perplexities.items()]
    report.table(["model", "perplexity"], rows, digits=1, apart=[0])


def _parses(report: Report, grammar: Trained, treebank: Treebank) -> None:
    report.section("Parses").paragraph(
        "Predicted trees show the probability of each span. Brackets that the other tree does not have are dashed."
    )
    gold = [next((tree for tree in treebank.test if len(tree) == length), None) for length in SHOWN_LENGTHS]
    for tree in gold:
        if tree is not None:
            _parse(report, grammar, tree)
    mapped = next((tree for tree in treebank.test if len(tree) == MAPPED_LENGTH), None)
    if mapped is not None:
        marginals = _marginals(grammar, mapped)
        report.picture(heat_map(mapped.words, marginals, mapped, "Probability of every span"))


def _parse(report: Report, grammar: Trained, gold: Tree) -> None:
    [predicted] = grammar.parse([[str(word) for word in gold.words]])
    if predicted is None:
        return
    chart = _marginals(grammar, gold)
    confidence = {(node.begin, node.end): chart[node.begin][node.end] for node in predicted.nodes}
    report.picture(tree_pair_picture(predicted, gold, confidence), " ".join(map(str, gold.words)))


def _marginals(grammar: Trained, tree: Tree) -> list[list[float]]:
    [(_, posed)] = grammar.posed([[str(word) for word in tree.words]])
    query: Any = posed.distribution
    found: list[list[float]] = query.span_marginals(posed.words, posed.lengths)[0].tolist()
    return found


def _words(report: Report, grammar: Trained, chain: Trained, treebank: Treebank) -> None:
    report.section("What the symbols stand for").paragraph(
        "The symbols that are used most, with the share of the words of the test sentences that each emits."
    )
    for heading, trained in (("Preterminals of the grammar", grammar), ("Ranks of the HMM", chain)):
        found = likely_words(trained, NUM_WORDS, NUM_STATES, treebank.data["test"], seed=0)
        names, shares, words = zip(*found, strict=True)
        report.subsection(heading).fragment(state_words_html(names, words, shares, NUM_WORDS))


def _rank_space(report: Report, models: list[Model]) -> None:
    report.section("Rank space, checked by brute force").paragraph(
        "Two grammars small enough to enumerate, compiled to rank space. Probabilities stay the same; the number of "
        "operations does not."
    )
    for model in models:
        rows = [[row.sentence, *(f"{value:.6e}" for value in row[1:])] for row in model.rows]
        report.subsection(model.name)
        report.table(["sentence", "brute force", "original grammar", "rank space", "engine"], rows)
        for picture in model.pictures:
            report.image(picture, picture.stem)
        report.preformatted(model.plans[-1].explain())
