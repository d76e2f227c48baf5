"""Raw files as they are distributed become data sets; what is missing is told in one line."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from experiments.raw_files import raw, treebank
from rankspace.data import Corpus
from rankspace.errors import RankspaceError
from rankspace.experiments import datasets
from rankspace.experiments.datasets import check_sources, dataset, name_of


def sizes(name: str, folder: Path, output: Path) -> dict[str, tuple[int, bool]]:
    found = dataset(name_of(name, folder, output), folder, output, 0)
    return {split: (len(corpus), corpus.gold is not None) for split, corpus in found.data.splits.items()}


class TestFiles:
    def test_text(self, tmp_path: Path) -> None:
        found = sizes("ptb-text", raw(tmp_path / "raw"), tmp_path / "out")
        assert found == dict.fromkeys(("train", "valid", "test"), (2, False))

    def test_text_scored_on_the_sample(self, tmp_path: Path) -> None:
        found = sizes("ptb", raw(tmp_path / "raw"), tmp_path / "out")
        text, one = (2, False), (1, True)
        assert found == {
            "train": text,
            "valid": one,
            "test": one,
            "all": (3, True),
            "held-out": text,
            "text-test": text,
        }
        assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["ptb", "ptb-text"]

    def test_words_of_the_sample_are_those_of_the_text(self, tmp_path: Path) -> None:
        folder = raw(tmp_path / "raw")
        data = dataset("ptb", folder, tmp_path / "out", 0).data
        for corpus in (data["valid"], data["all"]):
            assert corpus.words(len(corpus) - 1) == ["the", "dog", "sees", "N", "cats"]
            assert corpus.spans(len(corpus) - 1) == [(0, 5, "S"), (0, 2, "NP"), (2, 5, "VP"), (3, 5, "NP")]
        assert data.vocabulary.eos is not None

    def test_files_may_lie_beside_each_other(self, tmp_path: Path) -> None:
        folder = raw(tmp_path / "raw")
        for file in list(folder.rglob("*.*")):
            file.rename(folder / file.name)
        assert sizes("craft", folder, tmp_path / "out") == dict.fromkeys(("train", "valid", "test"), (1, True))
        assert sizes("ptb", folder, tmp_path / "out")["all"] == (3, True)

    def test_trees_for_chains_have_an_end(self, tmp_path: Path) -> None:
        folder = raw(tmp_path / "raw")
        assert sizes("craft-text", folder, tmp_path / "out") == dict.fromkeys(("train", "valid", "test"), (1, True))
        plain, ended = (dataset(name, folder, tmp_path / "out", 0).data for name in ("craft", "craft-text"))
        assert (plain.vocabulary.eos, ended.card["preset"]) == (None, "craft")
        assert set(ended.vocabulary.words) - set(plain.vocabulary.words) == {"<eos>"}
        assert ended["train"].words(0) == plain["train"].words(0)

    def test_what_is_prepared_needs_no_files(self, tmp_path: Path) -> None:
        first = sizes("craft", raw(tmp_path / "raw"), tmp_path / "out")
        assert name_of("craft", None, tmp_path / "out") == "craft"
        found = dataset("craft", None, tmp_path / "out", 0)
        assert list(found.data.splits) == list(first)
        assert found.source == str(tmp_path / "out" / "craft")

    def test_joined_corpora_keep_their_sentences(self, tmp_path: Path) -> None:
        data = dataset("synthetic", None, tmp_path, 30).data

        def contents(corpus: Corpus) -> list[object]:
            return [(corpus.words(n), corpus.spans(n), corpus.tags(n)) for n in range(len(corpus))]

        assert contents(data["all"]) == contents(data["valid"]) + contents(data["test"])
        assert data["held-out"].gold is None


class TestSections:
    def test_of_the_treebank_stand_for_ptb(self, tmp_path: Path) -> None:
        folder = treebank(tmp_path / "wsj", *range(25))
        assert name_of("ptb", folder, tmp_path / "out") == "wsj"
        assert sizes("ptb", folder, tmp_path / "out") == {"train": (80, True), "valid": (4, True), "test": (4, True)}
        data = dataset("wsj", folder, tmp_path / "out", 0).data
        assert data["test"].words(0) == ["the", "dog", "sees", "N", "cats"]
        assert data["test"].spans(0) == [(0, 5, "S"), (0, 2, "NP"), (2, 5, "VP"), (3, 5, "NP")]
        assert data.card["preset"] == "ptb"
        assert name_of("ptb", None, tmp_path / "out") == "wsj"

    @pytest.mark.parametrize(
        ("there", "missing"),
        [
            ((2, 22, 23), "03-21"),
            (range(2, 23), "23"),
            ((*range(2, 8), *range(10, 22), 22), "08-09, 23"),
            ((4,), "02-03, 05-23"),
        ],
    )
    def test_a_part_of_the_treebank_is_refused(self, tmp_path: Path, there: Sequence[int], missing: str) -> None:
        folder = treebank(tmp_path / "wsj", *there)
        with pytest.raises(RankspaceError) as error:
            name_of("ptb", folder, tmp_path / "out")
        assert str(error.value) == (
            f"experiment: {folder}: has sections of the treebank but not {missing}; give the folder above all from 02 "
            f"to 23, or train on a part by rankspace data prepare --preset ptb and rankspace train."
        )


class TestOtherFiles:
    """Data are prepared, and then --data has other files."""

    @pytest.mark.parametrize(
        ("name", "file", "place"),
        [
            ("craft", "trees/craft.dev.mrg", "craft"),
            ("ptb-text", "lm/ptb/ptb.test.txt", "ptb-text"),
            ("ptb", "lm/ptb/ptb.train.txt", "ptb-text"),
            ("ptb", "trees/nltk_ptb_sample.mrg", "ptb"),
        ],
    )
    def test_are_refused(self, tmp_path: Path, name: str, file: str, place: str) -> None:
        folder = raw(tmp_path / "raw")
        dataset(name, folder, tmp_path / "out", 0)
        check_sources(name, folder, tmp_path / "out")
        changed = folder / file
        changed.write_text(changed.read_text().replace("dog", "cow"))
        with pytest.raises(RankspaceError) as error:
            check_sources(name, folder, tmp_path / "out")
        assert str(error.value) == (
            f"experiment: {tmp_path / 'out' / place}: was prepared from other files than {file} in {folder}; leave out "
            f"--data to go on with it, remove it and the runs on it, or give another --output."
        )

    def test_of_the_treebank_are_refused(self, tmp_path: Path) -> None:
        folder = treebank(tmp_path / "wsj", *range(2, 24))
        dataset("wsj", folder, tmp_path / "out", 0)
        check_sources("wsj", folder, tmp_path / "out")
        next(folder.rglob("wsj_2301.mrg")).write_text("( (S (NN dog)) )")
        with pytest.raises(RankspaceError, match=r"was prepared from other files than wsj, section 23 in "):
            check_sources("wsj", folder, tmp_path / "out")

    def test_of_another_split_are_refused(self, tmp_path: Path) -> None:
        folder = raw(tmp_path / "raw")
        one, other = folder / datasets.TREES[0], folder / datasets.TREES[1]
        one.write_text(one.read_text() * 2)
        dataset("craft", folder, tmp_path / "out", 0)
        texts = one.read_text(), other.read_text()
        other.write_text(texts[0])
        one.write_text(texts[1])
        with pytest.raises(RankspaceError, match=r"than trees/craft\.train\.mrg, trees/craft\.dev\.mrg in "):
            check_sources("craft", folder, tmp_path / "out")

    def test_that_are_missing_are_not_needed(self, tmp_path: Path) -> None:
        folder = raw(tmp_path / "raw")
        dataset("craft", folder, tmp_path / "out", 0)
        (folder / datasets.TREES[0]).unlink()
        assert name_of("craft", folder, tmp_path / "out") == "craft"
        check_sources("craft", folder, tmp_path / "out")

    def test_that_make_another_data_set_come_before_what_is_prepared(self, tmp_path: Path) -> None:
        folder, sections = raw(tmp_path / "raw"), treebank(tmp_path / "wsj", *range(2, 24))
        dataset("ptb", folder, tmp_path / "out", 0)
        assert name_of("ptb", sections, tmp_path / "out") == "wsj"
        dataset("wsj", sections, tmp_path / "out", 0)
        assert name_of("ptb", folder, tmp_path / "out") == "ptb"


class TestWhatIsMissing:
    def test_some_files(self, tmp_path: Path) -> None:
        folder = raw(tmp_path / "raw")
        for name in (*datasets.TEXT[1:], datasets.SAMPLE[1]):
            (folder / name).unlink()
        with pytest.raises(RankspaceError) as error:
            name_of("ptb", folder, tmp_path)
        assert str(error.value) == (
            f"experiment: {folder}: ptb needs lm/ptb/ptb.valid.txt, lm/ptb/ptb.test.txt, "
            f"trees/nltk_ptb_sample.split.tsv, which are not there; add them, give a folder of sections 02 to 23 of "
            f"the treebank, or leave out --data for synthetic sentences."
        )

    def test_one_file(self, tmp_path: Path) -> None:
        folder = raw(tmp_path / "raw")
        (folder / "trees" / "craft.dev.mrg").unlink()
        with pytest.raises(RankspaceError) as error:
            name_of("craft", folder, tmp_path)
        assert str(error.value) == (
            f"experiment: {folder}: craft needs trees/craft.dev.mrg, which is not there; add it, or leave out --data "
            f"for synthetic sentences."
        )

    def test_the_folder(self, tmp_path: Path) -> None:
        with pytest.raises(RankspaceError) as error:
            name_of("craft", tmp_path / "no", tmp_path)
        assert str(error.value) == (
            f"experiment: {tmp_path / 'no'}: there is no such folder; give that of the raw files."
        )

    def test_the_folder_of_what_is_prepared(self, tmp_path: Path) -> None:
        dataset("craft", raw(tmp_path / "raw"), tmp_path / "out", 0)
        with pytest.raises(RankspaceError, match="there is no such folder; give that of the raw files"):
            name_of("craft", tmp_path / "no", tmp_path / "out")

    def test_everything_is_synthetic_without_a_folder(self, tmp_path: Path) -> None:
        assert name_of("ptb", None, tmp_path) == "synthetic"
