"""Files: what is written comes back, older layouts are read, the fggs library agrees, and mistakes are named."""

import copy
import json
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from rankspace.errors import FormatError
from rankspace.fgg import FGG, Indicator, Rule, load_json, observe, save_json, sum_product, zoo
from rankspace.fgg.json_format import from_json, to_json


def weights(*shape: int, seed: int = 0) -> Tensor:
    """Weights small enough that every grammar of the zoo has a finite sum."""
    generator = torch.Generator().manual_seed(seed + sum(shape))
    return 0.1 * torch.rand(*shape, generator=generator, dtype=torch.float64)


ZOO: dict[str, Callable[[], FGG]] = {
    "hmm": lambda: zoo.hmm(weights(3), weights(3, 3), weights(3, 4), weights(3)),
    "factored_hmm": lambda: zoo.factored_hmm(weights(3), weights(3, 2), weights(2, 3), weights(2, 4), weights(3)),
    "lhmm": lambda: zoo.lhmm(weights(3), weights(3, 2), weights(2, 3), weights(3, 4), weights(3)),
    "hsmm": lambda: zoo.hsmm(weights(2), weights(2, 2), weights(2, 3), weights(2, 4), weights(2)),
    "hsmm product": lambda: zoo.hsmm(weights(2), weights(2, 2), weights(2, 3), weights(2, 4), weights(2), product=True),
    "pcfg": lambda: zoo.pcfg(weights(3), weights(3, 3, 3), weights(3, 4)),
    "split_pcfg": lambda: zoo.split_pcfg(weights(2), weights(2, 5, 5), weights(3, 4)),
    "factored_pcfg": lambda: zoo.factored_pcfg(weights(3), weights(3, 2), weights(2, 3), weights(2, 3), weights(3, 4)),
    "split_factored_pcfg": lambda: zoo.split_factored_pcfg(
        weights(2), weights(2, 2), weights(2, 5), weights(2, 5), weights(3, 4)
    ),
    "lpcfg": lambda: zoo.lpcfg(weights(3), weights(3, 2), weights(2, 3, 3), weights(3, 4)),
    "lexicalised_pcfg": lambda: zoo.lexicalised_pcfg(
        weights(2, 3), weights(2, 3, 2, 2, 3), weights(2, 3, 2, 2, 3), weights(2, 3)
    ),
    "lexicalised_pcfg product": lambda: zoo.lexicalised_pcfg(
        weights(2, 3), weights(2, 3, 2, 2, 3), weights(2, 3, 2, 2, 3), weights(2, 3), product=True
    ),
    "qcfg": lambda: zoo.qcfg(weights(2, 2), weights(2, 2, 2, 2, 2, 2), weights(2, 2, 3)),
    "qcfg product": lambda: zoo.qcfg(weights(2, 2), weights(2, 2, 2, 2, 2, 2), weights(2, 2, 3), product=True),
}


def small(values: tuple[Any, ...] = ("a", "b"), numbers: Tensor | None = None, name: str = "") -> FGG:
    """One rule, one node and one factor on it."""
    numbers = weights(len(values)) if numbers is None else numbers
    return FGG.build("S", [Rule.build("S", {"t": "T"}, [("f", "t")], name=name)], {"T": values}, {"f": numbers})


def assert_same(left: FGG, right: FGG) -> None:
    """Equal in every part, domain values in type too; weights bit for bit."""
    assert left.grammar == right.grammar
    assert left.table_names == right.table_names
    assert list(left.domains) == list(right.domains)
    for label, domain in left.domains.items():
        assert [(type(v), v) for v in domain.values] == [(type(v), v) for v in right.domains[label].values]
    assert list(left.factors) == list(right.factors)
    for label in left.factors:
        expected, found = (fgg.to(torch.float64).tensors[label] for fgg in (left, right))
        assert found.dtype == torch.float64
        assert found.shape == expected.shape
        assert torch.equal(found.view(torch.int64), expected.view(torch.int64))


# --- what is written comes back ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ZOO)
def test_every_grammar_of_the_zoo_comes_back(name: str, tmp_path: Path) -> None:
    fgg = ZOO[name]()
    save_json(fgg, tmp_path / "grammar.json")
    assert_same(load_json(tmp_path / "grammar.json"), fgg)
    assert os.listdir(tmp_path) == ["grammar.json"]


