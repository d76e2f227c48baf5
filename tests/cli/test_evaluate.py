"""`rankspace evaluate`: the scores of models and of files, and one line for every mistake."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import rankspace
from cli.tiny_runs import GRAMMAR, NO_RUN, TREEBANK, WORDS, Run, make_run, prepared
from rankspace.data import Vocabulary, load_prepared
from rankspace.evaluation import chain_perplexity, many_to_one, score, tree_perplexity
from rankspace.training import Together
from rankspace.training.evaluator import Evaluator
from rankspace.training.processes import Processes
from rankspace.trees import Tree

GOLD = [Tree.parse(text) for text in TREEBANK]
SENTENCES = [[str(word) for word in tree.words] for tree in GOLD]
TREEBANK_FILE = """\
( (S (NP-SBJ-1 (DT The) (NN dog))
     (VP (VBZ sees) (NP (CD 12.5) (NNS Cats)) (S (NP-SBJ (-NONE- *-1)) (VP (VB bark))))
     (. .)) )
( (HEADING (NP (NNP Results) (NN part))) )
( (X (. .)) )
( (S (NP (NN Dogs)) (VP (VBP bark) (RB loudly)) (. .)) )
"""
GOLD_FILE = "(S (NP the dog) (VP sees (NP the cat)))\n(S dogs (VP bark loudly))\n"


class TestModels:
    def test_a_grammar(self, command: Run, grammar: str, data: str) -> None:
        ran = command("evaluate", grammar, data, "--json")
        assert (ran.code, ran.err) == (0, "")
        found = json.loads(ran.out)
        trained = rankspace.load(grammar)
        expected = tree_perplexity(trained.log_prob(SENTENCES), map(len, SENTENCES))
        assert found["perplexity"]["perplexity"] == pytest.approx(expected.perplexity, rel=1e-5)
        assert found["perplexity"]["num_skipped"] == 1
        scores = score(GOLD, trained.parse(SENTENCES))
        assert found["parsing"] == json.loads(json.dumps(scores.to_json()))
        assert found["bounds"]["oracle"] == {"s_f1": 100, "s_f1_longer": 100, "corpus_f1": 100}
        assert {name: found[name] for name in ("run", "data", "split", "checkpoint", "step", "model")} == {
            "run": grammar,
            "data": data,
            "split": "test",
            "checkpoint": "best",
            "step": 7,
            "model": "direct",
        }

    def test_what_stands_for_the_best_checkpoint_is_told(self, command: Run, tmp_path: Path, data: str) -> None:
        path = make_run(tmp_path / "run", "rank-pcfg", **GRAMMAR, size=4)
        shutil.rmtree(path / "checkpoints" / "best")
        ran = command("evaluate", str(path), data, "--json")
        assert json.loads(ran.result)["checkpoint"] == "last"
        assert ran.err == f"{path}: has no best checkpoint; took last, of step 7\n"
        assert command("evaluate", str(path), data, "--json", "--checkpoint", "last").err == ""

    @pytest.mark.parametrize("model", ["grammar", "chain"])
    def test_the_figures_of_training(self, command: Run, runs: Path, data: str, model: str) -> None:
        """The words of prepared data are not cleaned again: N would become n, and that <unk>."""
        corpus, trained = load_prepared(data)["test"], rankspace.load(runs / model)
        expected = Evaluator(corpus, trained.kind, Processes())(trained.model).record()
        found = json.loads(command("evaluate", str(runs / model), data, "--json").result)
        assert found["perplexity"]["perplexity"] == pytest.approx(expected["perplexity"], rel=1e-6)
        if model == "grammar":
            assert found["parsing"]["s_f1"] == pytest.approx(expected["f1"])
        assert trained.encode([["The", "N", "12", "thing"]])[0].tolist()[0][:4] == [
            WORDS.index[word] for word in ("the", "N", "N", "<unk>")
        ]

    def test_tags_of_a_grammar_are_preterminals(self, command: Run, grammar: str, data: str) -> None:
        found = json.loads(command("evaluate", grammar, data, "--json").result)["tags"]
        parsed = [Tree.parse(line) for line in self.labelled(command, grammar)]
        tags = [[str(n.symbol)[3:] for n in tree.nodes if n.end - n.begin == 1] for tree in parsed]
        gold = [[str(n.symbol) for n in tree.nodes if n.end - n.begin == 1] for tree in GOLD[:3]]
        expected = many_to_one(gold, tags).to_json()  # here the likeliest symbols of words are those of the MBR trees
        assert {**found, "mapping": None} == {**expected, "mapping": None}

    def labelled(self, command: Run, grammar: str) -> list[str]:
        text = "".join(" ".join(words) + "\n" for words in SENTENCES[:3])
        return command("parse", grammar, "--labels", given=text).result.splitlines()

    @pytest.mark.parametrize("model", ["chain", "rank-hmm", "vl-hmm"])
    def test_chains(self, command: Run, runs: Path, data: str, model: str) -> None:
        found = json.loads(command("evaluate", str(runs / model), data, "--split", "train", "--json").result)
        log_probs = rankspace.load(runs / model).log_prob(SENTENCES)
        expected = chain_perplexity(log_probs, [len(words) + 1 for words in SENTENCES])
        assert found["perplexity"]["perplexity"] == pytest.approx(expected.perplexity, rel=1e-5)
        assert (found["parsing"], found["bounds"]) == (None, None)
        assert found["tags"]["num_words"] == 13

    def test_grammars_that_parse_together(self, command: Run, runs: Path, grammar: str, data: str) -> None:
        """Scores of their trees, and no perplexity: of each there is one."""
        other = str(runs / "c-pcfg")
        found = json.loads(command("evaluate", grammar, data, "--with", other, "--json").result)
        together = Together([rankspace.load(grammar), rankspace.load(other)])
        expected = score(GOLD, together.parse(SENTENCES))
        assert found["parsing"] == json.loads(json.dumps(expected.to_json()))
        assert (found["run"], found["with"], found["perplexity"], found["tags"]) == (grammar, [other], None, None)
        assert found["bounds"]["oracle"]["s_f1"] == 100
        text = command("evaluate", grammar, data, "--with", other, "--with", grammar).result
        assert f"with        {other}, {grammar}\n" in text
        assert "perplexity" not in text
        text = command("evaluate", grammar, data, "--with", other, "--max-length", "2").result
        assert "longer than --max-length  2" in text

    def test_for_people(self, command: Run, grammar: str, data: str) -> None:
        rows = [line.split() for line in command("evaluate", grammar, data).result.splitlines()]
        assert ["left", "out,", "of", "one", "word", "1"] in rows
        assert ["binarised", "gold", "100.00", "100.00", "100.00"] in rows
        assert any(row[:2] == ["NP", "4"] for row in rows)
        assert any(row[:3] == ["many-to-one", "tag", "accuracy"] for row in rows)

    def test_longer_sentences_are_left_out_and_counted(self, command: Run, grammar: str, data: str) -> None:
        found = json.loads(command("evaluate", grammar, data, "--max-length", "2", "--json").result)
        assert (found["num_too_long"], found["perplexity"]["num_sentences"]) == (2, 1)
        assert "longer than --max-length  2" in command("evaluate", grammar, data, "--max-length", "2").result

    def test_impossible_sentences_are_told(self, command: Run, grammar: str, tmp_path: Path) -> None:
        folder = prepared(tmp_path / "data", trees=[*TREEBANK, "(S (NN dog) (RB never))"])
        found = json.loads(command("evaluate", grammar, folder, "--json").result)
        assert (found["perplexity"]["perplexity"], found["perplexity"]["num_impossible"]) == ("inf", 1)
        assert (found["parsing"]["num_unparsed"], found["tags"]["num_words"]) == (1, 12)
        rows = [line.split() for line in command("evaluate", grammar, folder).result.splitlines()]
        assert ["perplexity", "inf"] in rows
        assert ["impossible", "1"] in rows

    def test_data_of_the_training_by_default(self, command: Run, data: str, tmp_path: Path) -> None:
        run = make_run(tmp_path / "run", "direct", source=data, of="simple-pcfg", nonterminals=2, preterminals=3)
        assert json.loads(command("evaluate", str(run), "--json").result)["data"] == data

    def test_a_damaged_checkpoint(self, command: Run, data: str, tmp_path: Path) -> None:
        run = make_run(tmp_path / "run", "direct", of="simple-pcfg", nonterminals=2, preterminals=3)
        folder = run / "checkpoints"
        (folder / "last").rename(folder / "previous")
        (folder / "last").mkdir()
        message = f"{folder / 'last'}: is no checkpoint: it has no state.json; choose another with --checkpoint, or"
        ran = command("evaluate", str(run), data, "--checkpoint", "last")
        assert (ran.code, ran.out) == (2, "")
        assert ran.err.startswith(f"error: {message}")
        ran = command("evaluate", str(run), data, "--checkpoint", "last", "--fallback", "--json")
        assert (ran.code, json.loads(ran.out)["step"]) == (0, 7)
        assert ran.err.endswith("Took the previous one, of step 7.\n")

    def test_a_sentence_that_memory_does_not_hold(
        self, command: Run, grammar: str, data: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("rankspace.cli.memory.memory", lambda device: 500)
        ran = command("evaluate", grammar, data)
        message = "the chart of 5 words takes 1.4 kB at least, and there are 0.5 kB; divide the sentence, or leave it"
        assert ran == (2, "", f"error: {data}: test sentence 1: {message} out.\n")
        assert command("evaluate", grammar, data, "--max-length", "2").code == 0


class TestFiles:
    def test_scores_beside_bounds(self, command: Run) -> None:
        Path("gold").write_text(GOLD_FILE)
        Path("predicted").write_text("(X (X the dog) (X (X sees the) cat))\n()\n")
        found = json.loads(command("evaluate", "--predicted", "predicted", "--gold", "gold", "--json").result)
        assert found["parsing"]["by_label"]["NP"] == {"num_gold": 2, "num_found": 1, "recall": 50}
        assert found["parsing"]["num_unparsed"] == 1
        assert found["parsing"]["s_f1"] == pytest.approx(100 / 3)
        assert found["bounds"]["right_branching"]["s_f1_longer"] == pytest.approx(250 / 3)

    def test_brackets_without_symbols(self, command: Run) -> None:
        Path("gold").write_text("((the dog) (sees (the cat)))\n")
        Path("predicted").write_text("((the dog) (sees (the cat)))\n")
        options = ["--unlabelled", "--gold-unlabelled"]
        ran = command("evaluate", "--predicted", "predicted", "--gold", "gold", *options)
        assert ["predicted", "100.00", "100.00", "100.00"] in [line.split() for line in ran.out.splitlines()]

    def test_the_seed_is_that_of_random_trees(self, command: Run) -> None:
        Path("gold").write_text(GOLD_FILE)
        Path("predicted").write_text("()\n()\n")
        found = [
            json.loads(command("evaluate", "--predicted", "predicted", "--gold", "gold", "--json", *seed).result)
            for seed in (("--seed", "1"), ("--seed", "1"), ("--seed", "5"))
        ]
        assert found[0] == found[1]
        assert found[0]["bounds"]["random"] != found[2]["bounds"]["random"]

    def test_longer_sentences_are_left_out_and_counted(self, command: Run) -> None:
        """Of both files, and of the bounds too; those that do not match are mistakes all the same."""
        files = ["--predicted", "predicted", "--gold", "gold"]
        Path("gold").write_text(GOLD_FILE)
        Path("predicted").write_text("(X (X the dog) (X (X sees the) cat))\n(X (X dogs bark) loudly)\n")
        found = json.loads(command("evaluate", *files, "--max-length", "3", "--json").result)
        Path("short").write_text(GOLD_FILE.splitlines()[1])
        Path("found").write_text("(X (X dogs bark) loudly)\n")
        expected = json.loads(command("evaluate", "--predicted", "found", "--gold", "short", "--json").result)
        assert (found["num_too_long"], expected["num_too_long"]) == (1, 0)
        assert (found["parsing"], found["bounds"]) == (expected["parsing"], expected["bounds"])
        rows = [line.split() for line in command("evaluate", *files, "--max-length", "3").result.splitlines()]
        assert ["left", "out,", "longer", "than", "--max-length", "1"] in rows
        assert "--max-length" not in command("evaluate", *files).result
        assert json.loads(command("evaluate", *files, "--max-length", "1", "--json").result)["num_too_long"] == 2
        Path("predicted").write_text("(X the cat)\n(X (X dogs bark) loudly)\n")
        assert command("evaluate", *files, "--max-length", "3").code == 2


class TestCleanedGold:
    """The first tree of the treebank, cleaned, has the spans the-dog, sees-...-bark and N-cats."""

    TREES = "((The dog) (sees ((12.5 Cats) bark)))\n", "(Results part)\n", "(Dogs (bark loudly))\n"

    def score(self, command: Run, predicted: str, *options: str) -> dict[str, Any]:
        Path("gold.mrg").write_text(TREEBANK_FILE)
        Path("predicted").write_text(predicted)
        files = ["--predicted", "predicted", "--gold", "gold.mrg"]
        found: dict[str, Any] = json.loads(command("evaluate", *files, "--unlabelled", "--json", *options).result)
        return found

    def test_a_treebank_as_it_is_distributed(self, command: Run) -> None:
        found = self.score(command, "".join(self.TREES), "--preset", "ptb")
        assert found["preset"] == "ptb"
        parsing = found["parsing"]
        assert (parsing["num_sentences"], parsing["num_unparsed"]) == (3, 0)
        assert parsing["by_label"]["NP"] == {"num_gold": 2, "num_found": 2, "recall": 100}
        assert {"NP", "VP"} == set(parsing["by_label"])
        assert (parsing["corpus_recall"], parsing["corpus_precision"]) == (100, 80)  # sees-cats-bark is not in gold

    def test_words_may_be_cleaned_already(self, command: Run) -> None:
        clean = "".join(self.TREES).lower().replace("12.5", "N")
        assert self.score(command, clean, "--preset", "ptb") == self.score(
            command, "".join(self.TREES), "--preset", "ptb"
        )

    def test_trees_that_are_left_out_may_be_there_or_not(self, command: Run) -> None:
        whole, without = "".join(self.TREES), self.TREES[0] + self.TREES[2]
        found = [self.score(command, text, "--preset", "craft") for text in (whole, without)]
        assert found[0] == found[1]
        assert found[0]["parsing"]["num_sentences"] == 2

    def test_what_parse_prints_of_the_treebank(self, command: Run, tmp_path: Path) -> None:
        """The folder of a run of data that were prepared with the preset."""
        Path("gold.mrg").write_text(TREEBANK_FILE)
        assert command("data", "prepare", "train=gold.mrg", "-o", "data", "--preset", "ptb").code == 0
        sizes = ["--set", "model.nonterminals=2", "--set", "model.preterminals=3", "--set", "model.rank=2"]
        options = ["--preset", "direct", *sizes, "--set", "run.epochs=1", "--device", "cpu", "-q"]
        ran = command("train", "data", "-o", "run", *options)
        assert ran.code == 0, ran.err
        trees = command("parse", "run", "--trees", "gold.mrg", "--clean").result
        assert self.score(command, trees, "--preset", "ptb")["parsing"]["num_sentences"] == 3

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (
                ["--preset", "wsj"],
                "evaluate: there is no preset 'wsj'; the presets are plain, ptb, ptb-lm, nltk, nltk-lm,",
            ),
            (
                ["--preset", "ptb", "--gold-unlabelled"],
                "evaluate: --preset goes by the tags of gold trees; leave out --gold-unlabelled.\n",
            ),
            (
                ["--preset", "ptb"],
                "predicted, line 2: word 1 is 'results', but 'dogs' in line 6 of gold.mrg; if its brackets have no "
                "symbols, say --unlabelled.\n",
            ),
            (["--preset", "ptb", "--gold", "no.mrg"], "no.mrg: No such file or directory.\n"),
            (
                ["--preset", "ptb", "--gold", "text"],
                "text: line 1, column 1: 'the' stands outside of the brackets; write (S (NP the dog) barks).\n",
            ),
        ],
    )
    def test_mistakes(self, command: Run, arguments: list[str], message: str) -> None:
        Path("gold.mrg").write_text(TREEBANK_FILE.replace("HEADING (NP (NNP Results) (NN part))", "X (. .)"))
        Path("predicted").write_text("(X the dog sees N cats bark)\n(X results bark loudly)\n")
        Path("text").write_text("the dog\n")
        ran = command("evaluate", "--predicted", "predicted", "--gold", "gold.mrg", *arguments)
        assert (ran.code, ran.out) == (2, "")
        assert ran.err.startswith(f"error: {message}")

    def test_it_is_not_for_runs(self, command: Run, grammar: str, data: str) -> None:
        message = "evaluate: --preset cleans --gold; the data of a run are prepared already."
        assert command("evaluate", grammar, data, "--preset", "ptb") == (2, "", f"error: {message}\n")


def test_synthetic_sentences_in_the_vocabulary_of_a_run(command: Run, tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", "direct", of="rank-pcfg", **GRAMMAR)
    card = json.loads((run / "card.json").read_text())
    card["data"]["preset"] = "synthetic"
    (run / "card.json").write_text(json.dumps(card))
    found = json.loads(command("evaluate", str(run), "synthetic:20", "--json").result)
    assert (found["data"], found["perplexity"]["num_sentences"]) == ("synthetic:20", 2)
    assert found["parsing"]["num_sentences"] == 2


def test_the_demonstration_names_bounds_alike() -> None:
    from rankspace.cli.evaluate import BOUNDS
    from rankspace.demo.scores import BOUNDS as DEMO_BOUNDS

    assert BOUNDS == DEMO_BOUNDS


FILES = ["--gold", "gold", "--predicted", "short"]


class TestMistakes:
    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["no", "DATA"], NO_RUN),
            (["RUN", "no"], "no: there is no such folder; make it with data prepare."),
            (["RUN"], "{RUN}: does not say what it was trained on; give DATA."),
            (["RUN", "DATA", "--split", "dev"], "{DATA}: has no split 'dev', but train, test; use --split test."),
            (
                ["RUN", "synthetic:10"],
                "synthetic:10: {RUN} was not trained on synthetic sentences; give a prepared folder.",
            ),
            (
                ["RUN", "other"],
                "other: its vocabulary of 5 words is not that of {RUN}, of 8; prepare it with --vocabulary "
                "{RUN}/vocabulary.txt.",
            ),
            (["RUN", "DATA", "--gold", "gold"], "evaluate: give either RUN and DATA or --predicted and --gold, not"),
            (["--gold", "gold"], "evaluate: --predicted and --gold go together; give both."),
            *(
                ([*FILES, *option], f"evaluate: {option[0]} is for RUN and DATA; leave it out with --predicted and")
                for option in (
                    ["--split", "valid"],
                    ["--checkpoint", "last"],
                    ["--fallback"],
                    ["--max-tokens", "9"],
                    ["--device", "cpu"],
                )
            ),
            (["--gold", "gold", "--with", "RUN"], "evaluate: --with names grammars that parse together with RUN; give"),
            (["RUN", "DATA", "--with", "no"], NO_RUN),
            (["RUN", "DATA", "--with", "CHAIN"], "evaluate: direct is a chain; this is for grammars, which have trees"),
            (["CHAIN", "DATA", "--with", "RUN"], "evaluate: direct is a chain; this is for grammars, which have trees"),
            (
                ["RUN", "text", "--with", "RUN"],
                "evaluate: text has no gold trees to hold parses against; give DATA that",
            ),
            (["--json"], "evaluate: there is nothing to evaluate; give RUN and DATA, or --predicted and --gold."),
            (["RUN", "DATA", "--unlabelled"], "evaluate: --unlabelled and --gold-unlabelled are for --predicted and"),
            (["--gold", "gold", "--predicted", "no"], "no: cannot be read (No such file or directory)."),
            (["--gold", "gold", "--predicted", "latin"], "latin: is not UTF-8 (byte 4); convert it first."),
            (
                ["--gold", "gold", "--predicted", "bare"],
                "bare, line 1: 2 words, but line 1 of gold has 5; if its brackets have no symbols, say --unlabelled.",
            ),
            (
                ["--gold", "gold", "--predicted", "short"],
                "gold, line 2: this tree has no partner; gold has 2 trees but",
            ),
        ],
    )
    def test_one_line(
        self, command: Run, grammar: str, chain: str, data: str, arguments: list[str], message: str
    ) -> None:
        prepared(Path("other"), Vocabulary(("<unk>", "the", "dog", "sees", "cat")))
        prepared(Path("text"), trees=None)
        Path("gold").write_text(GOLD_FILE)
        Path("latin").write_bytes(b"(caf\xe9 x)\n")
        Path("bare").write_text("((the dog) (sees (the cat)))\n(dogs (bark loudly))\n")
        Path("short").write_text("(X the dog sees the cat)\n")
        paths = {"RUN": grammar, "CHAIN": chain, "DATA": data}
        ran = command("evaluate", *(paths.get(each, each) for each in arguments))
        assert (ran.code, ran.out) == (2, "")
        assert ran.err.replace(grammar, "{RUN}").replace(data, "{DATA}").startswith(f"error: {message}")
        assert ran.err.count("\n") == 1
