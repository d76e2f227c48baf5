"""`rankspace fgg`: what the commands print, and one line with exit code 2 for every mistake."""

import json
import math
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

import rankspace
from rankspace.cli import main
from rankspace.fgg import FGG, Rule, load_json, observe, save_json, sum_product, zoo

SOURCE = Path(__file__).parents[2] / "src"


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
            main(arguments)
        assert isinstance(left.value.code, int)
        return Ran(left.value.code, *capsys.readouterr())

    return command


def normalised(*shape: int) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(sum(shape)), dtype=torch.float64).softmax(-1)


def hmm() -> FGG:
    """Three states, words 0 to 3; half of the weight of each step goes on."""
    return zoo.hmm(normalised(3), normalised(3, 3) / 2, normalised(3, 4), torch.ones(3, dtype=torch.float64))


def pcfg() -> FGG:
    return zoo.pcfg(normalised(2), 0.4 * normalised(2, 4).reshape(2, 2, 2), 0.6 * normalised(2, 3))


def pets() -> FGG:
    """A grammar by hand with words for words: "cats sleep" and "dogs sleep"."""
    rules = [
        Rule.build("S", {"o1": "W", "o2": "W"}, [("who", "o1"), ("what", "o1", "o2")], name="sentence"),
    ]
    words = ("cats", "dogs", "sleep")
    who = torch.tensor([0.75, 0.25, 0], dtype=torch.float64)
    what = torch.tensor([[0, 0, 1], [0, 0, 1], [0, 0, 0]], dtype=torch.float64)
    return FGG.build("S", rules, {"W": words}, {"who": who, "what": what})


def useless() -> FGG:
    rules = [
        Rule.build("S", {}, [("f",)], name="a"),
        Rule.build("Y", {}, [("f",)], name="b"),
        Rule.build("Loop", {}, [("Loop",)], name="c"),
    ]
    return FGG.build("S", rules, {}, {"f": torch.tensor(0.5, dtype=torch.float64)})


def open_start(size: int = 2) -> FGG:
    rule = Rule.build("X", {"t": "T"}, [("f", "t")], external=["t"], name="r")
    numbers = torch.arange(size, dtype=torch.float64)
    return FGG.build("X", [rule], {"T": size}, {"f": numbers}, open_start=True)


def answer(ran: Ran) -> Any:
    """The one JSON object on stdout, without anything JSON does not have."""

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    assert (ran.code, ran.err) == (0, "")
    assert ran.out.count("\n") == 1
    return json.loads(ran.out, parse_constant=refuse)


def assert_refused(ran: Ran, line: str) -> None:
    assert ran == Ran(2, "", f"error: {line}\n")


# --- the command itself -----------------------------------------------------------------------------------------------


def test_version(run: Run) -> None:
    assert run("--version") == Ran(0, f"rankspace {rankspace.__version__}\n", "")


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"], ["fgg", "--help"], ["fgg", "z", "-h"]])
def test_help(run: Run, arguments: list[str]) -> None:
    ran = run(*arguments)
    assert (ran.code, ran.err) == (0, "")
    assert "Usage: rankspace" in ran.out


@pytest.mark.parametrize(
    ("arguments", "end"),
    [
        (["nope"], "see 'rankspace --help'."),
        (["--nope"], "see 'rankspace --help'."),
        (["fgg", "nope"], "see 'rankspace fgg --help'."),
        (["fgg", "check", "--strict"], "see 'rankspace fgg check --help'."),
        (["fgg", "check", "a", "b"], "see 'rankspace fgg check --help'."),
        (["fgg", "z", "a", "--semiring", "tropical"], "see 'rankspace fgg z --help'."),
        (["fgg", "rank-space", "a", "--rank", "0", "-o", "out"], "see 'rankspace fgg rank-space --help'."),
        (["fgg", "rank-space", "a", "--rank", "x", "-o", "out"], "see 'rankspace fgg rank-space --help'."),
        (["fgg", "rank-space", "a", "-o", "out"], "see 'rankspace fgg rank-space --help'."),
        (["fgg", "draw", "a"], "see 'rankspace fgg draw --help'."),
    ],
)
def test_a_usage_error_is_one_line(run: Run, arguments: list[str], end: str) -> None:
    ran = run(*arguments)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("error: ")
    assert ran.err.endswith(f"; {end}\n")
    assert ran.err.count("\n") == 1
    assert os.listdir() == []