@pytest.mark.parametrize("name", ZOO)
def test_an_observed_grammar_comes_back_with_one_hot_words(name: str, tmp_path: Path) -> None:
    fgg = observe(ZOO[name](), [1, 0, 2])
    assert any(isinstance(factor, Indicator) for factor in fgg.factors.values())
    save_json(fgg, tmp_path / "grammar.json")
    back = load_json(tmp_path / "grammar.json")
    assert_same(back, fgg)
    assert all(isinstance(factor, Tensor) for factor in back.factors.values())


SCALARS = (
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.floats(allow_nan=False, allow_infinity=False)
)
VALUES = SCALARS | st.lists(SCALARS, max_size=3).map(tuple) | st.tuples(st.tuples(SCALARS), SCALARS)
NUMBERS = st.floats(min_value=0, allow_infinity=False, allow_nan=False)


@given(values=st.lists(VALUES, max_size=6, unique=True), data=st.data())
def test_any_values_and_weights_come_back(values: list[Any], data: st.DataObject) -> None:
    numbers = data.draw(st.lists(NUMBERS, min_size=len(values), max_size=len(values)))
    fgg = small(tuple(values), torch.tensor(numbers, dtype=torch.float64))
    assert_same(from_json(json.loads(json.dumps(to_json(fgg)))), fgg)


@given(label=st.text(), name=st.text(), node=st.text(), edge=st.text())
def test_any_names_come_back(label: str, name: str, node: str, edge: str) -> None:
    rule = Rule.build("S", {node: label}, [(edge, node)], name=name)
    if edge != "S":
        fgg = FGG.build("S", [rule], {label: 2}, {edge: weights(2)}, table_names={name: label})
        assert_same(from_json(json.loads(json.dumps(to_json(fgg)))), fgg)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_narrower_weights_come_back_as_the_equal_float64(dtype: torch.dtype) -> None:
    numbers = weights(2).to(dtype)
    back = from_json(to_json(small(numbers=numbers.requires_grad_())))
    assert back.dtype == torch.float64
    assert torch.equal(back.tensors["f"], numbers.detach().double())


def test_a_domain_without_values_keeps_its_factor() -> None:
    rules = [Rule.build("S", {"a": "A", "b": "B"}, [("f", "a", "b")])]
    fgg = FGG.build("S", rules, {"A": 0, "B": 3}, {"f": torch.zeros(0, 3, dtype=torch.float64)})
    assert_same(from_json(to_json(fgg)), fgg)


def test_only_automatic_names_are_left_out() -> None:
    assert "name" not in to_json(small())["grammar"]["rules"][0]
    assert to_json(small(name="#2"))["grammar"]["rules"][0]["name"] == "#2"


def test_an_unused_domain_comes_back() -> None:
    fgg = FGG.build("S", small().rules, {"T": 2, "Q": ("x",)}, small().factors)
    assert_same(from_json(to_json(fgg)), fgg)


def test_an_open_start_symbol_comes_back_on_request(tmp_path: Path) -> None:
    rule = Rule.build("X", {"t": "T"}, [("f", "t")], external=["t"], name="r")
    fgg = FGG.build("X", [rule], {"T": 2}, {"f": weights(2)}, open_start=True)
    save_json(fgg, tmp_path / "open.json")
    assert_same(load_json(tmp_path / "open.json", open_start=True), fgg)
    assert complaint(tmp_path / "open.json") == (
        "open.json: start symbol 'X' has 1 endpoint(s) (T; rule r of X) but takes none; add a rule that sums them out, "
        "or pass open_start=True for a tensor over them."
    )


# --- the fggs library -------------------------------------------------------------------------------------------------


