"""`rankspace data`: what the commands write and print, and one line with exit code 2 for every mistake."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from rankspace.cli import main
from rankspace.data import PRESETS, load_prepared

SOURCE = Path(__file__).parents[2] / "src"

TREES = "( (S (NP-SBJ (DT The) (NN dog)) (VP (VBD slept) (NP-TMP (CD 10) (NNS hours))) (. .)) )\n"


class Ran(NamedTuple):
    code: int
    out: str
    err: str


Run = Callable[..., Ran]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Runs the command in this process, in a folder of its own, as if its output went to a file."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")

    def command(*arguments: str) -> Ran:
        with pytest.raises(SystemExit) as left:
            main(("data", *arguments))
        assert isinstance(left.value.code, int)
        return Ran(left.value.code, *capsys.readouterr())

    return command


@pytest.fixture
def text(run: Run) -> Run:
    """With a text to prepare."""
    Path("train.txt").write_text("The dog sleeps .\nThe cat , too\n...\n")
    Path("valid.txt").write_text("A dog sleeps\n")
    return run


class TestPrepare:
    def test_a_text(self, text: Run) -> None:
        ran = text("prepare", "train.txt", "valid.txt", "-o", "out", "--remove-punctuation", "--lower-case", "--eos")
        assert (ran.code, ran.err) == (
            0,
            "warning: no word of train is <unk>, but valid has 1, of which a model learns nothing; use --min-count 2 "
            "or --max-words.\n",
        )
        rows = [line.split() for line in ran.out.splitlines()]
        assert ["vocabulary", "7", "words,", "from", "train"] in rows
        assert ["train", "2", "6", "0", "3", "none", "1", "0"] in rows
        assert ["valid", "1", "3", "1", "3", "none", "0", "0"] in rows
        assert ran.out.endswith("\nwrote out\n")
        data = load_prepared("out")
        assert data.vocabulary.words == ("<unk>", "<eos>", "the", "cat", "dog", "sleeps", "too")

    def test_trees_of_a_folder_with_sections(self, run: Run) -> None:
        for section in ("00", "02", "21", "22", "23"):
            Path("wsj", section).mkdir(parents=True)
            Path("wsj", section, f"wsj_{section}01.mrg").write_text(TREES)
        ran = run("prepare", "wsj", "-o", "out", "--preset", "ptb", "--json")
        card = json.loads(ran.out)
        assert {split: entry["num_sentences"] for split, entry in card["splits"].items()} == {
            "train": 2,
            "valid": 1,
            "test": 1,
        }
        assert [source["name"] for source in card["sources"]] == [
            "wsj, sections 02, 21",
            "wsj, section 22",
            "wsj, section 23",
        ]
        train = load_prepared("out")["train"]
        assert str(train.tree(0)) == "(S (NP (DT the) (NN dog)) (VP (VBD slept) (NP (CD N) (NNS hours))))"

    def test_options_change_a_preset(self, run: Run) -> None:
        Path("x.mrg").write_text(TREES + "(X (NN x))\n")
        options = ["--keep-punctuation", "--keep-case", "--numbers", "keep", "--keep-function-tags", "--drop-root", "X"]
        ran = run("prepare", "x.mrg", "-o", "out", "--preset", "ptb", *options, "--max-words", "2", "--unary", "top")
        assert ran.code == 0
        data = load_prepared("out")
        assert data["train"].tags(0) == ["DT", "NN", "VBD", "CD", "NNS", "."]
        assert data.card["labels"] == ["S", "NP-SBJ", "VP", "NP-TMP"]
        assert data.vocabulary.words == ("<unk>", ".", "10")
        assert data.card["splits"]["train"]["num_removed"] == 1

    def test_all_options_reach_the_card(self, text: Run) -> None:
        options = [
            "--remove-punctuation",
            "--keep-traces",
            "--drop-root",
            "X",
            "--keep-function-tags",
            "--unary",
            "top",
        ]
        options += ["--lower-case", "--numbers", "digits", "--max-words", "9", "--min-count", "2", "--eos"]
        assert text("prepare", "train.txt", "-o", "out", *options, "--max-length", "7").code == 0
        card = json.loads(Path("out", "card.json").read_text())["preprocessing"]
        assert {name for name, value in card.items() if value == _default(name)} == set()

    def test_bad_input_is_skipped_and_told(self, text: Run) -> None:
        Path("train.txt").write_bytes(b"a b\n\xff\nc\n" + b"w " * 5000)
        ran = text("prepare", "train.txt", "-o", "out", "--skip-bad", "--max-length", "100")
        assert ran.code == 0
        assert ["skipped", "as", "bad", "2"] in [line.split() for line in ran.out.splitlines()]
        lines = ran.out.splitlines()
        assert "skipped train.txt: line 2: is not UTF-8 text (byte 0xff, the 1st of the line)." in lines
        assert "skipped train.txt: line 4: the sentence has 5000 words, more than --max-length 100." in lines

    def test_a_text_without_line_ends_is_one_sentence_too_long(self, run: Run) -> None:
        Path("train.txt").write_text("a b\n" + "w " * 1001)
        problem = "train.txt: line 2: the sentence has 1001 words, more than --max-length 1000"
        remedy = "divide it, leave it out with --skip-bad, or allow it with a larger --max-length"
        assert run("prepare", "train.txt", "-o", "out") == (2, "", f"error: {problem}; {remedy}.\n")
        assert json.loads(run("prepare", "train.txt", "-o", "out", "--skip-bad", "--json").out)["skipped"] == [
            f"{problem}."
        ]
        for limit in ("0", "1001"):
            assert run("prepare", "train.txt", "-o", limit, "--max-length", limit).code == 0
            assert load_prepared(limit).card["splits"]["train"]["longest"] == 1001

    def test_ignored_files_are_told(self, text: Run) -> None:
        Path("text").mkdir()
        for name in ("train.txt", "a.txt", "b.doc", "c.txt", "d.txt", ".hidden"):
            Path("text", name).write_text("a b\n")
        ran = text("prepare", "text", "-o", "out")
        assert ran.err == (
            f"prepare: ignored {Path('text', 'a.txt')}, {Path('text', 'b.doc')}, {Path('text', 'c.txt')} and 1 more; "
            "name files to take them: train=FILE valid=FILE test=FILE.\n"
        )
        assert text("prepare", "text", "-o", "quiet", "--quiet").err == ""

    def test_rare_words_make_the_warning_go(self, text: Run) -> None:
        assert text("prepare", "train.txt", "valid.txt", "-o", "out", "--min-count", "2").err == ""
        assert text("prepare", "train.txt", "valid.txt", "-o", "quiet", "--quiet").err == ""

    def test_the_vocabulary_of_other_data(self, text: Run) -> None:
        assert text("prepare", "train.txt", "-o", "first").code == 0
        assert text("prepare", "valid.txt", "-o", "second", "--vocabulary", "first").code == 0
        assert load_prepared("second")["valid"].words(0) == ["<unk>", "dog", "sleeps"]

    def test_help_names_all_presets(self, run: Run) -> None:
        words = run("prepare", "--help").out.replace(",", " ").replace(";", " ").split()
        assert set(PRESETS) <= set(words)


def _default(name: str) -> object:
    value = getattr(PRESETS["plain"].preprocessing, name)
    return list(value) if isinstance(value, tuple) else value


class TestMistakes:
    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["no.txt"], "no.txt: there is no such file or folder."),
            (
                ["traim=crlf.txt"],
                "traim=crlf.txt: 'traim' is no split; write train=, valid= or test= before the file.",
            ),
            (["."], ".: has neither section folders (02 to 23) with trees nor files named train, valid or test; name"),
            (["bad.txt"], "bad.txt: line 2: is not UTF-8 text (byte 0xff, the 1st of the line); convert the file"),
            (["bad.mrg"], "bad.mrg: line 2, column 1: this ( is never closed; add the missing )"),
            (["empty.txt"], "empty.txt: is empty; give a file with one sentence a line, or with trees."),
            (
                ["long.txt", "--max-length", "50"],
                "long.txt: line 1: the sentence has 5000 words, more than --max-length",
            ),
            (["crlf.txt", "--vocabulary", "words"], "words: line 3: <unk> is missing; add a line with it."),
            (["crlf.txt", "--vocabulary", "no"], "no: there is no such file or folder; give a vocabulary."),
            (["crlf.txt", "--preset", "wsj"], "prepare: there is no preset 'wsj'; the presets are plain, ptb,"),
            (["test=crlf.txt"], "prepare: there is no training split to take the vocabulary from; give one, or"),
            (["crlf.txt", "--format", "trees"], "crlf.txt: line 1, column 1: 'a' stands outside of the brackets;"),
            (["crlf.txt", "--split-table", "words"], "words: line 1: is no row of a split table; write line, file,"),
            (["crlf.txt", "--split-table", "none"], "none: No such file or directory."),
            (["crlf.txt", "--numbers", "roman"], "Invalid value for '--numbers': "),
            (["crlf.txt", "--max-words", "0"], "Invalid value for '--max-words': "),
        ],
    )
    def test_one_line_and_nothing_written(self, run: Run, arguments: list[str], message: str) -> None:
        folder = Path("in")
        folder.mkdir()
        os.chdir(folder)
        Path("bad.txt").write_bytes(b"a\n\xff\n")
        Path("bad.mrg").write_text("(S (NN a))\n(S (NN a)\n(S (NN a))\n")
        Path("empty.txt").touch()
        Path("long.txt").write_text("w " * 5000)
        Path("crlf.txt").write_bytes(b"a b\r\nc\r\n")
        Path("words").write_text("a\nb\n")
        before = sorted(os.listdir())
        ran = run("prepare", *arguments, "-o", "out")
        assert (ran.code, ran.out) == (2, "")
        assert ran.err.startswith(f"error: {message}")
        assert ran.err.count("\n") == 1
        assert sorted(os.listdir()) == before

    def test_what_exists_is_not_overwritten(self, text: Run) -> None:
        Path("out").mkdir()
        Path("out", "letter").touch()
        ran = text("prepare", "train.txt", "-o", "out")
        assert ran == (2, "", "error: out: exists already; choose another name, or overwrite it with --force.\n")
        ran = text("prepare", "train.txt", "-o", "out", "--force")
        assert ran == (2, "", "error: out: is no prepared data: it has no card.json; make it with data prepare.\n")

    def test_a_file_is_no_place_for_a_folder(self, text: Run) -> None:
        message = "error: train.txt: is a file; give the name of a folder.\n"
        for force in ([], ["--force"]):
            assert text("prepare", "train.txt", "-o", "train.txt", *force) == (2, "", message)

    def test_force_overwrites_prepared_data(self, text: Run) -> None:
        assert text("prepare", "train.txt", "-o", "out").code == 0
        assert text("prepare", "valid.txt", "train.txt", "-o", "out", "--force").code == 0
        assert list(load_prepared("out").splits) == ["train", "valid"]

    def test_a_missing_output(self, text: Run) -> None:
        ran = text("prepare", "train.txt")
        assert (ran.code, ran.err.count("\n")) == (2, 1)
        assert ran.err.startswith("error: Missing option '--output'")


class TestInfo:
    def test_it_prints_what_prepare_printed(self, text: Run) -> None:
        written = text("prepare", "train.txt", "valid.txt", "-o", "out").out
        ran = text("info", "out")
        assert ran == (0, written.removesuffix("\nwrote out\n"), "")

    def test_json(self, text: Run) -> None:
        assert text("prepare", "train.txt", "valid.txt", "-o", "out").code == 0
        found = json.loads(text("info", "out", "--json").out)
        assert found == {"directory": "out", **json.loads(Path("out", "card.json").read_text())}

    def test_a_foreign_folder(self, run: Run) -> None:
        ran = run("info", ".")
        assert ran == (2, "", "error: .: is no prepared data: it has no card.json; make it with data prepare.\n")
        assert run("info", "no") == (2, "", "error: no: there is no such folder; make it with data prepare.\n")

    def test_a_truncated_folder(self, text: Run) -> None:
        assert text("prepare", "train.txt", "-o", "out").code == 0
        os.truncate("out/train.safetensors", 10)
        ran = text("info", "out")
        what = "is truncated or changed: its hash is not that of the card; prepare the data again."
        assert ran == (2, "", f"error: out/train.safetensors: {what}\n")


def test_preparing_imports_neither_torch_nor_nltk(tmp_path: Path) -> None:
    (tmp_path / "train.txt").write_text("a b\n")
    code = (
        "import sys, rankspace.data\nfrom rankspace.cli import main\n"
        "try: main(['data', 'prepare', 'train.txt', '-o', 'out'])\n"
        "finally: print('LOADED', {'torch', 'nltk'} & set(sys.modules))"
    )
    path = os.pathsep.join([str(SOURCE), *filter(None, [os.environ.get("PYTHONPATH")])])
    result = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout.endswith("LOADED set()\n")
