"""The PCFG in rank space: both orders, numbers of paper size, and what other rungs of the ladder say."""

import math

import pytest
import torch
from torch import Tensor

from distributions.tree_enumeration import TreeModel, Use
from distributions.tree_suite import LENGTHS, SENTENCES, TreeSuite, gradients, padded
from rankspace.distributions import RankSpacePCFG
from rankspace.fgg import observe, sum_product, zoo
from rankspace.inference import GenericEngine

NONTERMINALS, PRETERMINALS, RANK, VOCABULARY = 2, 2, 3, 4


def branches(parent: int) -> list[tuple[int, int, list[Use]]]:
    symbols = range(NONTERMINALS + PRETERMINALS)
    return [
        (b, c, [("log_head", (parent, q)), ("log_left", (q, b)), ("log_right", (q, c))])
        for q in range(RANK)
        for b in symbols
        for c in symbols
    ]


def independent(left: Tensor, right: Tensor) -> dict[str, Tensor]:
    return {"log_head": torch.eye(len(left), dtype=torch.float64), "log_left": left, "log_right": right}


MODEL = TreeModel(
    RankSpacePCFG,
    {
        "log_root": (NONTERMINALS,),
        "log_head": (NONTERMINALS, RANK),
        "log_left": (RANK, NONTERMINALS + PRETERMINALS),
        "log_right": (RANK, NONTERMINALS + PRETERMINALS),
        "log_emission": (PRETERMINALS, VOCABULARY),
    },
    NONTERMINALS,
    PRETERMINALS,
    branches,
    independent,
    joint={},
    orders=("rank", "state"),
    best="viterbi_joint",
)


class TestRankSpacePCFG(TreeSuite):
    model = MODEL


def random_parameters(
    nonterminals: int, preterminals: int, rank: int, vocabulary: int, scale: float, seed: int = 0
) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    symbols = nonterminals + preterminals
    shapes = {
        "log_root": (nonterminals,),
        "log_head": (nonterminals, rank),
        "log_left": (rank, symbols),
        "log_right": (rank, symbols),
        "log_emission": (preterminals, vocabulary),
    }
    return {
        name: (scale * torch.randn(shape, generator=generator)).log_softmax(-1).double()
        for name, shape in shapes.items()
    }


# The ladder.


def test_equals_the_grammar_of_the_zoo() -> None:
    parameters = {name: value.requires_grad_() for name, value in MODEL.parameters().items()}
    linear = {name.removeprefix("log_"): value.exp() for name, value in parameters.items()}
    grammar = zoo.split_factored_pcfg(**linear)
    engine = GenericEngine(grammar)
    sentences = [sentence for sentence in SENTENCES if len(sentence) > 1]
    expected = engine.log_z(*engine.encode(sentences))
    words, lengths = padded(sentences), [len(sentence) for sentence in sentences]
    for order in ("rank", "state"):
        found = RankSpacePCFG(**parameters, order=order).log_prob(words, lengths)
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=0)
        leaves = list(parameters.values())
        for mine, theirs in zip(gradients(found.sum(), leaves), gradients(expected.sum(), leaves), strict=True):
            torch.testing.assert_close(mine, theirs, rtol=1e-9, atol=1e-12)
    by_reference = torch.stack([sum_product(observe(grammar, sentence), "log") for sentence in sentences])
    torch.testing.assert_close(by_reference, expected, rtol=1e-9, atol=0)


# Both orders, and the model with its states summed out.


def test_collapse() -> None:
    made = RankSpacePCFG(**MODEL.parameters())
    collapsed = made.collapse()
    assert collapsed.num_nonterminals == RANK
    assert collapsed.num_preterminals == PRETERMINALS
    torch.testing.assert_close(collapsed.log_prob(padded(), LENGTHS), made.log_prob(padded(), LENGTHS))
    torch.testing.assert_close(collapsed.span_marginals(padded(), LENGTHS), made.span_marginals(padded(), LENGTHS))
    type(collapsed)(**collapsed.parameters)  # rows still sum to one
    assert made.sample(5, 10, torch.Generator().manual_seed(0)).lost_mass == pytest.approx(
        collapsed.sample(5, 10, torch.Generator().manual_seed(0)).lost_mass
    )