def their_z(data: Any) -> float:
    """The sum-product that the fggs library finds in a file; it takes weights as tensors."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fggs = pytest.importorskip("fggs")
        theirs = fggs.json_to_fgg(data)
        for factor in theirs.factors.values():
            factor.weights = torch.tensor(factor.weights, dtype=torch.float64)
        semiring = fggs.RealSemiring(dtype=torch.float64)
        return float(fggs.sum_product(theirs, method="newton", tol=1e-12, semiring=semiring))


@pytest.mark.parametrize("name", ZOO)
def test_the_fggs_library_reads_what_we_write(name: str, tmp_path: Path) -> None:
    fgg = ZOO[name]()
    save_json(fgg, tmp_path / "grammar.json")
    theirs = their_z(json.loads((tmp_path / "grammar.json").read_text()))
    assert theirs == pytest.approx(float(sum_product(fgg)), rel=1e-9)  # their Newton stops at steps of 1e-12


@pytest.mark.parametrize("name", ["hmm", "pcfg", "qcfg product"])
def test_the_fggs_library_reads_observed_grammars(name: str) -> None:
    fgg = observe(ZOO[name](), [1, 0, 2])
    theirs = their_z(json.loads(json.dumps(to_json(fgg))))
    assert theirs == pytest.approx(float(sum_product(fgg)), rel=1e-12)  # no iteration on either side


# --- layouts ----------------------------------------------------------------------------------------------------------

RULES = [
    {"lhs": "S", "rhs": {"nodes": [{"label": "T"}], "edges": [{"attachments": [0], "label": "X"}]}},
    {
        "comment": "ignored",
        "lhs": "X",
        "rhs": {
            "nodes": [{"label": "T", "id": "n1"}, {"label": "T"}, {"label": "O", "id": "word"}],
            "edges": [
                {"attachments": [0, 1], "label": "move", "id": "e1"},
                {"attachments": [1, 2], "label": "say"},
                {"attachments": [1], "label": "X"},
            ],
            "externals": [0],
        },
    },
    {
        "name": "stop",
        "lhs": "X",
        "rhs": {"nodes": [{"label": "T"}], "edges": [{"attachments": [0], "label": "end"}], "externals": [0]},
    },
]
NONTERMINALS = {"S": {"type": []}, "X": {"type": ["T"]}}
TYPES = {"move": ["T", "T"], "say": ["T", "O"], "end": ["T"]}
WEIGHTS: dict[str, list[Any]] = {"move": [[0, 0.5], [0.25, 0.25]], "say": [[1, 0, 0], [0, 0.5, 0.5]], "end": [0.5, 0.5]}
DOMAINS = {
    "T": {"class": "finite", "values": ["noun", "verb"]},
    "O": {"class": "finite", "values": ["cats", "sleep", "eat"], "comment": "ignored"},
}
NAMED = {"finite": {label: {"function": "finite", "weights": w} for label, w in WEIGHTS.items()}}
NAMED["categorical"] = {
    label: {"function": "categorical", "type": TYPES[label], "weights": w} for label, w in WEIGHTS.items()
}
TERMINALS = {label: {"type": ends} for label, ends in TYPES.items()}
GRAMMAR = {"terminals": TERMINALS, "nonterminals": NONTERMINALS, "start": "S", "rules": RULES}
LAYOUTS: dict[str, dict[str, Any]] = {
    "current": {"grammar": GRAMMAR, "interpretation": {"domains": DOMAINS, "factors": NAMED["finite"]}},
    "categorical": {"grammar": GRAMMAR, "interpretation": {"domains": DOMAINS, "factors": NAMED["categorical"]}},
    "beside": {"grammar": GRAMMAR, "domains": DOMAINS, "factors": NAMED["categorical"], "description": "ignored"},
    "beside, no terminals": {
        "grammar": {"nonterminals": NONTERMINALS, "start": "S", "rules": RULES},
        "domains": DOMAINS,
        "factors": NAMED["categorical"],
    },
    "flat": {
        "domains": DOMAINS,
        "factors": NAMED["categorical"],
        "nonterminals": NONTERMINALS,
        "start": "S",
        "rules": RULES,
    },
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_gives_the_same_grammar(layout: str, tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    path.write_text(json.dumps(LAYOUTS[layout]))
    fgg = load_json(path)
    assert_same(fgg, from_json(LAYOUTS["current"]))
    assert [rule.name for rule in fgg.rules] == ["#1", "#2", "stop"]
    assert [node.id for node in fgg.rules[1].rhs.nodes] == ["n1", "n1'", "word"]
    assert [edge.id for edge in fgg.rules[1].rhs.edges] == ["e1", "e1'", "e2"]
    assert sum_product(fgg).item() == pytest.approx(2)  # from each of two states: moving on or ending, half and half
    assert_same(from_json(to_json(fgg)), fgg)


def test_the_fggs_library_agrees_on_a_hand_written_file() -> None:
    assert their_z(LAYOUTS["current"]) == pytest.approx(2)


def test_a_byte_order_mark_is_allowed(tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps(LAYOUTS["flat"]).encode())
    assert_same(load_json(path), from_json(LAYOUTS["flat"]))


# --- mistakes ---------------------------------------------------------------------------------------------------------


def complaint(path: Path) -> str:
    """The message of the FormatError that loading raises, with the file's folder left out."""
    with pytest.raises(FormatError) as caught:
        load_json(path)
    return str(caught.value).replace(str(path), path.name)


