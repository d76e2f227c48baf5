"""`rankspace parse`: every format, in the order of the input, and one line for every mistake."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import rankspace
from cli.tiny_runs import NO_RUN, Run
from rankspace.models import Model
from rankspace.training import Together, Trained
from rankspace.trees import Tree

TEXT = "The dog sees the cat\n\ndog\nthe never\n  the \t dog  \r\n"
SENTENCES = [line.split() for line in TEXT.split("\n")[:-1]]
NOTICE = "1 of 5 sentences have no tree: they are impossible or too long.\n"


@pytest.fixture(scope="module")
def expected(grammar: str) -> list[Tree | None]:
    found: list[Tree | None] = rankspace.load(grammar).parse(SENTENCES)
    return found


class TestBrackets:
    def test_a_line_for_each_line(self, command: Run, grammar: str, expected: list[Tree | None]) -> None:
        ran = command("parse", grammar, given=TEXT)
        lines = ["", "()", *(tree.bracketed(False) for tree in expected if tree is not None)]
        assert ran == (0, "\n".join([lines[2], "", lines[3], "()", lines[4]]) + "\n", NOTICE)
        assert ran.out.splitlines()[2] == "(dog)"

    def test_files_one_after_the_other_and_standard_input_among_them(self, command: Run, grammar: str) -> None:
        whole = command("parse", grammar, given=TEXT).result
        Path("one").write_text(TEXT)
        Path("two").write_bytes(b"\xef\xbb\xbf" + TEXT.encode())
        assert command("parse", grammar, "one", "-", "two", "-q", given="\ufeff" + TEXT) == (0, 3 * whole, "")

    def test_chunks_change_nothing(self, command: Run, grammar: str, monkeypatch: pytest.MonkeyPatch) -> None:
        many = 7 * TEXT
        whole = command("parse", grammar, "-q", given=many)
        monkeypatch.setattr("rankspace.cli.sentences.MOST_WORDS", 9)
        assert command("parse", grammar, "-q", "--max-tokens", "5", given=many) == whole

    def test_symbols(self, command: Run, grammar: str) -> None:
        lines = command("parse", grammar, "--labels", given=TEXT).result.splitlines()
        tree = Tree.parse(lines[0])
        assert tree.words == tuple(SENTENCES[0])
        assert all(str(node.symbol).startswith("PT" if node.end - node.begin == 1 else "NT") for node in tree.nodes)
        assert {str(node.symbol) for node in tree.nodes} <= {f"NT-{n}" for n in range(3)} | {
            f"PT-{n}" for n in range(4)
        }
        assert lines[1:4] == ["", "( dog)", "()"]

    def test_k_best(self, command: Run, grammar: str, expected: list[Tree | None]) -> None:
        rows = [line.split("\t") for line in command("parse", grammar, "--kbest", "3", given=TEXT).result.splitlines()]
        assert [row[0] for row in rows] == ["1", "1", "1", "3", "4", "5"]
        assert expected[0] is not None
        assert rows[0][2] == expected[0].bracketed(False)
        assert float(rows[0][1]) >= float(rows[1][1]) >= float(rows[2][1])
        assert rows[3:5] == [["3", "0.000000", "(dog)"], ["4", "", "()"]]

    def test_what_it_prints_can_be_evaluated(self, command: Run, grammar: str) -> None:
        Path("gold").write_text("(S (NP The dog) (VP sees (NP the cat)))\n(X dog)\n(X the never)\n(X the dog)\n")
        assert command("parse", grammar, "-o", "predicted", given=TEXT).code == 0
        found = command("evaluate", "--predicted", "predicted", "--gold", "gold", "--unlabelled", "--json")
        assert json.loads(found.out)["parsing"]["num_unparsed"] == 1

    def test_brackets_in_words_are_written_as_in_treebanks(self, command: Run, grammar: str) -> None:
        assert (
            command(
                "parse",
                grammar,
                given="(dog)\n-LRB-\n",
            ).out
            == "(-LRB-dog-RRB-)\n(-\\LRB-)\n"
        )
        found = command("parse", grammar, "--format", "json", given="(dog)\n-LRB-\n").result.splitlines()
        assert [json.loads(line)["words"] for line in found] == [["(dog)"], ["-LRB-"]]

    def test_longer_sentences_have_no_tree(self, command: Run, grammar: str) -> None:
        ran = command("parse", grammar, "--max-length", "4", given=TEXT)
        assert ran.out.splitlines()[0] == "()"
        assert ran.err == NOTICE.replace("1", "2", 1)

    def test_nothing_comes_of_nothing(self, command: Run, grammar: str) -> None:
        assert command("parse", grammar) == (0, "", "")


class TestJson:
    def test_all_that_is_known(self, command: Run, grammar: str, expected: list[Tree | None]) -> None:
        found = [json.loads(line) for line in command("parse", grammar, "-f", "json", given=TEXT).result.splitlines()]
        assert [each["words"] for each in found] == SENTENCES
        assert [each["number"] for each in found] == [1, 2, 3, 4, 5]
        assert [each["unknown"] for each in found] == [[4], [], [], [], []]
        trees = [each["tree"] and Tree.from_nested(each["tree"], labelled=False) for each in found]
        assert trees == expected
        scores = rankspace.load(grammar).log_prob([SENTENCES[0]])
        assert found[0]["log_prob"] == pytest.approx(scores[0], abs=1e-5)  # other shapes, other rounding
        assert [each["log_prob"] for each in found[1:4]] == [None, "-inf", "-inf"]
        spans = found[0]["spans"]
        assert expected[0] is not None
        assert [(s["begin"], s["end"]) for s in spans] == [node[:2] for node in expected[0].spans(min_width=2)]
        assert spans[0]["probability"] == pytest.approx(1)
        assert all(0 < s["probability"] <= 1 for s in spans)

    def test_symbols_and_several_trees(self, command: Run, grammar: str) -> None:
        first = json.loads(command("parse", grammar, "-f", "json", "--labels", given=TEXT).result.splitlines()[0])
        tree = Tree.from_nested(first["tree"])
        assert [s["label"] for s in first["spans"]] == [node.symbol for node in tree.spans(min_width=2)]
        several = json.loads(command("parse", grammar, "-f", "json", "--kbest", "2", given=TEXT).result.splitlines()[0])
        assert [set(each) for each in several["trees"]] == [{"score", "tree", "spans"}] * 2

    def test_a_tree_deeper_than_python_recurses(self) -> None:
        from rankspace.cli.tree_formats import nested_json

        words = [f"w{n}" for n in range(3000)]
        text = nested_json(Tree.from_spans(words, [(n, 3000) for n in range(2999)]), labelled=False)
        assert text.startswith('["w0", ["w1", ["w2"')
        assert text.endswith('["w2998", "w2999"' + 2999 * "]")

    def test_a_compound_model(self, command: Run, runs: Path) -> None:
        model = str(runs / "c-pcfg")
        found = json.loads(command("parse", model, "-f", "json", given="the dog sees\n").result)
        assert found["log_prob"] == pytest.approx(rankspace.load(model).log_prob([["the", "dog", "sees"]])[0], abs=1e-5)


class TestPictures:
    def test_drawings(self, command: Run, grammar: str, expected: list[Tree | None]) -> None:
        out = command("parse", grammar, "--format", "drawing", given=TEXT).result
        drawings = ["\n" if not words else "()\n\n" for words in SENTENCES]
        drawings = [d if tree is None else f"{tree.drawing()}\n\n" for d, tree in zip(drawings, expected, strict=True)]
        drawings[2] = "dog\n\n"
        assert out == "".join(drawings)
        assert command("parse", grammar, "-f", "drawing", "--labels", given="dog\n").result == "dog\n\n"

    def test_a_file_for_each_sentence_with_a_tree(self, command: Run, grammar: str) -> None:
        assert command("parse", grammar, "-f", "svg", "-o", "pictures", given=TEXT) == (
            0,
            "",
            f"wrote pictures\n{NOTICE}",
        )
        assert sorted(path.name for path in Path("pictures").iterdir()) == ["00001.svg", "00003.svg", "00005.svg"]
        assert Path("pictures/00001.svg").read_text().startswith("<svg")
        assert command("parse", grammar, "-f", "svg", "-o", "more", "--kbest", "2", given="the dog sees\n").code == 0
        assert sorted(path.name for path in Path("more").iterdir()) == ["00001-1.svg", "00001-2.svg"]


class TestTreebanks:
    TREES = "(S (NP (DT the) (NN dog))\n   (VP (VB sees) (-NONE- *) (NP (DT the) (NN dog))) (. .))\n(X (. .))\n"

    def test_words_of_a_treebank(self, command: Run, grammar: str) -> None:
        Path("x.mrg").write_text(self.TREES)
        text = command("parse", grammar, "-q", given="the dog sees * the dog .\n.\n").result
        assert command("parse", grammar, "--trees", "x.mrg") == (0, text, "")
        assert command("parse", grammar, "--trees", given=self.TREES) == (0, text, "")

    def test_clean_leaves_out_what_training_left_out(self, command: Run, grammar: str) -> None:
        text = command("parse", grammar, "-q", given="the dog sees the dog\n\n").result
        assert command("parse", grammar, "--trees", "--clean", given=self.TREES) == (0, text, "")
        assert command("parse", grammar, "--clean", given="the dog sees the dog .\n.\n") == (0, text, "")


class TestTogether:
    """--with: spans have the mean of their probabilities under several grammars."""

    @pytest.fixture
    def other(self, runs: Path) -> str:
        return str(runs / "c-pcfg")

    @pytest.fixture
    def together(self, grammar: str, other: str) -> Together:
        return Together([rankspace.load(grammar), rankspace.load(other)])

    def test_brackets(self, command: Run, grammar: str, other: str, together: Together) -> None:
        """What the first grammar cannot produce the other parses."""
        ran = command("parse", grammar, "--with", other, given=TEXT)
        expected = ["" if tree is None else tree.bracketed(False) for tree in together.parse(SENTENCES)]
        assert ran == (0, "".join(f"{line}\n" for line in expected), "")
        assert expected[3] == "(the never)"

    def test_a_grammar_with_itself_is_the_same(self, command: Run, grammar: str) -> None:
        alone = command("parse", grammar, given=TEXT)
        assert command("parse", grammar, "--with", grammar, "--with", grammar, given=TEXT) == alone

    def test_all_that_is_known(self, command: Run, grammar: str, other: str, together: Together) -> None:
        lines = command("parse", grammar, "--with", other, "--format", "json", given=TEXT).result.splitlines()
        found, (chart, *_) = json.loads(lines[0]), together.span_marginals(SENTENCES)
        assert (found["log_prob"], found["unknown"]) == (None, [4])
        assert chart is not None
        for span in found["spans"]:
            assert span["probability"] == pytest.approx(float(chart[span["begin"], span["end"]]))
        assert json.loads(lines[1])["tree"] is None

    def test_k_best(self, command: Run, grammar: str, other: str) -> None:
        lines = command("parse", grammar, "--with", other, "--kbest", "2", given=TEXT).result.splitlines()
        assert [line.split("\t")[0] for line in lines] == ["1", "1", "3", "4", "5"]
        assert lines[2] == "3\t0.000000\t(dog)"

    def test_a_sentence_that_memory_does_not_hold(
        self, command: Run, grammar: str, other: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("rankspace.cli.memory.memory", lambda device: 10)
        ran = command("parse", grammar, "--with", other, given="the dog sees\n")
        assert ran.code == 2
        assert ran.err.startswith("error: standard input: line 1: the chart of 3 words takes ")


class TestMistakes:
    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["no"], NO_RUN),
            (["CHAIN"], "parse: direct is a chain; this is for grammars, which have trees."),
            (["GRAMMAR", "no.txt"], "no.txt: No such file or directory."),
            (["GRAMMAR", "."], ".: is a folder; give files with one sentence a line."),
            (
                ["GRAMMAR", "good", "bad"],
                "bad: line 2: is not UTF-8 text (byte 0xff, the 5th of the line); convert the file to UTF-8.",
            ),
            (
                ["GRAMMAR", "--trees", "good"],
                "good: line 1, column 1: 'the' stands outside of the brackets; write (S (NP the dog) barks), or leave "
                "out --trees.",
            ),
            (["GRAMMAR", "--trees", "open"], "open: line 1, column 1: this ( is never closed; add the missing ), and"),
            (
                ["GRAMMAR", "good", "-o", "bad"],
                "bad: exists already; choose another name, or overwrite it with --force",
            ),
            (["GRAMMAR", "good", "-o", "no/x"], "no/x: there is no folder 'no'; make it first."),
            (["GRAMMAR", "good", "-o", "a/b/x"], "a/b/x: there is no folder 'a/b'; make it first."),
            (
                ["GRAMMAR", "good", "-o", "good/x"],
                "good/x: 'good' is a file, in which nothing can be; choose another place.",
            ),
            (
                ["GRAMMAR", "-f", "svg", "-o", "good/a/x"],
                "good/a/x: 'good' is a file, in which nothing can be; choose another place.",
            ),
            (["GRAMMAR", "good", "-o", "."], ".: is a folder; give the name of a file."),
            (["GRAMMAR", "-f", "svg", "-o", "bad"], "bad: exists already; choose another name."),
            (["GRAMMAR", "-f", "svg"], "parse: --format svg writes a file for each sentence; give a folder with"),
            (
                ["GRAMMAR", "--labels", "--kbest", "2"],
                "parse: --kbest has no --labels; its trees differ in spans.",
            ),
            (["GRAMMAR", "good", "--with", "no"], NO_RUN),
            (["GRAMMAR", "good", "--with", "CHAIN"], "parse: direct is a chain; this is for grammars, which have"),
            (
                ["GRAMMAR", "good", "--with", "GRAMMAR", "--labels"],
                "parse: grammars that parse together have no symbols in common; leave out --labels.",
            ),
            (["GRAMMAR", "--format", "xml"], "Invalid value for '--format'"),
            (["GRAMMAR", "--checkpoint", "first"], "Invalid value for '--checkpoint'"),
        ],
    )
    def test_one_line_and_nothing_written(
        self, command: Run, grammar: str, chain: str, arguments: list[str], message: str
    ) -> None:
        Path("good").write_text("the dog\n")
        Path("bad").write_bytes(b"the dog\nthe \xff\n")
        Path("open").write_text("(S (NP the dog)\n")
        before = sorted(path.name for path in Path().iterdir())
        paths = {"GRAMMAR": grammar, "CHAIN": chain}
        ran = command("parse", *(paths.get(each, each) for each in arguments))
        assert (ran.code, ran.out) == (2, "")
        assert ran.err.startswith(f"error: {message}")
        assert ran.err.count("\n") == 1
        assert sorted(path.name for path in Path().iterdir()) == before

    def test_standard_input_in_another_encoding(self, command: Run, grammar: str) -> None:
        message = "line 2: is not UTF-8 text (byte 0xe9, the 4th of the line); convert the file to UTF-8."
        assert command("parse", grammar, given=b"the\ncaf\xe9\n") == (2, "", f"error: standard input: {message}\n")
        ran = command("parse", grammar, "--trees", given=b"(S\n")
        assert ran.err.startswith("error: standard input: line 1, column 1: this ( is never closed;")

    def test_a_bad_line_leaves_no_file_behind(self, command: Run, grammar: str) -> None:
        ran = command("parse", grammar, "-o", "out", given=b"the dog\n\xff\n")
        assert (ran.code, list(Path().iterdir())) == (2, [])
        ran = command("parse", grammar, "-f", "svg", "-o", "out", given=b"the dog\n\xff\n")
        assert (ran.code, list(Path().iterdir())) == (2, [])

    @pytest.mark.parametrize(("kernels", "size"), [(False, "2.5 kB"), (True, "3.4 kB")])
    def test_a_sentence_that_memory_does_not_hold(
        self, command: Run, grammar: str, monkeypatch: pytest.MonkeyPatch, kernels: bool, size: str
    ) -> None:
        """Both passes, for each span 3 numbers a rank, by kernels 6."""

        def posed(self: Trained, sentences: list[list[str]]) -> Any:
            raise RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory")

        monkeypatch.setattr(Trained, "posed", posed)
        monkeypatch.setattr(Model, "poses_kernels", lambda *_: kernels)
        ran = command("parse", grammar, given="the dog\nthe dog sees\n")
        message = (
            f"line 2: not enough memory for 2 sentences of up to 3 words (rank 5, float32): it takes about {size}; "
            "lower --max-tokens, or leave long sentences out."
        )
        assert ran == (2, "", f"error: standard input: {message}\n")

    def test_a_chart_larger_than_all_memory(self, command: Run, grammar: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("rankspace.cli.memory.memory", lambda device: 3 * 10**8)
        Path("long").write_text("the dog\n" + "the dog " * 2500 + "\n")
        for name, size in (("parse", "750.5 MB"), ("score", "500.3 MB")):  # in both passes, and in one
            message = f"the chart of 5000 words takes {size} at least, and there are 300.0 MB; divide the sentence, or"
            assert command(name, grammar, "long") == (2, "", f"error: long: line 2: {message} leave it out.\n")
        assert command("parse", grammar, "long", "--max-length", "9", "-q") == (0, "(the dog)\n()\n", "")

    def test_force_overwrites(self, command: Run, grammar: str) -> None:
        Path("out").write_text("old")
        assert command("parse", grammar, "-o", "out", "--force", given="dog\n") == (0, "", "wrote out\n")
        assert command("parse", grammar, "-o", "out", "--force", "-q", given="dog\n") == (0, "", "")
        assert Path("out").read_text() == "(dog)\n"

    @pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
    def test_a_device_that_is_not_there(self, command: Run, grammar: str) -> None:
        ran = command("parse", grammar, "--device", "cuda")
        assert ran == (2, "", "error: parse: device 'cuda' is not to be had here; use cpu.\n")


@pytest.mark.gpu
def test_a_run_of_one_device_is_read_on_another(command: Run, grammar: str) -> None:
    on_cpu = command("parse", grammar, "--device", "cpu", given=TEXT)
    assert on_cpu.code == 0, on_cpu.err
    assert command("parse", grammar, "--device", "cuda", given=TEXT) == on_cpu
