"""From files to a folder of prepared data and back."""

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from rankspace import Tree
from rankspace.data import (
    BadInput,
    PreparedData,
    Preprocessing,
    find_sources,
    load_card,
    load_prepared,
    load_vocabulary,
    prepare,
    save_prepared,
)
from rankspace.data.prepared import sha256
from rankspace.errors import FormatError, RankspaceError
from rankspace.files import whole_directory

TREES = "(S (NP (DT the) (NN dog)) (VP (VBZ barks)) (. .))\n(S (. .))\n(FRAG (NN dog))\n(HEADING (NN x))\n"
OPTIONS = Preprocessing(removed_tags=(".",), removed_roots=("HEADING",), lower_case=True, max_words=3)


def made(folder: Path, **files: str | bytes) -> list[str]:
    """Arguments for `find_sources`: files with contents, named by split."""
    for split, content in files.items():
        (folder / f"{split}.data").write_bytes(content if isinstance(content, bytes) else content.encode())
    return [f"{split}={folder / split}.data" for split in files]


def prepared(folder: Path, options: Preprocessing = OPTIONS, **files: str | bytes) -> PreparedData:
    return prepare(find_sources(made(folder, **files)), options)


@pytest.fixture
def data(tmp_path: Path) -> PreparedData:
    return prepared(tmp_path, train=TREES, valid="The dog meows\nIt barks\n")


class TestPreparing:
    def test_counts(self, data: PreparedData) -> None:
        assert data.vocabulary.words == ("<unk>", "dog", "barks", "the")
        assert data.card["splits"] == {
            "train": {
                "num_sentences": 2,
                "num_words": 4,
                "num_unknown": 0,
                "longest": 3,
                "num_emptied": 1,
                "num_removed": 1,
                "num_spans": 4,
            },
            "valid": {
                "num_sentences": 2,
                "num_words": 5,
                "num_unknown": 2,
                "longest": 3,
                "num_emptied": 0,
                "num_removed": 0,
                "num_spans": None,
            },
        }

    def test_sentences_and_trees(self, data: PreparedData) -> None:
        train, valid = data["train"], data["valid"]
        assert train.tree(0) == Tree.parse("(S (NP (DT the) (NN dog)) (VP (VBZ barks)))")
        assert train.tree(-1) == Tree.parse("(FRAG (NN dog))")
        assert train.spans(0) == [(0, 3, "S"), (0, 2, "NP"), (2, 3, "VP")]
        assert train.tags(1) == ["NN"]
        assert [sentence.tolist() for sentence in valid] == [[3, 1, 0], [0, 2]]
        assert valid.words(0) == ["the", "dog", "<unk>"]
        assert (valid.tree(0), valid.spans(0), valid.tags(0)) == (None, None, None)

    def test_what_is_not_there(self, data: PreparedData) -> None:
        with pytest.raises(RankspaceError) as error:
            data["test"]
        assert str(error.value) == "prepared data: there is no split 'test'; there are train, valid."
        with pytest.raises(IndexError):
            data["train"][2]

    def test_a_given_vocabulary(self, tmp_path: Path, data: PreparedData) -> None:
        save_prepared(tmp_path / "first", data)
        (source,) = find_sources(made(tmp_path, test="dogs bark\nthe dog\n"))
        for place in (tmp_path / "first", tmp_path / "first" / "vocabulary.txt"):
            other = prepare([source], Preprocessing(eos=True), vocabulary=place)
            assert other["test"].words(1) == ["the", "dog"]
            assert other.card["vocabulary"] == {"num_words": 4, "from": place.name}
            assert other.card["preprocessing"]["eos"] is False
        with pytest.raises(FormatError, match="no: there is no such file or folder; give a vocabulary"):
            load_vocabulary(tmp_path / "no")

    def test_a_vocabulary_needs_a_training_split(self, tmp_path: Path) -> None:
        with pytest.raises(FormatError) as error:
            prepared(tmp_path, test="a b\n")
        remedy = "give one, or --vocabulary."
        assert str(error.value) == f"prepare: there is no training split to take the vocabulary from; {remedy}"

    def test_a_split_of_which_nothing_is_left(self, tmp_path: Path) -> None:
        with pytest.raises(FormatError) as error:
            prepared(tmp_path, train="a\n", valid="(S (. .))\n")
        assert str(error.value) == "valid.data: no sentence is left for the split valid; look at the options."

    def test_a_long_sentence(self, tmp_path: Path) -> None:
        text = "a b\n" + "w " * 5000 + "\n"
        for limit in (0, None, 5000):
            assert len(prepared(tmp_path, Preprocessing(max_length=limit), train=text)["train"][1]) == 5000
        with pytest.raises(FormatError) as error:
            prepared(tmp_path, Preprocessing(), train=text)
        remedy = "divide it, leave it out with --skip-bad, or allow it with a larger --max-length."
        place = f"{tmp_path / 'train.data'}: line 2"
        assert str(error.value) == f"{place}: the sentence has 5000 words, more than --max-length 1000; {remedy}"

    def test_a_text_with_eos(self, tmp_path: Path) -> None:
        text = "a b\nb <eos>\n"
        assert "<eos>" in prepared(tmp_path, Preprocessing(), train=text).vocabulary
        with pytest.raises(FormatError) as error:
            prepared(tmp_path, Preprocessing(eos=True), train=text)
        place = f"{tmp_path / 'train.data'}: line 2"
        assert str(error.value) == f"{place}: holds <eos>, which is added to every sentence; remove it."

    def test_text_and_trees_are_not_mixed_in_a_split(self, tmp_path: Path) -> None:
        (tmp_path / "text").write_text("a b\n")
        sources = find_sources([*made(tmp_path, train="(S (A a))\n"), f"train={tmp_path / 'text'}"])
        with pytest.raises(FormatError) as error:
            prepare(sources, Preprocessing())
        what = "a split has sentences with and without trees; make two splits of them."
        assert str(error.value) == f"{tmp_path / 'text'}: line 1: {what}"

    def test_bad_input_is_counted(self, tmp_path: Path) -> None:
        bad = BadInput(skip=True)
        sources = find_sources(made(tmp_path, train=b"a b c\na\n\xff\nb\n", valid=b"a\n"))
        data = prepare(sources, Preprocessing(max_length=2), bad=bad)
        assert (data.card["num_skipped"], len(data["train"]), bad.num_skipped) == (2, 2, 2)