def test_explain() -> None:
    words = torch.zeros(2, 5, dtype=torch.int64)
    chosen = RankSpacePCFG(**MODEL.parameters()).explain(words, [5, 1])
    assert chosen.splitlines()[0] == "tree: rank order; state order would cost 1.06 times as much"
    asked = RankSpacePCFG(**MODEL.parameters(), order="rank").explain(words, [5, 1])
    assert asked == f'order="rank" was asked for; the planner\'s account:\n{chosen}'


def test_viterbi_says_what_to_use() -> None:
    with pytest.raises(ValueError, match="viterbi_joint") as error:
        RankSpacePCFG(**MODEL.parameters()).viterbi(torch.tensor([[0, 1]]))
    assert str(error.value) == (
        "RankSpacePCFG.viterbi: the best tree with its symbols alone cannot be found in polynomial time by dynamic "
        "programming over ranks, for the maximum does not commute with their sum; use viterbi_joint (best tree, "
        "symbols and ranks), mbr, or sample_posterior."
    )


def test_ranks_that_do_not_fit() -> None:
    parameters = MODEL.parameters()
    parameters["log_head"] = torch.zeros(2, 4).log_softmax(-1).double()
    with pytest.raises(ValueError, match="rank") as error:
        RankSpacePCFG(**parameters)
    assert str(error.value) == (
        "RankSpacePCFG: rank is 4 in log_head (2, 4) but 3 in log_left (3, 4); build both from one set of sizes."
    )


# Numbers at the size of the paper. DESIGN, section 4: log Z within max(1e-4, 1e-6 |log Z|), gradients 1e-4 relative.


def check_float32(parameters: dict[str, Tensor], words: Tensor, order: str) -> None:
    results = []
    for dtype in (torch.float64, torch.float32):
        given = {name: value.to(dtype).requires_grad_() for name, value in parameters.items()}
        found = RankSpacePCFG(**given, order=order, validate=False).log_prob(words)
        results.append((found.detach().double(), gradients(found.sum(), list(given.values()))))
    (expected, slopes), (found, rough) = results
    assert bool((expected > -math.inf).all())
    assert bool(((found - expected).abs() <= (1e-6 * expected.abs()).clamp(min=1e-4)).all())
    for mine, theirs in zip(rough, slopes, strict=True):
        assert float((mine.double() - theirs).norm() / theirs.norm()) < 1e-4


@pytest.mark.parametrize("scale", [1.0, 6.0, 20.0])
@pytest.mark.parametrize("order", ["rank", "state"])
def test_float32_of_peaked_parameters(order: str, scale: float) -> None:
    parameters = random_parameters(450, 900, 100, 200, scale)
    # parameters that both dtypes hold exactly: what is compared is the arithmetic
    words = torch.randint(200, (2, 40), generator=torch.Generator().manual_seed(1))
    check_float32(parameters, words, order)


@pytest.mark.parametrize("scale", [1.0, 6.0, 20.0])
def test_float32_of_a_long_sentence(scale: float) -> None:
    parameters = random_parameters(450, 900, 100, 200, scale)
    words = torch.randint(200, (1, 200), generator=torch.Generator().manual_seed(1))
    check_float32(parameters, words, "auto")


def test_second_derivatives_of_peaked_grammars_are_numbers() -> None:
    """In float32, where probabilities have squares below the range; the same as in float64."""
    for seed in range(12):
        generator = torch.Generator().manual_seed(seed)
        sizes = ((3,), (3, 4), (4, 7), (4, 7), (4, 5))
        tables = [(30 * torch.randn(*size, generator=generator)).log_softmax(-1) for size in sizes]
        words = torch.randint(5, (2, 5), generator=generator)
        found, expected = (second_derivatives([table.to(dtype) for table in tables], words) for dtype in DTYPES)
        for one, other in zip(found, expected, strict=True):
            assert float((one - other).norm()) <= 1e-2 * float(other.norm()) + 1e-3


DTYPES = (torch.float32, torch.float64)


def second_derivatives(tables: list[Tensor], words: Tensor) -> list[Tensor]:
    leaves = [table.requires_grad_() for table in tables]
    grammar = RankSpacePCFG(*leaves, order="rank", backend="autograd", validate=False)
    slopes = torch.autograd.grad(grammar.log_prob(words).sum(), leaves, create_graph=True)
    return [*torch.autograd.grad(sum((slope.square().sum() for slope in slopes), torch.zeros(())), leaves)]