def test_an_interrupt_is_quiet(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("rankspace.cli.grammar_file.load_json", interrupt)
    ran = run("fgg", "z", "grammar.json")
    assert (ran.code, ran.out, ran.err.strip()) == (130, "", "")


def test_an_unexpected_os_error_is_one_line(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied", "some\nfile")

    monkeypatch.setattr("rankspace.cli.grammar_file.load_json", fail)
    assert_refused(run("fgg", "z", "grammar.json"), r"some\nfile: Permission denied.")


@pytest.mark.parametrize(
    "error", [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes.")]
)
def test_want_of_memory_is_one_line(run: Run, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("rankspace.cli.grammar_file.load_json", fail)
    assert_refused(
        run("fgg", "z", "grammar.json"), "not enough memory; make the grammar, the sentence or the rank smaller."
    )


# --- bad files, for every command -------------------------------------------------------------------------------------

COMMANDS = [
    ["check"],
    ["check", "--json"],
    ["z"],
    ["z", "--json"],
    ["rank-space", "--rank", "2", "-o", "out.json"],
    ["draw", "-o", "out.svg"],
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (None, "cannot be read (No such file or directory)."),
        (b"", "line 1, column 1: not JSON (Expecting value)."),
        (b"\xff", "byte 0 is not UTF-8 (invalid start byte)."),
        (b"{}", 'the key "grammar" is missing.'),
        (b'{"a": 1, "a": 1}', 'the key "a" occurs twice; keys are distinct.'),
    ],
)
def test_a_bad_file_is_one_line(run: Run, command: list[str], content: bytes | None, complaint: str) -> None:
    if content is not None:
        Path("bad.json").write_bytes(content)
    before = os.listdir()
    assert_refused(run("fgg", command[0], "bad.json", *command[1:]), f"bad.json: {complaint}")
    assert os.listdir() == before


@pytest.mark.parametrize("command", [["check"], ["z"], ["rank-space", "--rank", "2", "-o", "out.json"]], ids=" ".join)
def test_an_open_start_symbol_needs_the_option(run: Run, command: list[str]) -> None:
    save_json(open_start(), "open.json")
    assert_refused(
        run("fgg", command[0], "open.json", *command[1:]),
        "open.json: start symbol 'X' has endpoints (T) but takes none; add a rule that sums them out, or give "
        "--open-start for a result over them.",
    )
    assert os.listdir() == ["open.json"]


# --- check ------------------------------------------------------------------------------------------------------------


def test_check_prints_labels_and_findings(run: Run) -> None:
    save_json(hmm(), "hmm.json")
    ran = run("fgg", "check", "hmm.json")
    assert (ran.code, ran.err) == (0, "")
    lines = [line.split() for line in ran.out.splitlines()]
    for expected in (
        "start symbol S",
        "rules 3",
        "B-FGG yes",
        "recursive X",
        "unreachable none",
        "unproductive none",
        "T 3",
        "O 4",
        "X nonterminal, 2 rules (T) 3",
        "emission factor (T, O) 3 x 4",
    ):
        assert expected.split() in lines, ran.out
    assert "\x1b" not in ran.out


def test_check_as_json(run: Run) -> None:
    save_json(useless(), "useless.json")
    assert answer(run("fgg", "check", "useless.json", "--json")) == {
        "file": "useless.json",
        "start": "S",
        "num_rules": 3,
        "is_b_fgg": False,
        "why_no_b_fgg": "rule b of Y: there is no external node; it takes exactly one.",
        "recursive": ["Loop"],
        "unreachable": ["Y", "Loop"],
        "unproductive": ["Loop"],
        "domains": {},
        "terminals": {"f": {"type": [], "shape": []}},
        "nonterminals": {label: {"type": [], "shape": [], "num_rules": 1} for label in ("S", "Y", "Loop")},
    }


def test_strict_refuses_useless_nonterminals(run: Run) -> None:
    save_json(useless(), "useless.json")
    assert_refused(
        run("fgg", "check", "useless.json", "--strict"),
        "useless.json: useless nonterminals (unreachable: Y, Loop; unproductive: Loop); remove them, or leave --strict "
        "out.",
    )
    save_json(hmm(), "hmm.json")
    assert run("fgg", "check", "hmm.json", "--strict").code == 0


def test_labels_are_never_formatting(run: Run) -> None:
    rule = Rule.build("[red]S", {"t": ":smile:"}, [("a\nb", "t")])
    save_json(FGG.build("[red]S", [rule], {":smile:": 1}, {"a\nb": torch.ones(1)}), "odd.json")
    ran = run("fgg", "check", "odd.json")
    assert all(text in ran.out for text in ("[red]S", ":smile:", r"'a\nb'"))


# --- z ----------------------------------------------------------------------------------------------------------------


def test_z_of_a_grammar(run: Run) -> None:
    save_json(hmm(), "hmm.json")
    expected = sum_product(hmm()).item()
    found = answer(run("fgg", "z", "hmm.json", "--json"))
    assert found["z"] == expected
    assert found["log_z"] == math.log(expected)
    assert run("fgg", "z", "hmm.json").out.split() == [
        "Z",
        f"{expected:.10g}",
        "log",
        "Z",
        f"{math.log(expected):.10g}",
    ]


@pytest.mark.parametrize("semiring", ["real", "log"])
@pytest.mark.parametrize("sentence", ["1 2 0", "  1  ", ""])
def test_z_of_a_sentence_of_numbers(run: Run, sentence: str, semiring: str) -> None:
    save_json(hmm(), "hmm.json")
    expected = sum_product(observe(hmm(), [int(word) for word in sentence.split()])).item()
    found = answer(run("fgg", "z", "hmm.json", "--sentence", sentence, "--semiring", semiring, "--json"))
    assert found["z"] == pytest.approx(expected, rel=1e-12)
    assert found["sentence"] == sentence.split()


def test_z_of_a_sentence_of_words(run: Run) -> None:
    save_json(pets(), "pets.json")
    assert answer(run("fgg", "z", "pets.json", "--sentence", "cats sleep", "--json"))["z"] == 0.75
    assert answer(run("fgg", "z", "pets.json", "--sentence", "dogs sleep", "--label", "W", "--json"))["z"] == 0.25


@pytest.mark.parametrize("sentence", ["sleep cats", "cats"])
def test_an_impossible_sentence(run: Run, sentence: str) -> None:
    save_json(pets(), "pets.json")
    found = answer(run("fgg", "z", "pets.json", "--sentence", sentence, "--json"))
    assert (found["z"], found["log_z"]) == (0, "-inf")
    assert run("fgg", "z", "pets.json", "--sentence", sentence).out.split() == ["Z", "0", "log", "Z", "-inf"]
    best = answer(run("fgg", "z", "pets.json", "--sentence", sentence, "--semiring", "max", "--json"))
    assert (best["weight"], best["log_weight"], best["derivation"]) == (0, "-inf", None)
    text = run("fgg", "z", "pets.json", "--sentence", sentence, "--semiring", "max").out
    assert text.splitlines()[-1] == "no derivation has positive weight"


def test_z_beyond_the_range_of_floats(run: Run) -> None:
    """Z = 1e-400 and 1e400: its logarithm is exact, and people see it."""
    for weight, shown, kept in ((1e-100, "1e-400", 0.0), (1e100, "1e+400", "inf")):
        rule = Rule.build("S", {}, [("f",)] * 4)
        save_json(FGG.build("S", [rule], {}, {"f": torch.tensor(weight, dtype=torch.float64)}), "far.json")
        found = answer(run("fgg", "z", "far.json", "--json"))
        assert found["log_z"] == pytest.approx(4 * math.log(weight))
        assert found["z"] == kept
        assert run("fgg", "z", "far.json").out.split()[1] == shown


def test_the_best_derivation_is_printed_in_values(run: Run) -> None:
    save_json(pets(), "pets.json")
    ran = run("fgg", "z", "pets.json", "--semiring", "max")
    assert [line.split() for line in ran.out.splitlines() if "=" in line] == [
        ["S", "sentence", "o1=cats", "o2=sleep"],
    ]
    found = answer(run("fgg", "z", "pets.json", "--semiring", "max", "--json"))
    assert found["weight"] == pytest.approx(0.75)
    assert found["derivation"] == [
        {"lhs": "S", "rule": "sentence", "parent": None, "assignment": {"o1": "cats", "o2": "sleep"}}
    ]


def test_the_best_tree_is_indented_and_weighs_what_it_says(run: Run) -> None:
    save_json(pcfg(), "pcfg.json")
    fgg = observe(pcfg(), [0, 1, 2])
    best = sum_product(fgg, "max")
    arguments = ("fgg", "z", "pcfg.json", "--sentence", "0 1 2", "--semiring", "max")
    found = answer(run(*arguments, "--json"))
    assert found["log_weight"] == best.log_weight.item()
    assert best.derivation is not None
    assert [step["rule"] for step in found["derivation"]] == [step.rule.name for step in best.derivation.walk()]
    lines = [line for line in run(*arguments).out.splitlines() if "=" in line]
    indents = [len(line) - len(line.lstrip()) for line in lines]
    assert indents[:3] == [0, 0, 2]
    assert sorted(indents) == [0, 0, 2, 2, 4, 4]
    assert [line.split("=")[-1].strip() for line in lines if "pi_5" in line] == ["0", "1", "2"]


def test_a_long_chain_stays_straight(run: Run) -> None:
    save_json(hmm(), "hmm.json")
    words = ["1", "2", "0", "3"] * 30
    arguments = ("fgg", "z", "hmm.json", "--sentence", " ".join(words), "--semiring", "max")
    steps = answer(run(*arguments, "--json"))["derivation"]
    assert [str(step["assignment"]["o3"]) for step in steps if step["rule"] == "pi_2"] == words
    lines = [line for line in run(*arguments).out.splitlines() if "=" in line]
    assert len(lines) == len(words) + 2
    assert not any(line.startswith(" ") for line in lines)


@pytest.mark.parametrize(
    ("semiring", "key", "expected", "text"),
    [
        ("boolean", "possible", True, "possible yes"),
        ("counting", "count", 2, "derivations with assignments 2"),
        ("entropy", "entropy", pytest.approx(0.25 * math.log(4) + 0.75 * math.log(4 / 3)), "entropy 0.5623351446"),
    ],
)
def test_other_semirings(run: Run, semiring: str, key: str, expected: object, text: str) -> None:
    save_json(pets(), "pets.json")
    assert answer(run("fgg", "z", "pets.json", "--semiring", semiring, "--json"))[key] == expected
    lines = [line.split() for line in run("fgg", "z", "pets.json", "--semiring", semiring).out.splitlines()]
    assert text.split() in lines


def test_a_count_of_many_digits(run: Run) -> None:
    """S0 -> S1 S1, S1 -> S2 S2, ...: 2 ** (2 ** 15) derivations, 9,865 digits."""
    rules = [Rule.build(f"S{i}", {}, [(f"S{i + 1}",), (f"S{i + 1}",)]) for i in range(15)]
    rules += [Rule.build("S15", {}, [("f",)]), Rule.build("S15", {}, [("f",)])]
    save_json(FGG.build("S0", rules, {}, {"f": torch.tensor(1.0)}), "many.json")
    assert answer(run("fgg", "z", "many.json", "--semiring", "counting", "--json"))["count"] == 2 ** (2**15)
    assert run("fgg", "z", "many.json", "--semiring", "counting").code == 0


def test_an_open_start_symbol_gives_a_table(run: Run) -> None:
    save_json(open_start(), "open.json")
    found = answer(run("fgg", "z", "open.json", "--open-start", "--json"))
    assert (found["endpoints"], found["z"], found["log_z"]) == (["T"], [0, 1], ["-inf", 0])
    lines = [line.split() for line in run("fgg", "z", "open.json", "--open-start").out.splitlines()]
    assert lines[1] == ["T", "Z", "log", "Z"]
    assert lines[3:] == [["0", "0", "-inf"], ["1", "1", "0"]]
    save_json(open_start(60), "open.json")
    assert run("fgg", "z", "open.json", "--open-start").out.endswith("\n... and 10 more; --json gives all.\n")


NOT_AMONG = "not among the 3 values of 'W': 'cats', 'dogs', 'sleep'"


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--sentence", "cats bark"], f"observe: word 2 is 'bark', which is {NOT_AMONG}."),
        (["--sentence", "cats slep"], f"observe: word 2 is 'slep', which is {NOT_AMONG}; did you mean 'sleep'?"),
        (["--sentence", "cats 7"], f"observe: word 2 is 7, which is {NOT_AMONG}."),
        (["--sentence", "cats", "--label", "Q"], "observe: there is no node label 'Q'; the labels are W."),
        (["--label", "W"], "--label says which node label carries the words; give them with --sentence."),
    ],
)
def test_a_bad_question_is_one_line(run: Run, arguments: list[str], line: str) -> None:
    save_json(pets(), "pets.json")
    assert_refused(run("fgg", "z", "pets.json", *arguments), line)


def test_an_infinite_sum_is_one_line(run: Run) -> None:
    weight = torch.ones(1, 1, dtype=torch.float64)
    save_json(zoo.hmm(weight[0], weight, weight, weight[0]), "hmm.json")
    assert_refused(
        run("fgg", "z", "hmm.json"),
        "sum_product: the sum over derivations of 'X' is infinite (or too close to it to tell in float64); scale its "
        "factors down, or observe a sentence first.",
    )


# --- rank-space -------------------------------------------------------------------------------------------------------


def test_rank_space_writes_a_grammar_with_the_same_z(run: Run) -> None:
    pytest.importorskip("tensorly")
    save_json(hmm(), "hmm.json")
    ran = run("fgg", "rank-space", "hmm.json", "--rank", "3", "-o", "out.json")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.endswith("\nwrote out.json\n")
    assert any(line.split()[:2] == ["pi_2", "3"] for line in ran.out.splitlines())
    # The fit is allowed a relative error of 1e-3 in the factor, and Z repeats it along the chain.
    assert sum_product(load_json("out.json")).item() == pytest.approx(sum_product(hmm()).item(), rel=1e-2)


def test_rank_space_as_json(run: Run) -> None:
    pytest.importorskip("tensorly")
    save_json(hmm(), "hmm.json")
    found = answer(run("fgg", "rank-space", "hmm.json", "--rank", "3", "-o", "out.json", "--json"))
    assert (found["output"], found["rank"], found["seed"]) == ("out.json", 3, 0)
    assert found["relative_errors"]["pi_2"] <= 1e-3
    assert found["tables"]["link"] == [3, 3]
    assert found["explanation"]


def test_a_poor_fit_writes_nothing(run: Run) -> None:
    pytest.importorskip("tensorly")
    save_json(hmm(), "hmm.json")
    ran = run("fgg", "rank-space", "hmm.json", "--rank", "1", "-o", "out.json", "--max-error", "1e-9")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.count("\n") == 1
    assert ran.err.startswith("error: rule pi_2: the relative error of its decomposition at rank 1 is ")
    assert ran.err.endswith(
        ", more than --max-error 1.00e-09; give a larger --rank, or a larger --max-error. Nothing was written.\n"
    )
    assert os.listdir() == ["hmm.json"]


def test_a_tolerated_fit_is_written(run: Run) -> None:
    pytest.importorskip("tensorly")
    save_json(hmm(), "hmm.json")
    assert run("fgg", "rank-space", "hmm.json", "--rank", "1", "-o", "out.json", "--max-error", "1").code == 0
    assert Path("out.json").exists()


def test_rank_space_overwrites_on_request_alone(run: Run) -> None:
    pytest.importorskip("tensorly")
    save_json(hmm(), "hmm.json")
    Path("out.json").write_text("old")
    arguments = ("fgg", "rank-space", "hmm.json", "--rank", "3", "-o", "out.json")
    assert_refused(run(*arguments), "out.json: exists already; choose another name, or overwrite it with --force.")
    assert Path("out.json").read_text() == "old"
    assert run(*arguments, "--force").code == 0
    assert Path("out.json").read_text() != "old"


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ("missing/out.json", "there is no folder 'missing'; make it first."),
        ("hmm.json/out.json", "'hmm.json' is a file, in which nothing can be; choose another place."),
    ],
)
def test_a_place_that_cannot_be_written_is_found_first(run: Run, output: str, message: str) -> None:
    save_json(hmm(), "hmm.json")
    assert_refused(run("fgg", "rank-space", "hmm.json", "--rank", "3", "-o", output), f"{output}: {message}")


