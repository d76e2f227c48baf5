"""Definition 6: which grammars are B-FGGs, and the first reason why one is not."""

import pytest
import torch

from grammars import ZOO
from rankspace.fgg import FGG, Rule
from rankspace.lowrank import is_b_fgg

YES = [
    "hmm",
    "factored_hmm",
    "lhmm",
    "hsmm_product",
    "pcfg",
    "split_pcfg",
    "factored_pcfg",
    "split_factored_pcfg",
    "lpcfg",
    "lexicalised_product",
    "qcfg_product",
]


def one(*shape: int) -> torch.Tensor:
    return torch.ones(shape, dtype=torch.float64)


@pytest.mark.parametrize("name", YES)
def test_zoo_grammars_with_one_state_node(name: str) -> None:
    verdict = is_b_fgg(ZOO[name].build(**ZOO[name].parameters()))
    assert verdict
    assert verdict.reason == ""


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        (
            "hsmm",
            "rule stay of Y: there are 2 external nodes ('t1', 'd1'); put them into one product node.",
        ),
        (
            "lexicalised",
            "rule left of X: there are 2 external nodes ('n1', 'h1'); put them into one product node.",
        ),
        ("qcfg", "rule binary of X: there are 2 external nodes ('n1', 's1'); put them into one product node."),
    ],
)
def test_zoo_grammars_with_two(name: str, reason: str) -> None:
    verdict = is_b_fgg(ZOO[name].build(**ZOO[name].parameters()))
    assert not verdict
    assert verdict.reason == reason


def test_nonterminal_at_the_external_node() -> None:
    rules = [
        Rule.build("S", {"x": "A"}, [("X", "x")], name="top"),
        Rule.build("X", {"x": "A"}, [("f", "x"), ("Y", "x")], ["x"], name="both"),
        Rule.build("Y", {"x": "A"}, [("f", "x")], ["x"], name="end"),
    ]
    verdict = is_b_fgg(FGG.build("S", rules, {"A": 2}, {"f": one(2)}))
    assert verdict.reason == "rule both of X: nonterminal edge 'e1' with label 'Y' touches the external node 'x'."


def test_no_external_node() -> None:
    rules = [
        Rule.build("S", {}, [("X",)], name="top"),
        Rule.build("X", {}, [("f",)], name="bare"),
    ]
    verdict = is_b_fgg(FGG.build("S", rules, {}, {"f": one()}))
    assert verdict.reason == "rule bare of X: there is no external node; it takes exactly one."


def test_open_start() -> None:
    fgg = FGG.build("S", [Rule.build("S", {"x": "A"}, [("f", "x")], ["x"])], {"A": 2}, {"f": one(2)}, open_start=True)
    assert is_b_fgg(fgg).reason == "rule #1 of S: the start symbol has external node 'x'; it takes none."
