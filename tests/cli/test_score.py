"""`rankspace score`: log-probabilities and surprisals."""

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest

import rankspace
from cli.tiny_runs import NO_RUN, Run
from rankspace.distributions import HMM
from rankspace.evaluation import chain_perplexity, tree_perplexity

TEXT = "The dog sees the cat\n\ndog\nthe never\nthe dog\n"
SENTENCES = [line.split() for line in TEXT.splitlines() if line]


def test_a_grammar(command: Run, grammar: str) -> None:
    ran = command("score", grammar, given=TEXT)
    found = rankspace.load(grammar).log_prob(SENTENCES)
    rows = [line.split("\t") for line in ran.out.splitlines()]
    assert rows[1] == [""]
    assert [float(row[0]) for row in rows if len(row) > 1] == pytest.approx(found, abs=1e-5)
    assert [row[1].split() for row in rows if len(row) > 1] == SENTENCES
    perplexity = tree_perplexity(found, map(len, SENTENCES))
    assert ran.err == (
        f"4 sentences, 10 words: log p {perplexity.log_prob:.4f} (base e), perplexity {perplexity.of_possible:.4f}; "
        f"1 of one word left out of both; 1 impossible left out of both\n"
    )


def test_a_chain_in_bits(command: Run, chain: str) -> None:
    ran = command("score", chain, "--base", "2", given=TEXT)
    found = rankspace.load(chain).log_prob(SENTENCES)
    values = [float(line.split("\t")[0]) for line in ran.out.splitlines() if line]
    assert values == pytest.approx([value / math.log(2) for value in found], abs=1e-5)
    perplexity = chain_perplexity(found, [len(words) + 1 for words in SENTENCES])
    assert f"(base 2), perplexity {perplexity.of_possible:.4f}; 1 impossible left out of both\n" in ran.err


def test_json_lines(command: Run, chain: str) -> None:
    ran = command("score", chain, "--json", "-q", given=TEXT)
    found = [json.loads(line) for line in ran.out.splitlines()]
    assert found[1] == {"number": 2, "words": [], "base": "e", "log_prob": None}
    assert found[3] == {"number": 4, "words": ["the", "never"], "base": "e", "log_prob": "-inf"}
    assert ran.err == ""


class TestSurprisal:
    @pytest.mark.parametrize("kind", ["chain", "grammar"])
    def test_a_line_for_each_word(self, command: Run, chain: str, grammar: str, kind: str) -> None:
        """The end counts, also where it is no word of the model, as with grammars."""
        model = chain if kind == "chain" else grammar
        lines = command("score", model, "--surprisal", given=TEXT).result.splitlines()
        columns, *rows = [line.split("\t") for line in lines]
        assert columns == ["sentence", "place", "word", "seen", "surprisal"]
        assert [row[:4] for row in rows[4:9]] == [
            ["1", "5", "cat", "<unk>"],
            ["1", "6", "<eos>", "<eos>"],
            [""],
            ["3", "1", "dog", "dog"],
            ["3", "2", "<eos>", "<eos>"],
        ]
        found = rankspace.load(model).surprisal(SENTENCES[:1])[0]
        assert [float(row[4]) for row in rows[:6]] == pytest.approx(found, abs=1e-5)
        if kind == "chain":
            assert [row[4] for row in rows if row[0] == "4"][1:] == ["inf", "inf"]
        else:  # no sentence of a grammar has one word
            assert rows[8][4] == "inf"

    @pytest.mark.parametrize("base", ["2", "e", "10"])
    @pytest.mark.parametrize("kind", ["rank-hmm", "grammar"])
    def test_json(self, command: Run, runs: Path, base: str, kind: str) -> None:
        ran = command("score", str(runs / kind), "--surprisal", "--json", "--base", base, given=TEXT)
        found = [json.loads(line) for line in ran.out.splitlines()]
        assert found[0]["seen"] == ["the", "dog", "sees", "the", "<unk>", "<eos>"]
        assert found[1] == {"number": 2, "words": [], "base": base, "log_prob": None, "seen": [], "surprisal": []}
        assert [each["base"] for each in found] == [base] * len(found)
        sums = [(-sum(map(float, each["surprisal"])), float(each["log_prob"])) for each in found if each["words"]]
        assert all(one == pytest.approx(other) for one, other in sums)

    def test_of_a_compound_grammar(self, command: Run, runs: Path) -> None:
        ran = command("score", str(runs / "c-pcfg"), "--surprisal", given=TEXT)
        message = (
            "surprisal: c-pcfg makes a grammar for each sentence from all of its words, so no word has a probability "
            "given those before it alone; take a grammar that is not compound, or a chain."
        )
        assert ran == (2, "", f"error: {message}\n")


def test_words_of_a_treebank(command: Run, chain: str) -> None:
    trees = "(S (NP (DT the) (NN dog)) (VP (VB sleeps)) (. .))\n"
    expected = command("score", chain, given="the dog sleeps\n")
    assert command("score", chain, "--trees", "--clean", given=trees) == expected
    assert re.search("\tthe dog sleeps [.]\n$", command("score", chain, "--trees", given=trees).result)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["CHAIN", "--base", "3"], "score: base is '3'; give e, 2 or 10."),
        (["CHAIN", "no.txt"], "no.txt: No such file or directory."),
        (["no"], NO_RUN),
    ],
)
def test_mistakes(command: Run, chain: str, arguments: list[str], message: str) -> None:
    ran = command("score", *(chain if each == "CHAIN" else each for each in arguments))
    assert ran == (2, "", f"error: {message}\n")


def test_a_sentence_whose_vectors_memory_does_not_hold(
    command: Run, chain: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rankspace.cli.memory.memory", lambda device: 10**6)
    Path("long").write_text("the dog\n" + "the dog " * 20_000 + "\n")
    message = (
        "the vectors of 40000 words take 1.3 MB at least, and there are 1.0 MB; divide the sentence, or leave it out."
    )
    assert command("score", chain, "long") == (2, "", f"error: long: line 2: {message}\n")
    assert command("score", chain, "long", "--surprisal") == (2, "", f"error: long: line 2: {message}\n")


def test_a_batch_that_memory_does_not_hold(command: Run, chain: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the batches the one that takes most; <eos> counts."""

    def greedy(self: HMM, *_: Any) -> None:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8000 bytes.")

    monkeypatch.setattr(HMM, "_log_z", greedy)
    ran = command("score", chain, "--max-tokens", "9", given="the dog\nthe dog sees the cat\nthe cat\n")
    message = (
        "line 2: not enough memory for a sentence of 6 words (4 states, float32): it takes about 1.0 kB, and 8.0 kB "
        "more could not be had; lower --max-tokens, or leave long sentences out."
    )
    assert ran == (2, "", f"error: standard input: {message}\n")