def test_what_is_no_b_fgg_is_refused(run: Run) -> None:
    save_json(useless(), "useless.json")
    assert_refused(
        run("fgg", "rank-space", "useless.json", "--rank", "3", "-o", "out.json"),
        "useless.json: not a B-FGG, so it has no rank space: rule b of Y: there is no external node; it takes exactly "
        "one.",
    )
    assert os.listdir() == ["useless.json"]


# --- draw -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", ["svg", "png", "pdf"])
def test_draw_writes_a_picture(run: Run, suffix: str) -> None:
    pytest.importorskip("matplotlib")
    save_json(hmm(), "hmm.json")
    assert run("fgg", "draw", "hmm.json", "-o", f"out.{suffix}") == Ran(0, f"wrote out.{suffix}\n", "")
    begin = {"svg": b"<?xml", "png": b"\x89PNG", "pdf": b"%PDF"}[suffix]
    assert Path(f"out.{suffix}").read_bytes().startswith(begin)


def test_draw_tells_of_characters_that_the_font_lacks(run: Run) -> None:
    pytest.importorskip("matplotlib")
    rules = [Rule.build("S", {"o1": "猫"}, [("who", "o1")], name="sentence")]
    save_json(FGG.build("S", rules, {"猫": ("a", "b")}, {"who": torch.ones(2)}), "cat.json")
    notice = "draw: the font of .png has no 猫; use .svg.\n"
    assert run("fgg", "draw", "cat.json", "-o", "cat.png") == Ran(0, "wrote cat.png\n", notice)
    assert run("fgg", "draw", "cat.json", "-o", "cat.svg") == Ran(0, "wrote cat.svg\n", "")