REMOVE = object()
CHANGES: list[tuple[str, list[str | int], Any, str]] = [
    ("flat", ["rules"], REMOVE, 'the key "grammar" is missing.'),
    ("flat", ["start"], REMOVE, 'the key "start" is missing.'),
    ("current", ["interpretation"], REMOVE, 'the key "interpretation" is missing.'),
    ("current", ["grammar"], [], "grammar: expected an object, found a list."),
    ("current", ["grammar", "nonterminals"], REMOVE, 'grammar: the key "nonterminals" is missing.'),
    ("current", ["grammar", "start"], 3, "grammar.start: expected a string, found the number 3."),
    ("current", ["grammar", "start"], "T", "start symbol 'T' is not a nonterminal; give it a rule."),
    ("current", ["grammar", "rules"], {}, "grammar.rules: expected a list, found an object."),
    ("current", ["grammar", "rules", 1, "lhs"], None, "grammar.rules[1].lhs: expected a string, found null."),
    ("current", ["grammar", "rules", 2, "name"], True, "grammar.rules[2].name: expected a string, found true."),
    ("current", ["grammar", "rules", 1, "rhs"], REMOVE, 'grammar.rules[1]: the key "rhs" is missing.'),
    (
        "current",
        ["grammar", "rules", 1, "rhs", "edges", 1, "attachments", 0],
        7,
        "grammar.rules[1].rhs.edges[1].attachments[0]: node number 7 is out of range; the rule has 3 nodes.",
    ),
    (
        "current",
        ["grammar", "rules", 1, "rhs", "edges", 1, "attachments", 0],
        -1,
        "grammar.rules[1].rhs.edges[1].attachments[0]: node number -1 is out of range; the rule has 3 nodes.",
    ),
    (
        "current",
        ["grammar", "rules", 2, "rhs", "externals", 0],
        1,
        "grammar.rules[2].rhs.externals[0]: node number 1 is out of range; the rule has 1 node.",
    ),
    (
        "current",
        ["grammar", "rules", 1, "rhs", "edges", 1, "attachments", 0],
        1.0,
        "grammar.rules[1].rhs.edges[1].attachments[0]: expected a whole number, found the number 1.0.",
    ),
    (
        "current",
        ["grammar", "rules", 1, "rhs", "nodes", 1, "id"],
        "n1",
        "grammar.rules[1].rhs: rule #2 of X: node 'n1' occurs twice; each may occur once.",
    ),
    (
        "current",
        ["grammar", "rules", 1, "rhs", "nodes", 1, "id"],
        5,
        "grammar.rules[1].rhs.nodes[1].id: expected a string, found the number 5.",
    ),
    (
        "current",
        ["grammar", "rules", 1, "rhs", "edges", 1, "label"],
        "sing",
        "grammar.rules[1]: rule #2 of X: edge \"e1'\" has the unknown label 'sing'; give it a factor or a rule.",
    ),
    (
        "current",
        ["grammar", "nonterminals", "Y"],
        {"type": []},
        "nonterminal 'Y' has no rule; give it one or remove it.",
    ),
    (
        "current",
        ["grammar", "nonterminals", "a b\n"],
        {"type": 1},
        r'grammar.nonterminals["a b\n"].type: expected a list, found the number 1.',
    ),
    (
        "current",
        ["grammar", "terminals", "sing"],
        {"type": []},
        "terminal 'sing' has no factor; add factors['sing'].",
    ),
    (
        "current",
        ["grammar", "terminals", "say"],
        REMOVE,
        "interpretation.factors.say: the key \"type\" is missing, and grammar.terminals does not list 'say'; "
        "add either.",
    ),
    (
        "beside",
        ["factors", "say", "type"],
        ["O", "T"],
        "factors.say.type: grammar.terminals has the type (T, O); make them agree.",
    ),
    (
        "current",
        ["interpretation", "domains", "T", "class"],
        "infinite",
        'interpretation.domains.T.class: unknown class "infinite"; known is "finite".',
    ),
    (
        "current",
        ["interpretation", "domains", "T", "values"],
        REMOVE,
        'interpretation.domains.T: the key "values" is missing.',
    ),
    (
        "current",
        ["interpretation", "domains", "T", "values", 1],
        "noun",
        'interpretation.domains.T.values[1]: the string "noun" occurs twice; values are distinct.',
    ),
    (
        "current",
        ["interpretation", "domains", "T", "values", 1],
        {},
        "interpretation.domains.T.values[1]: expected a string, a finite number, true, false, null or a list of these, "
        "found an object.",
    ),
    (
        "current",
        ["interpretation", "domains", "T", "tuples"],
        [[0]],
        "interpretation.domains.T.tuples: has 1 entries but values has 2; make them agree.",
    ),
    (
        "current",
        ["interpretation", "domains", "O"],
        REMOVE,
        "interpretation.factors.say: its type has the node label 'O', which has no domain; add one.",
    ),
    (
        "current",
        ["interpretation", "factors", "say", "function"],
        "gaussian",
        'interpretation.factors.say.function: unknown function "gaussian"; known is "finite" or "categorical".',
    ),
    (
        "current",
        ["interpretation", "factors", "say", "weights", 1],
        [0, 1],
        "interpretation.factors.say.weights[1]: expected as many entries as 'O' has values, which is 3, found 2.",
    ),
    (
        "current",
        ["interpretation", "factors", "say", "weights"],
        [[1, 0, 0]],
        "interpretation.factors.say.weights: expected as many entries as 'T' has values, which is 2, found 1.",
    ),
    (
        "current",
        ["interpretation", "factors", "say", "weights"],
        [1, 0],
        "interpretation.factors.say.weights[0]: expected a list, found the number 1.",
    ),
    (
        "current",
        ["interpretation", "factors", "end", "weights", 1],
        [0.5],
        "interpretation.factors.end.weights[1]: expected a number, found a list.",
    ),
    (
        "current",
        ["interpretation", "factors", "end", "weights", 1],
        True,
        "interpretation.factors.end.weights[1]: expected a number, found true.",
    ),
    (
        "current",
        ["interpretation", "factors", "end", "weights", 1],
        -0.5,
        "interpretation.factors.end.weights[1]: the number -0.5 is no weight; weights are finite and >= 0.",
    ),
    (
        "current",
        ["interpretation", "factors", "end", "weights", 1],
        float("nan"),
        "interpretation.factors.end.weights[1]: the number NaN is no weight; weights are finite and >= 0.",
    ),
    (
        "current",
        ["interpretation", "factors", "end", "weights", 1],
        float("inf"),
        "interpretation.factors.end.weights[1]: the number Infinity is no weight; weights are finite and >= 0.",
    ),
    (
        "current",
        ["interpretation", "factors", "end", "weights", 1],
        10**320,
        f"interpretation.factors.end.weights[1]: the number 1{'0' * 36}... is no weight; weights are finite and >= 0.",
    ),
    ("current", ["table_names"], {"a": 1}, "table_names.a: expected a string, found the number 1."),
]


