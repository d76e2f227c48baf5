"""Files of text and of trees: what is read, and one line with the place of what is not."""

from pathlib import Path

import pytest

from rankspace import Tree
from rankspace.data import BadInput, read_sentences, read_text, read_treebank
from rankspace.data.treebank import is_treebank
from rankspace.errors import FormatError


def write(folder: Path, content: str | bytes, name: str = "file") -> Path:
    file = folder / name
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    return file


def words_of(file: Path, bad: BadInput | None = None) -> list[str]:
    return [" ".join(sentence.words) for sentence in read_sentences(file, bad=bad)]


class TestText:
    def test_sentences_have_the_numbers_of_their_lines(self, tmp_path: Path) -> None:
        file = write(tmp_path, "the dog barks\n\n  \nhe  sleeps\there\n")
        assert [(s.words, s.line) for s in read_text(file)] == [
            (["the", "dog", "barks"], 1),
            (["he", "sleeps", "here"], 4),
        ]

    @pytest.mark.parametrize("content", ["a b\nc d\n", "a b\nc d", "a b\r\nc d\r\n", "\ufeffa b\nc d\n"])
    def test_line_ends_and_byte_order_marks_do_not_matter(self, tmp_path: Path, content: str) -> None:
        assert words_of(write(tmp_path, content)) == ["a b", "c d"]

    def test_text_has_neither_tags_nor_spans(self, tmp_path: Path) -> None:
        (sentence,) = read_text(write(tmp_path, "a b\n"))
        assert sentence.tags is None
        assert sentence.spans is None
        assert sentence.tree() is None

    def test_a_sentence_of_5000_words(self, tmp_path: Path) -> None:
        (sentence,) = read_text(write(tmp_path, "word " * 5000))
        assert len(sentence.words) == 5000

    @pytest.mark.parametrize(
        ("content", "found"),
        [
            (b"good\nba\xff\n", "line 2: is not UTF-8 text (byte 0xff, the 3rd of the line)"),
            ("caf\xe9\n".encode("latin-1"), "line 1: is not UTF-8 text (byte 0xe9, the 4th of the line)"),
            (b"a b" + b" c" * 9 + b"\xe9", "line 1: is not UTF-8 text (byte 0xe9, the 22nd of the line)"),
            (b"a b c d e\xe9", "line 1: is not UTF-8 text (byte 0xe9, the 10th of the line)"),
            ("a b\n".encode("utf-16-le"), "line 1: is not UTF-8 text (a NUL byte, the 2nd of the line)"),
            ("a b\n".encode("utf-16"), "line 1: is not UTF-8 text (byte 0xff, the 1st of the line)"),
        ],
    )
    def test_another_encoding_is_reported(self, tmp_path: Path, content: bytes, found: str) -> None:
        file = write(tmp_path, content)
        with pytest.raises(FormatError) as error:
            list(read_text(file))
        remedy = "convert the file to UTF-8, or leave the line out with --skip-bad."
        assert str(error.value) == f"{file}: {found}; {remedy}"

    def test_bad_lines_are_counted_and_skipped(self, tmp_path: Path) -> None:
        bad = BadInput(skip=True)
        assert words_of(write(tmp_path, b"a\n\xff\nb\n\xff\n"), bad) == ["a", "b"]
        assert bad.num_skipped == 2
        assert "line 2" in bad.examples[0]

    def test_only_a_few_examples_are_kept(self, tmp_path: Path) -> None:
        bad = BadInput(skip=True)
        assert words_of(write(tmp_path, b"a\n" + b"\xff\n" * 20), bad) == ["a"]
        assert (bad.num_skipped, len(bad.examples)) == (20, 5)

    @pytest.mark.parametrize("content", ["", "\n \r\n\n"])
    def test_an_empty_file_is_reported(self, tmp_path: Path, content: str) -> None:
        file = write(tmp_path, content)
        with pytest.raises(FormatError) as error:
            words_of(file)
        assert str(error.value) == f"{file}: is empty; give a file with one sentence a line, or with trees."

    def test_a_file_of_bad_lines_alone_is_not_reported_as_empty_too(self, tmp_path: Path) -> None:
        bad = BadInput(skip=True)
        assert words_of(write(tmp_path, b"\xff\n"), bad) == []
        assert bad.num_skipped == 1