def test_draw_some_rules(run: Run) -> None:
    pytest.importorskip("matplotlib")
    save_json(hmm(), "hmm.json")
    run("fgg", "draw", "hmm.json", "-o", "all.svg")
    assert run("fgg", "draw", "hmm.json", "-o", "one.svg", "--rule", "pi_1", "--rule", "pi_3").code == 0
    assert Path("one.svg").stat().st_size < Path("all.svg").stat().st_size


def test_draw_names_unknown_rules(run: Run) -> None:
    save_json(hmm(), "hmm.json")
    assert_refused(
        run("fgg", "draw", "hmm.json", "-o", "out.svg", "--rule", "pi_9"),
        "hmm.json: there is no rule 'pi_9'; the rules are pi_1, pi_2, pi_3.",
    )
    assert os.listdir() == ["hmm.json"]


@pytest.mark.parametrize("output", ["out.gif", "out", "missing/out.svg"])
def test_draw_refuses_what_it_cannot_write(run: Run, output: str) -> None:
    pytest.importorskip("matplotlib")
    save_json(hmm(), "hmm.json")
    ran = run("fgg", "draw", "hmm.json", "-o", output)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("error: ")
    assert ran.err.count("\n") == 1
    assert os.listdir() == ["hmm.json"]


# --- as a process -----------------------------------------------------------------------------------------------------


def process(folder: Path, *arguments: str) -> Ran:
    path = os.pathsep.join([str(SOURCE), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-c", "from rankspace.cli import main; main()", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    return Ran(done.returncode, done.stdout, done.stderr)


def test_a_real_run(tmp_path: Path) -> None:
    save_json(pets(), tmp_path / "pets.json")
    found = answer(process(tmp_path, "fgg", "z", "pets.json", "--sentence", "cats sleep", "--json"))
    assert found["z"] == 0.75


def test_a_real_mistake_is_one_line_and_loads_no_torch(tmp_path: Path) -> None:
    assert_refused(process(tmp_path, "fgg", "check", "a.json"), "a.json: cannot be read (No such file or directory).")
    code = (
        "import atexit, sys; atexit.register(lambda: print('torch' in sys.modules)); "
        "from rankspace.cli import main; main(['fgg', 'z', '--nope'])"
    )
    path = os.pathsep.join([str(SOURCE), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "False\n")
