"""`rankspace sample`: sentences and trees, the same for the same seed."""

import json
from pathlib import Path

import pytest

import rankspace
from cli.tiny_runs import NO_RUN, Run
from rankspace.trees import Tree
from short_memory import lacking


@pytest.mark.parametrize("model", ["grammar", "chain", "rank-hmm", "c-pcfg"])
def test_sentences(command: Run, runs: Path, model: str) -> None:
    run = str(runs / model)
    ran = command("sample", run, "--num", "20", "--max-length", "5", "--seed", "3")
    drawn = rankspace.load(run).sample(20, 5, 3)
    kept = [sample for sample in drawn if sample.words or not sample.cut]
    assert ran.out == "".join(" ".join(sample.words) + "\n" for sample in kept)
    num_cut = sum(sample.cut for sample in drawn)
    assert ran.err.startswith(f"{num_cut} of 20 grew beyond 5 words")
    assert ("with probability" in ran.err) == (model != "c-pcfg")
    assert command("sample", run, "--num", "20", "--max-length", "5", "--seed", "3", "-q") == (0, ran.out, "")
    assert command("sample", run, "--num", "20", "--max-length", "5", "--seed", "4").out != ran.out


def test_the_probability_of_a_cut_is_that_of_the_model(command: Run, chain: str) -> None:
    lost = float(rankspace.load(chain).distribution().sample(0, 3).lost_mass)
    ran = command("sample", chain, "--num", "500", "--max-length", "3")
    assert ran.err.endswith(f"words; the model does so with probability {lost:.4g}\n")
    assert int(ran.err.split()[0]) / 500 == pytest.approx(lost, abs=0.1)  # more than four standard deviations


def test_trees(command: Run, grammar: str) -> None:
    ran = command("sample", grammar, "--num", "9", "--max-length", "12", "--trees")
    trees = [Tree.parse(line) for line in ran.out.splitlines()]
    assert [" ".join(map(str, tree.words)) for tree in trees] == command(
        "sample", grammar, "--num", "9", "--max-length", "12"
    ).result.splitlines()
    assert {str(node.symbol)[:3] for tree in trees for node in tree.nodes} == {"NT-", "PT-"}


def test_json_lines(command: Run, grammar: str) -> None:
    lines = command("sample", grammar, "--num", "30", "--max-length", "3", "--json", "--trees").result.splitlines()
    found = [json.loads(line) for line in lines]
    assert len(found) == 30
    assert {each["cut"] for each in found} == {True, False}
    assert all((each["tree"] is None) == each["cut"] == (each["words"] == []) for each in found)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["CHAIN", "--trees"], "sample --trees: direct is a chain; this is for grammars, which have trees."),
        (["no"], NO_RUN),
        (["CHAIN", "--num", "0"], "Invalid value for '--num'"),
        (["CHAIN", "--max-length", "0"], "Invalid value for '--max-length'"),
    ],
)
def test_mistakes(command: Run, chain: str, arguments: list[str], message: str) -> None:
    ran = command("sample", *(chain if each == "CHAIN" else each for each in arguments))
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(f"error: {message}")
    assert ran.err.count("\n") == 1


def test_sentences_that_memory_does_not_hold(command: Run, chain: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rankspace.distributions.HMM.sample", lacking)
    message = (
        "sample: not enough memory for 10 sentences of up to 40 words (4 states, float32): it takes about 3.2 kB, and "
        "3.8 GB more could not be had; draw fewer at a time, or load the model on a device with more memory."
    )
    assert command("sample", chain) == (2, "", f"error: {message}\n")
