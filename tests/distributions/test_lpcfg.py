"""The PCFG with a low-rank head over a full pair tensor."""

import math

import pytest
import torch
from torch import Tensor

from distributions.tree_enumeration import TreeModel, Use
from distributions.tree_suite import TreeSuite
from rankspace.distributions import LPCFG
from rankspace.fgg import zoo
from rankspace.inference import GenericEngine

NONTERMINALS, PRETERMINALS, RANK, VOCABULARY = 2, 2, 2, 4
SYMBOLS = NONTERMINALS + PRETERMINALS
EXACT = {"rtol": 1e-9, "atol": 1e-11}  # float64, sums of some thousand products
WORDS = torch.tensor([[0, 3, 1, 2, 99], [1, 99, 99, 99, 99], [2, 2, 99, 99, 99], [3, 1, 0, 1, 2], [0, 1, 3, 99, 99]])
LENGTHS = [4, 1, 2, 5, 3]


def branches(parent: int) -> list[tuple[int, int, list[Use]]]:
    return [
        (b, c, [("log_head", (parent, q)), ("log_pair", (q, b, c))])
        for q in range(RANK)
        for b in range(SYMBOLS)
        for c in range(SYMBOLS)
    ]


def independent(left: Tensor, right: Tensor) -> dict[str, Tensor]:
    return {
        "log_head": torch.eye(len(left), dtype=left.dtype),
        "log_pair": left[:, :, None] * right[:, None, :],
    }


MODEL = TreeModel(
    LPCFG,
    {
        "log_root": (NONTERMINALS,),
        "log_head": (NONTERMINALS, RANK),
        "log_pair": (RANK, SYMBOLS, SYMBOLS),
        "log_emission": (PRETERMINALS, VOCABULARY),
    },
    NONTERMINALS,
    PRETERMINALS,
    branches,
    independent,
    joint={"log_pair": 2},
    best="viterbi_joint",
)


class TestLPCFG(TreeSuite):
    model = MODEL


def parameters_of(
    nonterminals: int, preterminals: int, rank: int, *batch: int, scale: float = 1.0, vocabulary: int = 4
) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(0)
    symbols = nonterminals + preterminals

    def draw(*shape: int) -> Tensor:
        return (scale * torch.randn(*batch, *shape, generator=generator, dtype=torch.float64)).log_softmax(-1)

    return {
        "log_root": draw(nonterminals),
        "log_head": draw(nonterminals, rank),
        "log_pair": draw(rank, symbols * symbols).view(*batch, rank, symbols, symbols),
        "log_emission": draw(preterminals, vocabulary),
    }


def leaves_of(parameters: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: value.detach().requires_grad_() for name, value in parameters.items()}


@pytest.mark.parametrize("over", ["symbols", "ranks"])
@pytest.mark.parametrize("batch", [(), (5,)], ids=["shared", "of each sentence"])
def test_collapse_has_the_same_log_prob_and_gradients(over: str, batch: tuple[int, ...]) -> None:
    leaves = leaves_of(parameters_of(3, 2, 4, *batch))
    made = LPCFG(**leaves)
    found, expected = made.collapse(over).log_prob(WORDS, LENGTHS), made.log_prob(WORDS, LENGTHS)  # type: ignore[arg-type]
    torch.testing.assert_close(found, expected, **EXACT)
    slopes = [
        torch.autograd.grad(log_prob[log_prob > -math.inf].sum(), list(leaves.values()), retain_graph=True)
        for log_prob in (found, expected)
    ]
    for one, other in zip(*slopes, strict=True):
        torch.testing.assert_close(one, other, **EXACT)


def test_collapse_over_symbols_keeps_marginals_and_normalisation() -> None:
    made = LPCFG(**parameters_of(3, 2, 4))
    for over, count in (("symbols", 3), ("ranks", 4)):
        dense = made.collapse(over)  # type: ignore[arg-type]
        assert dense.num_nonterminals == count
        torch.testing.assert_close(dense.parameters["log_rule"].flatten(1).logsumexp(1), torch.zeros(count).double())
    labels = made.collapse().labelled_marginals(WORDS, LENGTHS)
    torch.testing.assert_close(made.labelled_marginals(WORDS, LENGTHS), labels, **EXACT)


def test_collapse_loses_no_entry_to_range() -> None:
    parameters = parameters_of(2, 2, 2, scale=400)
    made = LPCFG(**{name: value.float() for name, value in parameters.items()}, validate=False)
    assert bool((made.collapse().parameters["log_rule"] > -math.inf).all())
    torch.testing.assert_close(made.collapse().log_prob(WORDS, LENGTHS), made.log_prob(WORDS, LENGTHS))