@pytest.mark.parametrize(("layout", "keys", "value", "expected"), CHANGES)
def test_a_mistake_is_named_with_its_place(
    layout: str, keys: list[str | int], value: Any, expected: str, tmp_path: Path
) -> None:
    data: Any = copy.deepcopy(LAYOUTS[layout])
    *way, last = keys
    here = data
    for key in way:
        here = here[key]
    if value is REMOVE:
        del here[last]
    else:
        here[last] = value
    path = tmp_path / "bad.json"
    path.write_text(json.dumps(data))
    assert complaint(path) == f"bad.json: {expected}"
    assert "\n" not in complaint(path)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "line 1, column 1: not JSON (Expecting value)."),
        (b'{"grammar": {},\n "x" 1}', "line 2, column 6: not JSON (Expecting ':' delimiter)."),
        (b"[1, 2]", "expected an object, found a list."),
        (b"NaN", "expected an object, found the number NaN."),
        (b'{"a": "\xff"}', "byte 7 is not UTF-8 (invalid start byte)."),
        (
            b'{"grammar": {"rules": [{"a": 1, "a": 2}]}}',
            'grammar.rules[0]: the key "a" occurs twice; keys are distinct.',
        ),
        (b'{"a": 1, "a": 1}', 'the key "a" occurs twice; keys are distinct.'),
        (b"[" * 200_000, "lists and objects are nested too deeply."),
        (b"9" * 5000, "expected an object, found the number Infinity."),
    ],
)
def test_what_is_not_json_is_refused(content: bytes, expected: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.json"
    path.write_bytes(content)
    assert complaint(path) == f"bad.json: {expected}"


def places(data: Any) -> list[list[str | int]]:
    """The path to every part of parsed JSON."""
    keys = list(data) if isinstance(data, dict) else list(range(len(data))) if isinstance(data, list) else []
    return [[], *([key, *rest] for key in keys for rest in places(data[key]))]


PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-2, 4)
    | st.floats()
    | st.sampled_from(["S", "X", "T", "O", "move", "type"]),
    lambda parts: st.lists(parts, max_size=3) | st.dictionaries(st.sampled_from(["S", "T", "label", "id"]), parts),
    max_leaves=6,
)