class TestTreebank:
    def test_words_tags_and_spans(self, tmp_path: Path) -> None:
        file = write(tmp_path, "( (S (NP-SBJ (DT The) (NN dog)) (VP (VBZ barks)) (. .)) )\n")
        (sentence,) = read_treebank(file)
        assert sentence.words == ["The", "dog", "barks", "."]
        assert sentence.tags == ["DT", "NN", "VBZ", "."]
        assert sentence.spans == [(0, 4, ""), (0, 4, "S"), (0, 2, "NP-SBJ"), (2, 3, "VP")]

    def test_trees_are_those_of_tree_parse(self, tmp_path: Path) -> None:
        text = r"(S (NP (NN -LRB-) (NN a-\LRB-b)) (VP dogs (X (Y -RRB-)) ) (: ;))"
        (sentence,) = read_treebank(write(tmp_path, text))
        assert sentence.tree() == Tree.parse(text)
        assert sentence.words[0] == "("

    def test_many_lines_per_tree_and_many_trees_per_line(self, tmp_path: Path) -> None:
        content = "\n( (S\n    (NP (NN a))\r\n\n    (VP (VB b)) ))\n\n(S (NN c)) (S (NN d))\n (S\n (NN e))\n"
        sentences = list(read_treebank(write(tmp_path, content)))
        assert [("".join(s.words), s.line) for s in sentences] == [("ab", 2), ("c", 7), ("d", 7), ("e", 8)]

    def test_a_tree_as_deep_as_it_is_long(self, tmp_path: Path) -> None:
        file = write(tmp_path, "(X (W w) " * 5000 + "(W w)" + ")" * 5000)
        (sentence,) = read_treebank(file)
        assert len(sentence.words) == 5001
        assert sentence.tree() is not None

    def test_a_bare_preterminal_is_a_tree_of_one_word(self, tmp_path: Path) -> None:
        (sentence,) = read_treebank(write(tmp_path, "(UH yes)"))
        assert (sentence.words, sentence.tags, sentence.spans) == (["yes"], ["UH"], [])

    @pytest.mark.parametrize(
        ("content", "found"),
        [
            (
                "(S (NN a))\n(S (NN b)\n(S (NN c))\n",
                "line 2, column 1: this ( is never closed; add the missing ), and indent all lines of a tree but its "
                "first.",
            ),
            (
                "(S (NN a))\n(S\n  (NP (NN b)\n",
                "line 3, column 3: this ( is never closed; add the missing ), and indent all lines of a tree but its "
                "first.",
            ),
            ("(S (NN a))\n(S (NN b)))\n", "line 2, column 11: this ) closes nothing; remove it or add its (."),
            (
                "(S (NN a))\nhello\n",
                "line 2, column 1: 'hello' stands outside of the brackets; write (S (NP the dog) barks), or say "
                "--format text.",
            ),
            ("(S (NN a))\n(S (NP))\n", "line 2, column 1: this tree has no words; remove it."),
            ("()", "line 1, column 1: this tree has no words; remove it."),
        ],
    )
    def test_broken_brackets_are_reported(self, tmp_path: Path, content: str, found: str) -> None:
        file = write(tmp_path, content)
        with pytest.raises(FormatError) as error:
            list(read_treebank(file))
        assert str(error.value) == f"{file}: {found}"

    def test_one_missing_bracket_spoils_one_tree(self, tmp_path: Path) -> None:
        bad = BadInput(skip=True)
        file = write(tmp_path, "(S (NN a))\n(S (NN b)\n(S (NN c))\n(S (NN d)))\n(S\n  (NN e))\n(S (NN f\n")
        assert words_of(file, bad) == ["a", "c", "e"]
        assert bad.num_skipped == 3

    def test_another_encoding_within_a_tree_is_one_report(self, tmp_path: Path) -> None:
        bad = BadInput(skip=True)
        assert words_of(write(tmp_path, b"(S (NN a))\n(S\n  (NN \xe9))\n(S (NN c))\n"), bad) == ["a", "c"]
        assert bad.num_skipped == 1
        assert "line 3: is not UTF-8 text (byte 0xe9, the 7th of the line)" in bad.examples[0]

    @pytest.mark.parametrize(("content", "expected"), [("\n (S a)", True), ("a (b)", False), ("", False)])
    def test_a_bracket_at_the_beginning_tells_trees_from_text(
        self, tmp_path: Path, content: str, expected: bool
    ) -> None:
        assert is_treebank(write(tmp_path, content)) is expected

    def test_the_format_can_be_said(self, tmp_path: Path) -> None:
        (sentence,) = read_sentences(write(tmp_path, "( so he said )\n"), "text")
        assert sentence.words == ["(", "so", "he", "said", ")"]