@pytest.mark.parametrize("shared", ["", "log_head", "log_pair"])
def test_sentences_with_their_own_parameters_equal_each_alone(shared: str) -> None:
    parameters = parameters_of(3, 2, 4, 5)
    if shared:
        parameters[shared] = parameters[shared][0]
    leaves = leaves_of(parameters)
    together = LPCFG(**leaves).log_prob(WORDS, LENGTHS)
    alone = torch.cat(
        [
            LPCFG(**{name: value if name == shared else value[b] for name, value in leaves.items()}).log_prob(
                WORDS[b : b + 1], LENGTHS[b : b + 1]
            )
            for b in range(5)
        ]
    )
    torch.testing.assert_close(together, alone, **EXACT)
    slopes = [
        torch.autograd.grad(log_prob[log_prob > -math.inf].sum(), list(leaves.values()))
        for log_prob in (together, alone)
    ]
    for one, other in zip(*slopes, strict=True):
        torch.testing.assert_close(one, other, **EXACT)


def test_equals_the_grammar_of_the_zoo() -> None:
    """The rung below: figure 3b as an FGG; preterminals head no rule, nonterminals emit nothing."""
    leaves = leaves_of(parameters_of(2, 2, 3))
    zero = torch.zeros(2, 3, dtype=torch.float64)
    fgg = zoo.lpcfg(
        torch.cat([leaves["log_root"].exp(), zero[:, 0]]),
        torch.cat([leaves["log_head"].exp(), zero]),
        leaves["log_pair"].exp(),
        torch.cat([torch.zeros(2, 4, dtype=torch.float64), leaves["log_emission"].exp()]),
    )
    sentences = [[0, 3, 1, 2], [2, 2], [1, 0, 3]]
    engine = GenericEngine(fgg)
    expected = engine.log_z(*engine.encode(sentences))
    words = torch.tensor([[*s, *[99] * (4 - len(s))] for s in sentences])
    found = LPCFG(**leaves).log_prob(words, [len(s) for s in sentences])
    torch.testing.assert_close(found, expected, **EXACT)
    wanted = torch.autograd.grad(expected.sum(), list(leaves.values()), retain_graph=True)
    for mine, theirs in zip(torch.autograd.grad(found.sum(), list(leaves.values())), wanted, strict=True):
        torch.testing.assert_close(mine, theirs, **EXACT)


@pytest.mark.parametrize("scale", [1.0, 6.0, 20.0])
def test_float32_equals_float64(scale: float) -> None:
    """NT 30, PT 60, rank 20, n 40: within max(1e-4, 1e-6 |log Z|), gradients within 1e-4 (DESIGN, section 4)."""
    parameters = {k: v.float() for k, v in parameters_of(30, 60, 20, scale=scale, vocabulary=100).items()}
    narrow, exact = leaves_of(parameters), leaves_of({name: value.double() for name, value in parameters.items()})
    words = torch.randint(0, 100, (3, 40), generator=torch.Generator().manual_seed(0))
    found, expected = (LPCFG(**p, validate=False).log_prob(words, [40, 2, 11]) for p in (narrow, exact))
    assert bool(((found - expected).abs() <= (1e-6 * expected.abs()).clamp(min=1e-4)).all())
    wanted = torch.autograd.grad(expected.sum(), list(exact.values()))
    for mine, theirs in zip(torch.autograd.grad(found.sum(), list(narrow.values())), wanted, strict=True):
        assert (mine - theirs).abs().max() <= 1e-4 * theirs.abs().max()


def test_the_best_symbols_alone_are_refused() -> None:
    made = LPCFG(**parameters_of(3, 2, 4))
    with pytest.raises(ValueError, match="viterbi_joint") as error:
        made.viterbi(WORDS, LENGTHS)
    assert str(error.value) == (
        "LPCFG.viterbi: the maximum over symbols does not commute with the sum over ranks; use viterbi_joint (ranks "
        "included), mbr, or collapse().viterbi, which multiplies the ranks out."
    )
    assert made.collapse().viterbi(WORDS, LENGTHS).log_prob[0] > made.viterbi_joint(WORDS, LENGTHS).log_prob[0]


def test_there_is_one_order_only() -> None:
    with pytest.raises(ValueError, match="order") as error:
        LPCFG(**parameters_of(3, 2, 4), order="rank")
    assert str(error.value) == (
        "LPCFG: order is 'rank', but vectors over ranks need the head multiplied into both children of the pair "
        "tensor; give 'auto' or 'state', or use collapse('ranks')."
    )


def test_explain_names_the_rank() -> None:
    text = LPCFG(**parameters_of(3, 2, 4)).explain(WORDS, LENGTHS)
    assert "rank 4" in text
    assert "head" in text