@given(layout=st.sampled_from(sorted(LAYOUTS)), place=st.integers(0), value=PLAIN)
def test_whatever_stands_anywhere_gives_a_grammar_or_one_line(layout: str, place: int, value: Any) -> None:
    data: Any = {"top": copy.deepcopy(LAYOUTS[layout])}
    ways = places(data)[1:]
    *way, last = ways[place % len(ways)]
    here = data
    for key in way:
        here = here[key]
    here[last] = value
    message = ""
    try:
        from_json(data["top"])
    except FormatError as error:
        message = str(error)
    assert len(message.splitlines()) <= 1


def test_a_newline_in_a_name_does_not_break_the_line(tmp_path: Path) -> None:
    data = copy.deepcopy(LAYOUTS["current"])
    data["grammar"]["rules"][2] |= {"name": "a\nb", "lhs": "Q"}
    (tmp_path / "bad.json").write_text(json.dumps(data))
    assert complaint(tmp_path / "bad.json") == (
        "bad.json: grammar.rules[2]: rule a b of Q: left-hand side 'Q' is not a nonterminal; declare it as one."
    )


def test_a_missing_file_and_a_folder_are_named(tmp_path: Path) -> None:
    assert complaint(tmp_path / "missing.json") == "missing.json: cannot be read (No such file or directory)."
    assert complaint(tmp_path) == f"{tmp_path.name}: is a folder; give the name of a file."


@pytest.mark.parametrize(
    ("fgg", "expected"),
    [
        (
            lambda: small((frozenset(), "b")),
            "save_json: domain 'T' has the value frozenset() of type frozenset; a file holds strings, finite numbers, "
            "booleans, None and tuples of these.",
        ),
        (
            lambda: small((0, float("inf"))),
            "save_json: domain 'T' has the value inf of type float; a file holds strings, finite numbers, booleans, "
            "None and tuples of these.",
        ),
    ],
)
def test_what_json_cannot_hold_is_refused_and_nothing_is_written(
    fgg: Callable[[], FGG], expected: str, tmp_path: Path
) -> None:
    with pytest.raises(FormatError) as caught:
        save_json(fgg(), tmp_path / "out.json")
    assert str(caught.value) == expected
    assert os.listdir(tmp_path) == []


def test_a_failed_replacement_leaves_the_old_file_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "out.json"
    path.write_text("old")

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(FormatError, match=r"out\.json: cannot be written \(No space left on device\)\.$"):
        save_json(small(), path)
    assert (os.listdir(tmp_path), path.read_text()) == (["out.json"], "old")


def test_places_that_cannot_be_written_are_named(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=r"cannot be written \(No such file or directory\)\.$"):
        save_json(small(), tmp_path / "missing" / "out.json")
    with pytest.raises(FormatError, match="is not a file; give the name of one"):
        save_json(small(), tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(FormatError, match=r"cannot be written \(Not a directory\)\.$"):
        save_json(small(), tmp_path / "file" / "out.json")


def test_a_link_is_written_through(tmp_path: Path) -> None:
    (tmp_path / "link.json").symlink_to("target.json")
    save_json(small(), tmp_path / "link.json")
    assert (tmp_path / "link.json").is_symlink()
    assert_same(load_json(tmp_path / "target.json"), small())
