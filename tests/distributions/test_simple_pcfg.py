"""The PCFG with independent children."""

import pytest
import torch
from torch import Tensor

from distributions.tree_enumeration import TreeModel, Use
from distributions.tree_suite import TreeSuite
from rankspace.distributions import SimplePCFG

NONTERMINALS, PRETERMINALS, VOCABULARY = 3, 2, 4


def branches(parent: int) -> list[tuple[int, int, list[Use]]]:
    symbols = range(NONTERMINALS + PRETERMINALS)
    return [(b, c, [("log_left", (parent, b)), ("log_right", (parent, c))]) for b in symbols for c in symbols]


def independent(left: Tensor, right: Tensor) -> dict[str, Tensor]:
    return {"log_left": left, "log_right": right}


MODEL = TreeModel(
    SimplePCFG,
    {
        "log_root": (NONTERMINALS,),
        "log_left": (NONTERMINALS, NONTERMINALS + PRETERMINALS),
        "log_right": (NONTERMINALS, NONTERMINALS + PRETERMINALS),
        "log_emission": (PRETERMINALS, VOCABULARY),
    },
    NONTERMINALS,
    PRETERMINALS,
    branches,
    independent,
    joint={},
)


class TestSimplePCFG(TreeSuite):
    model = MODEL


def test_symbols_that_do_not_fit() -> None:
    parameters = MODEL.parameters() | {"log_emission": torch.zeros(3, 4).log_softmax(-1).double()}
    with pytest.raises(ValueError, match="symbols") as error:
        SimplePCFG(**parameters)
    assert str(error.value) == (
        "SimplePCFG: rules are over 5 symbols but log_root has 3 nonterminals and log_emission 3 preterminals; give "
        "rules over 6 symbols."
    )


def test_there_is_one_order_only() -> None:
    with pytest.raises(ValueError, match="order") as error:
        SimplePCFG(**MODEL.parameters(), order="rank")
    assert str(error.value) == "SimplePCFG: order is 'rank'; give one of 'auto', 'state'."