class TestTables:
    def files(self, folder: Path, table: str) -> list[str]:
        (folder / "x.mrg").write_text("(A (B a))\n(A (B b))\n(A (B c))\n")
        (folder / "x.split.tsv").write_text(table)
        return [str(folder / "x.mrg")]

    def test_lines_go_to_their_splits(self, tmp_path: Path) -> None:
        files = self.files(tmp_path, "0\tf\t0\ttest\n1\tf\t1\ttrain\n2\tf\t2\ttrain\n")
        data = prepare(find_sources(files), Preprocessing())
        assert [data["train"].words(0), data["test"].words(0)] == [["b"], ["<unk>"]]
        (entry,) = data.card["sources"]
        assert (entry["name"], entry["split"], entry["table"]) == ("x.mrg", None, "x.split.tsv")

    def test_a_line_that_the_table_misses(self, tmp_path: Path) -> None:
        files = self.files(tmp_path, "0\tf\t0\ttest\n1\tf\t1\ttrain\n")
        with pytest.raises(FormatError) as error:
            prepare(find_sources(files), Preprocessing())
        table = tmp_path / "x.split.tsv"
        assert str(error.value) == f"{tmp_path / 'x.mrg'}: line 3: has no split in {table}; add a row for it."

    def test_a_line_that_the_file_misses(self, tmp_path: Path) -> None:
        files = self.files(tmp_path, "".join(f"{n}\tf\t{n}\ttrain\n" for n in (0, 1, 2, 7, 9)))
        with pytest.raises(FormatError) as error:
            prepare(find_sources(files), Preprocessing())
        file = tmp_path / "x.mrg"
        assert str(error.value) == f"{tmp_path / 'x.split.tsv'}: has a split for line 7, where {file} has no tree."


