"""Which files belong to which split."""

import sys
from pathlib import Path

import pytest

from rankspace.data import find_sources
from rankspace.data.split_table import SplitTable
from rankspace.errors import FormatError, MissingExtraError


def put(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("(S (NN a))\n")
    return folder


def found(*arguments: Path | str, pattern: str = "*") -> list[tuple[str, str, list[str]]]:
    sources = find_sources([str(argument) for argument in arguments], pattern)
    return [(source.split, source.name, [file.name for file in source.files]) for source in sources]


class TestFiles:
    def test_a_split_can_be_named(self, tmp_path: Path) -> None:
        put(tmp_path, "a.txt", "b.txt", "c.txt")
        names = [f"test={tmp_path / 'a.txt'}", f"train={tmp_path / 'b.txt'}", f"dev={tmp_path / 'c.txt'}"]
        assert found(*names) == [
            ("train", "b.txt", ["b.txt"]),
            ("valid", "c.txt", ["c.txt"]),
            ("test", "a.txt", ["a.txt"]),
        ]

    @pytest.mark.parametrize(
        ("name", "split"),
        [
            ("ptb.train.txt", "train"),
            ("craft-dev.mrg", "valid"),
            ("valid.txt", "valid"),
            ("my_test.txt", "test"),
            ("latest.txt", "train"),
            ("text", "train"),
        ],
    )
    def test_or_stands_in_the_name_of_the_file(self, tmp_path: Path, name: str, split: str) -> None:
        assert found(put(tmp_path, name) / name) == [(split, name, [name])]

    def test_all_files_of_a_folder_can_be_one_split(self, tmp_path: Path) -> None:
        put(tmp_path, "x/b.mrg", "x/y/a.MRG", "x/readme")
        assert found(f"test={tmp_path / 'x'}") == [("test", "x", ["b.mrg", "a.MRG"])]

    def test_what_is_not_there(self, tmp_path: Path) -> None:
        for argument in (f"{tmp_path}/no", f"train={tmp_path}/no"):
            with pytest.raises(FormatError) as error:
                found(argument)
            assert str(error.value) == f"{tmp_path}/no: there is no such file or folder."

    def test_a_folder_without_data(self, tmp_path: Path) -> None:
        put(tmp_path, "readme.md")
        with pytest.raises(FormatError) as error:
            found(tmp_path)
        assert str(error.value) == (
            f"{tmp_path}: has neither section folders (02 to 23) with trees nor files named train, valid or test; name "
            f"the files: train=FILE valid=FILE test=FILE."
        )
        with pytest.raises(FormatError, match=r"has no files that end in \.mrg, .*, \.tok; give a file\."):
            found(f"train={tmp_path}")


class TestFolders:
    def test_sections_of_the_penn_treebank(self, tmp_path: Path) -> None:
        put(tmp_path, *(f"mrg/wsj/{n:02}/wsj_{n:02}{k:02}.mrg" for n in range(25) for k in (2, 1)))
        put(tmp_path, "tagged/wsj/02/wsj_0201.pos", "mrg/wsj/MERGE.LOG")
        train, valid, test = found(tmp_path)
        assert train[:2] == ("train", f"{tmp_path.name}, sections 02-21")
        assert train[2][:3] == ["wsj_0201.mrg", "wsj_0202.mrg", "wsj_0301.mrg"]
        assert len(train[2]) == 40
        assert valid == ("valid", f"{tmp_path.name}, section 22", ["wsj_2201.mrg", "wsj_2202.mrg"])
        assert test == ("test", f"{tmp_path.name}, section 23", ["wsj_2301.mrg", "wsj_2302.mrg"])

    def test_a_part_of_the_sections(self, tmp_path: Path) -> None:
        put(tmp_path, "02/a.mrg", "05/b.mrg", "00/c.mrg")
        assert found(tmp_path) == [("train", f"{tmp_path.name}, sections 02, 05", ["a.mrg", "b.mrg"])]

    def test_a_section_found_twice_is_refused(self, tmp_path: Path) -> None:
        put(tmp_path, "x/02/a.mrg", "y/02/a.mrg")
        with pytest.raises(FormatError) as error:
            found(tmp_path)
        places = f"{tmp_path / 'x' / '02'} and in {tmp_path / 'y' / '02'}"
        assert str(error.value) == f"{tmp_path}: section 02 is in {places}; give one of the two."

    def test_files_named_by_split(self, tmp_path: Path) -> None:
        put(tmp_path, "craft.train.mrg", "craft.dev.mrg", "gum.test.mrg", "gum.train.mrg", "notes.txt", "train.log")
        assert [name for _, name, _ in found(tmp_path, pattern="craft.*.mrg")] == ["craft.train.mrg", "craft.dev.mrg"]
        names = [name for _, name, _ in found(tmp_path)]
        assert names == ["craft.train.mrg", "gum.train.mrg", "craft.dev.mrg", "gum.test.mrg"]


class TestNltk:
    def test_the_files_of_the_sample(self, tmp_path: Path) -> None:
        put(tmp_path, "wsj_0001.mrg", "wsj_0142.mrg", "wsj_0143.mrg", "wsj_0199.mrg", "README")
        assert found(tmp_path, pattern="nltk_ptb_sample.mrg") == [
            ("train", f"{tmp_path.name}, wsj_0001 to wsj_0142", ["wsj_0001.mrg", "wsj_0142.mrg"]),
            ("valid", f"{tmp_path.name}, wsj_0143 to wsj_0143", ["wsj_0143.mrg"]),
            ("test", f"{tmp_path.name}, wsj_0199 to wsj_0199", ["wsj_0199.mrg"]),
        ]

    def test_from_the_folders_of_nltk(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        data = pytest.importorskip("nltk.data")
        monkeypatch.setattr(data, "path", [str(tmp_path / "no"), str(tmp_path)])
        with pytest.raises(FormatError) as error:
            found("nltk:treebank")
        remedy = "run python -m nltk.downloader treebank, or give a path."
        assert str(error.value) == f"nltk:treebank: is in none of nltk's folders; {remedy}"
        put(tmp_path, "corpora/treebank/combined/wsj_0001.mrg")
        assert found("nltk:treebank") == [("train", "combined, wsj_0001 to wsj_0001", ["wsj_0001.mrg"])]

    def test_nltk_is_optional(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "nltk", None)
        with pytest.raises(MissingExtraError) as error:
            found("nltk:treebank")
        remedy = "pip install 'rankspace[pictures]', or give a path."
        assert str(error.value) == f"nltk:treebank: nltk is not installed; {remedy}"


class TestTables:
    def test_a_table_beside_the_file_is_used(self, tmp_path: Path) -> None:
        put(tmp_path, "sample.mrg")
        (tmp_path / "sample.split.tsv").write_text("0\twsj_0001\t0\ttest\r\n")
        (source,) = find_sources([str(tmp_path / "sample.mrg")])
        assert source.table is not None
        assert source.table.split_of == {1: "test"}

    def test_or_one_that_is_named(self, tmp_path: Path) -> None:
        put(tmp_path, "sample.mrg")
        (tmp_path / "table").write_text("0\tf\t0\tvalid\n2\tf\t1\ttrain\n")
        (source,) = find_sources([str(tmp_path / "sample.mrg")], table=tmp_path / "table")
        assert source.table is not None
        assert source.table.split_of == {1: "valid", 3: "train"}

    @pytest.mark.parametrize(
        ("row", "message"),
        [
            ("1\tf\t0", "is no row of a split table"),
            ("x\tf\t0\ttrain", "is no row of a split table"),
            ("1\tf\t0\tdev", "is no row of a split table"),
            ("", "is no row of a split table"),
            ("0\tf\t0\ttrain", "line 0 has a split already; give it once."),
        ],
    )
    def test_a_broken_table(self, tmp_path: Path, row: str, message: str) -> None:
        file = tmp_path / "table"
        file.write_text(f"0\tf\t0\ttrain\n{row}\n")
        with pytest.raises(FormatError) as error:
            SplitTable.load(file)
        assert str(error.value).startswith(f"{file}: line 2: {message}")
