"""Vocabularies: their order, their files, and what is refused."""

from pathlib import Path

import pytest

from rankspace.data import Vocabulary
from rankspace.errors import FormatError, RankspaceError

COUNTS = {"b": 3, "a": 3, "c": 5, "rare": 1, "<unk>": 7}


class TestCounts:
    def test_by_frequency_then_by_alphabet(self) -> None:
        assert Vocabulary.from_counts(COUNTS).words == ("<unk>", "c", "a", "b", "rare")

    def test_special_words_do_not_count_among_the_most_frequent(self) -> None:
        assert Vocabulary.from_counts(COUNTS, max_words=2, eos=True).words == ("<unk>", "<eos>", "c", "a")

    def test_rare_words_are_left_out(self) -> None:
        assert "rare" not in Vocabulary.from_counts(COUNTS, min_count=2)


def test_encoding_and_back() -> None:
    vocabulary = Vocabulary(("a", "<unk>", "b", "<eos>"))
    assert (vocabulary.unk, vocabulary.eos, len(vocabulary)) == (1, 3, 4)
    assert vocabulary.encode(["b", "z", "a"]).tolist() == [2, 1, 0]
    assert vocabulary.decode([2, 1, 0]) == ["b", "<unk>", "a"]
    assert Vocabulary(("<unk>",)).eos is None


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("a", "b"), "<unk> is missing; add it, for words that are not listed."),
        (("<unk>", "a", "a"), "'a' is word 2 and 1; give it once."),
        (("<unk>", "a b"), "word 1 is 'a b'; give text without white space."),
        (("<unk>", ""), "word 1 is ''; give text without white space."),
    ],
)
def test_what_is_no_vocabulary(words: tuple[str, ...], message: str) -> None:
    with pytest.raises(RankspaceError) as error:
        Vocabulary(words)
    assert str(error.value) == f"Vocabulary: {message}"


class TestFiles:
    def test_there_and_back(self, tmp_path: Path) -> None:
        vocabulary = Vocabulary(("<unk>", "caf\xe9", "\u4e2d", "("))
        vocabulary.save(tmp_path / "words")
        assert Vocabulary.load(tmp_path / "words") == vocabulary

    def test_line_ends_of_windows(self, tmp_path: Path) -> None:
        (tmp_path / "words").write_bytes(b"<unk>\r\na\r\n")
        assert Vocabulary.load(tmp_path / "words").words == ("<unk>", "a")

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            (b"a\nb\n", "line 3: <unk> is missing; add a line with it."),
            (b"", "line 1: <unk> is missing; add a line with it."),
            (b"<unk>\na\nb\na\n", "line 4: 'a' is on line 2 already; give it once."),
            (b"<unk>\na b\n", "line 2: is 'a b'; write one word a line, without white space."),
            (b"<unk>\n\nb\n", "line 2: is ''; write one word a line, without white space."),
        ],
    )
    def test_what_is_no_vocabulary(self, tmp_path: Path, content: bytes, message: str) -> None:
        file = tmp_path / "words"
        file.write_bytes(content)
        with pytest.raises(FormatError) as error:
            Vocabulary.load(file)
        assert str(error.value) == f"{file}: {message}"

    def test_another_encoding(self, tmp_path: Path) -> None:
        (tmp_path / "words").write_bytes(b"<unk>\n\xff\n")
        with pytest.raises(FormatError, match="line 2: is not UTF-8 text"):
            Vocabulary.load(tmp_path / "words")