class TestFolder:
    def test_there_and_back(self, tmp_path: Path, data: PreparedData) -> None:
        save_prepared(tmp_path / "out", data)
        back = load_prepared(tmp_path / "out")
        assert back.vocabulary == data.vocabulary
        assert back.card == load_card(tmp_path / "out")
        for split, corpus in data.splits.items():
            assert np.array_equal(back[split].tokens, corpus.tokens)
            assert [back[split].tree(n) for n in range(len(corpus))] == [corpus.tree(n) for n in range(len(corpus))]

    def test_the_card_says_what_it_is_and_not_where_it_was_made(self, tmp_path: Path, data: PreparedData) -> None:
        save_prepared(tmp_path / "out", data)
        text = (tmp_path / "out" / "card.json").read_text()
        card = json.loads(text)
        assert (card["format"], card["version"]) == ("rankspace prepared data", 1)
        assert card["labels"] == ["S", "NP", "VP", "FRAG"]
        assert card["tags"] == ["DT", "NN", "VBZ"]
        assert str(tmp_path) not in text

    def test_the_same_files_give_the_same_bytes(self, tmp_path: Path, data: PreparedData) -> None:
        save_prepared(tmp_path / "one", data)
        save_prepared(tmp_path / "two", prepared(tmp_path, train=TREES, valid="The dog meows\nIt barks\n"))
        for file in (tmp_path / "one").iterdir():
            assert file.read_bytes() == (tmp_path / "two" / file.name).read_bytes()

    def test_what_exists_is_overwritten_only_by_force(self, tmp_path: Path, data: PreparedData) -> None:
        out = tmp_path / "out"
        out.mkdir()
        save_prepared(out, data)  # an empty folder is as good as none
        with pytest.raises(FormatError) as error:
            save_prepared(out, data)
        assert str(error.value) == f"{out}: exists already; choose another name, or overwrite it with --force."
        (out / "leftover").touch()
        save_prepared(out, data, force=True)
        assert sorted(path.name for path in out.iterdir()) == [
            "card.json",
            "train.safetensors",
            "valid.safetensors",
            "vocabulary.txt",
        ]

    def test_force_overwrites_nothing_but_prepared_data(self, tmp_path: Path, data: PreparedData) -> None:
        (tmp_path / "home").mkdir()
        (tmp_path / "home" / "letter").touch()
        with pytest.raises(FormatError) as error:
            save_prepared(tmp_path / "home", data, force=True)
        remedy = "make it with data prepare."
        assert str(error.value) == f"{tmp_path / 'home'}: is no prepared data: it has no card.json; {remedy}"

    def test_a_missing_parent(self, tmp_path: Path, data: PreparedData) -> None:
        with pytest.raises(FormatError) as error:
            save_prepared(tmp_path / "no" / "out", data)
        assert str(error.value) == f"{tmp_path / 'no' / 'out'}: there is no folder '{tmp_path}/no'; make it first."

    def test_a_failure_leaves_nothing_behind(
        self, tmp_path: Path, data: PreparedData, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        save_prepared(tmp_path / "out", data)
        before = sorted(tmp_path.iterdir())

        def full(self: Path, data: bytes) -> int:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(Path, "write_bytes", full)
        for force, name in ((True, "out"), (False, "other")):
            with pytest.raises(FormatError) as error:
                save_prepared(tmp_path / name, data, force)
            assert str(error.value) == f"{tmp_path / name}: cannot be written (No space left on device)."
        assert sorted(tmp_path.iterdir()) == before
        load_prepared(tmp_path / "out")

    def test_what_stood_there_comes_back(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "out").mkdir()
        (tmp_path / "out" / "old").touch()
        rename, calls = os.rename, list[str]()

        def second_fails(source: Path, target: Path) -> None:
            calls.append("")
            if len(calls) == 2:
                raise OSError(5, "Input/output error")
            rename(source, target)

        monkeypatch.setattr(os, "rename", second_fails)
        with pytest.raises(FormatError), whole_directory(tmp_path / "out", replace=True):
            pass
        assert [path.name for path in tmp_path.rglob("*")] == ["out", "old"]


class TestDamage:
    @pytest.fixture
    def out(self, tmp_path: Path, data: PreparedData) -> Path:
        save_prepared(tmp_path / "out", data)
        return tmp_path / "out"

    def message(self, folder: Path) -> str:
        with pytest.raises(FormatError) as error:
            load_prepared(folder)
        return str(error.value)

    def test_a_foreign_folder(self, tmp_path: Path) -> None:
        remedy = "make it with data prepare."
        assert self.message(tmp_path) == f"{tmp_path}: is no prepared data: it has no card.json; {remedy}"
        assert self.message(tmp_path / "no") == f"{tmp_path}/no: there is no such folder; {remedy}"
        for content in ('{"model": 1}', "[]"):
            (tmp_path / "card.json").write_text(content)
            file = tmp_path / "card.json"
            assert self.message(tmp_path) == f"{file}: is no card of prepared data; make it with data prepare."

    @pytest.mark.parametrize("name", ["train.safetensors", "vocabulary.txt"])
    def test_a_truncated_file(self, out: Path, name: str) -> None:
        os.truncate(out / name, (out / name).stat().st_size - 1)
        what = "is truncated or changed: its hash is not that of the card; prepare the data again."
        assert self.message(out) == f"{out / name}: {what}"

    @pytest.mark.parametrize("name", ["valid.safetensors", "vocabulary.txt"])
    def test_a_missing_file(self, out: Path, name: str) -> None:
        (out / name).unlink()
        assert self.message(out) == f"{out / name}: is missing; prepare the data again."

    def test_a_truncated_card(self, out: Path) -> None:
        os.truncate(out / "card.json", 40)
        assert self.message(out) == f"{out / 'card.json'}: is damaged (no JSON); prepare the data again."

    def test_a_card_without_an_entry(self, out: Path) -> None:
        card = json.loads((out / "card.json").read_text())
        del card["labels"]
        (out / "card.json").write_text(json.dumps(card))
        assert self.message(out) == f"{out / 'card.json'}: is damaged (KeyError('labels')); prepare the data again."

    def test_a_later_version(self, out: Path) -> None:
        text = (out / "card.json").read_text().replace('"version": 1', '"version": 2')
        (out / "card.json").write_text(text)
        what = "has version 2, but this rankspace reads 1; prepare the data again."
        assert self.message(out) == f"{out / 'card.json'}: {what}"

    def test_numbers_that_do_not_fit(self, out: Path) -> None:
        (out / "vocabulary.txt").write_text("<unk>\n")
        card = json.loads((out / "card.json").read_text())
        card["vocabulary"]["sha256"] = sha256([out / "vocabulary.txt"])
        (out / "card.json").write_text(json.dumps(card))
        found = "Corpus: tokens go from 1 to 3, but the vocabulary has 1 entries."
        assert self.message(out) == f"{out / 'train.safetensors'}: is damaged ({found}); prepare the data again."

    def test_a_split_that_is_no_safetensors(self, out: Path) -> None:
        shutil.copy(out / "card.json", out / "train.safetensors")
        card = json.loads((out / "card.json").read_text())
        card["splits"]["train"]["sha256"] = sha256([out / "train.safetensors"])
        (out / "card.json").write_text(json.dumps(card))
        assert self.message(out).startswith(f"{out / 'train.safetensors'}: is damaged (")
