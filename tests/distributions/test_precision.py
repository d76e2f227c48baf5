"""Probabilities are probabilities in every precision: what is rounded must not make more of them, word by word."""

from typing import Any

import pytest
import torch

from distributions.test_forbidden import CLASSES
from rankspace.distributions import BlockHMM
from rankspace.inference.links import Precision

NUM_WORDS = 60
SIZES = {"nonterminal": 2, "preterminal": 1, "symbol": 3, "rank": 3, "vocab": 3, "vocabulary": 3}
SIZES |= {"state": 3, "duration": 3, "column": 3}


def thirds(of: Any, dtype: torch.dtype, precision: Precision) -> Any:
    """A distribution whose tables are equal shares, mostly thirds: 1.002 for three of them in bfloat16."""
    tables = {}
    for label, axes in of.AXES.items():
        shape, joint = [SIZES[axis] for axis in axes], of.JOINT.get(label, 1)
        shares = torch.zeros(shape, dtype=dtype).flatten(-joint)
        tables[label] = shares.log_softmax(-1).view(shape)
    others = {"block_of_word": torch.zeros(3, dtype=torch.int64)} if of is BlockHMM else {}
    return of(**tables, **others, precision=precision)


@pytest.mark.parametrize("of", CLASSES)
@pytest.mark.parametrize("precision", ["highest", "high", "medium"])
def test_no_mass_is_made(of: Any, precision: Precision) -> None:
    """Against float64, within DESIGN's tolerance of log Z; rounding tables to bfloat16 would add 0.002 a word."""
    words = torch.zeros(1, NUM_WORDS, dtype=torch.int64)
    exact = thirds(of, torch.float64, "highest").log_prob(words)
    log_prob = thirds(of, torch.float32, precision).log_prob(words)
    assert log_prob.item() < 0
    torch.testing.assert_close(log_prob.double(), exact, rtol=1e-6, atol=1e-4)


@pytest.mark.parametrize("of", [one for one in CLASSES if "log_start" in one.AXES])
def test_shares_of_words_sum_to_one(of: Any) -> None:
    """The probabilities of what may come next, after many words."""
    following = thirds(of, torch.float32, "medium").next_word(torch.zeros(1, NUM_WORDS, dtype=torch.int64))
    torch.testing.assert_close(following.double().exp().sum(1), torch.ones(1, dtype=torch.float64), rtol=0, atol=1e-5)
