"""What callers may give in the wrong form: taken as it was meant, or refused in one line that says what to give.

The tests' shape checks would refuse most of these calls before the library sees them; so they are made in a Python of
their own, without them: this file run as a module, which prints the answers.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from distributions.test_on_gpu import ALL, CHAINS, LENGTHS, VOCABULARY, WORDS
from rankspace.distributions import HMM, PCFG, BlockHMM
from rankspace.errors import RankspaceError, ShapeError

ROWS = len(LENGTHS)
SHAPE = tuple(WORDS.shape)


@dataclass(frozen=True)
class Refused:
    """A call, and the class and text of its error; NAME in it stands for the distribution."""

    call: Callable[[Any], Any]
    message: str
    error: type[RankspaceError] = ShapeError


OF_ALL: Mapping[str, Refused] = {
    "words that are bools": Refused(
        lambda given: given.log_prob(WORDS > 3, LENGTHS),
        f"NAME: words are torch.bool {SHAPE}; give integers [batch, length], padded at the end, and the lengths.",
    ),
    "words that are floats": Refused(
        lambda given: given.log_prob(WORDS.double(), LENGTHS),
        f"NAME: words are torch.float64 {SHAPE}; give integers [batch, length], padded at the end, and the lengths.",
    ),
    "lengths that are floats": Refused(
        lambda given: given.log_prob(WORDS[:2], [2.0, 3.0]),
        "NAME: lengths are [2.0, 3.0]; give one integer for each sentence.",
    ),
    "lengths that are bools": Refused(
        lambda given: given.log_prob(WORDS[:2], [True, 1]),
        "NAME: lengths are [True, 1]; give one integer for each sentence.",
    ),
    "lengths that are one number": Refused(
        lambda given: given.log_prob(WORDS, 3), "NAME: lengths are 3; give one integer for each sentence."
    ),
    "lengths with two axes": Refused(
        lambda given: given.log_prob(WORDS, torch.tensor([LENGTHS])),
        f"NAME: lengths are torch.int64 (1, {ROWS}); give one integer for each sentence.",
    ),
    "lengths that are a tensor of floats": Refused(
        lambda given: given.log_prob(WORDS, torch.tensor(LENGTHS).float()),
        f"NAME: lengths are torch.float32 ({ROWS},); give one integer for each sentence.",
    ),
}


def wrong_eos(given: Any, eos: Any) -> Any:
    return type(given)(**given.parameters, **{**given.options(), "eos": eos})


OF_CHAINS: Mapping[str, Refused] = {
    "eos that is a bool": Refused(
        lambda given: wrong_eos(given, True),
        "NAME: eos is True, which is no integer; give the number of the word that ends a sentence, or None.",
        RankspaceError,
    ),
    "eos that is a float": Refused(
        lambda given: wrong_eos(given, 1.0),
        "NAME: eos is 1.0, which is no integer; give the number of the word that ends a sentence, or None.",
        RankspaceError,
    ),
    "positions with one axis": Refused(
        lambda given: given.state_marginals(WORDS, LENGTHS, positions=torch.tensor([0, 1])),
        "NAME: positions are torch.int64 (2,); give integers [position, 2]: pairs (sentence, time).",
    ),
    "positions that are floats": Refused(
        lambda given: given.state_marginals(WORDS, LENGTHS, positions=torch.zeros(1, 2)),
        "NAME: positions are torch.float32 (1, 2); give integers [position, 2]: pairs (sentence, time).",
    ),
    "a step with bools": Refused(
        lambda given: given.begin(2).step(torch.tensor([True, False])),
        "step: words are torch.bool (2,); give integers, one for each sentence.",
    ),
    "a step with too many words": Refused(
        lambda given: given.begin(2).step(torch.tensor([0, 1, 2])),
        "step: words are (3,) but there are 2 sentences; give one word for each.",
    ),
    "a step with an unknown word": Refused(
        lambda given: given.begin(2).step(torch.tensor([0, VOCABULARY])),
        "step: word 9 is outside the vocabulary of 9; words are numbered from 0.",
        RankspaceError,
    ),
    "samples of negative number": Refused(
        lambda given: given.sample(-1, 3), "NAME: sample: num is -1; give 0 or more.", RankspaceError
    ),
    "posterior samples of negative number": Refused(
        lambda given: given.sample_posterior(WORDS, LENGTHS, num=-2),
        "NAME: sample_posterior: num is -2; give 0 or more.",
        RankspaceError,
    ),
    "a negative number of sentences to begin": Refused(
        lambda given: given.begin(-1), "NAME: begin: batch is -1; give 0 or more.", RankspaceError
    ),
}


def rows(*shape: int) -> torch.Tensor:
    return torch.zeros(shape, dtype=torch.float64).log_softmax(-1)


CONSTRUCTORS: Mapping[str, Refused] = {
    "blocks that are floats": Refused(
        lambda _: BlockHMM(rows(4), rows(4, 4), rows(4, 2), torch.tensor([0.0, 0.0, 1.0, 1.0])),
        "BlockHMM: block_of_word is torch.float32 (4,); give one integer for each word.",
    ),
    "no axis where blocks are": Refused(
        lambda _: BlockHMM(torch.tensor(0.0), rows(4, 4), rows(4, 2), torch.tensor([0, 0, 1, 1])),
        "BlockHMM: log_start has shape () but needs 1 axes: [state].",
    ),
    "one axis of two sizes": Refused(
        lambda _: PCFG(rows(2), rows(2, 4, 3), rows(2, 5)),
        "PCFG: log_rule (2, 4, 3) has 4 and 3 along its two axes 'symbol'; give both the same size.",
    ),
}

CASES = {
    **{(case, name): (refused, name) for case, refused in OF_ALL.items() for name in ALL},
    **{(case, name): (refused, name) for case, refused in OF_CHAINS.items() for name in CHAINS},
    **{(case, "constructor"): (refused, "hmm") for case, refused in CONSTRUCTORS.items()},
}


def answer(refused: Refused, name: str) -> str:
    try:
        refused.call(ALL[name])
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "accepted"


def unsigned(name: str) -> bool:
    return torch.equal(ALL[name].log_prob(WORDS.to(torch.uint8), LENGTHS), ALL[name].log_prob(WORDS, LENGTHS))


@pytest.fixture(scope="module")
def answers() -> dict[str, Any]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-m", "distributions.test_input"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize(("case", "name"), CASES)
def test_refusals(answers: dict[str, Any], case: str, name: str) -> None:
    refused, distribution = CASES[case, name]
    message = refused.message.replace("NAME", type(ALL[distribution]).__name__)
    assert answers[f"{case}, {name}"] == f"{refused.error.__name__}: {message}"


@pytest.mark.parametrize("name", ALL)
def test_unsigned_words(answers: dict[str, Any], name: str) -> None:
    assert answers[f"unsigned, {name}"]


@pytest.mark.parametrize("name", ALL)
def test_narrow_words_and_lengths_of_other_kinds(name: str) -> None:
    expected = ALL[name].log_prob(WORDS, LENGTHS)
    for dtype in (torch.int8, torch.int16, torch.int32):
        assert torch.equal(ALL[name].log_prob(WORDS.to(dtype), torch.tensor(LENGTHS, dtype=dtype)), expected)


@pytest.mark.parametrize("name", CHAINS)
def test_narrow_words_step_by_step(name: str) -> None:
    words = WORDS[:, 0]
    found, expected = (CHAINS[name].begin(ROWS).step(given).log_prob for given in (words.to(torch.int16), words))
    assert torch.equal(found, expected)


@pytest.mark.parametrize("name", CHAINS)
def test_no_samples(name: str) -> None:
    paths = CHAINS[name].sample_posterior(WORDS, [*LENGTHS[:-1], 0], num=0)
    assert [tuple(path.states.shape) for path in paths] == [(0, length) for length in (*LENGTHS[:-1], 0)]
    assert all(path.log_joint.shape == (0,) for path in paths)
    assert CHAINS[name].sample(0, 3).words.shape[0] == 0
    assert len(CHAINS[name].begin(0)) == 0


@pytest.mark.parametrize("name", CHAINS)
def test_nan_is_not_impossible(name: str) -> None:
    """Whatever parameter is NaN: paths are refused by its name, tables are NaN and not zero."""
    best = "viterbi_joint" if hasattr(CHAINS[name], "viterbi_joint") else "viterbi"
    for label, parameter in CHAINS[name].parameters.items():
        broken = CHAINS[name].with_parameters({**CHAINS[name].parameters, label: torch.full_like(parameter, torch.nan)})
        kind, place = type(broken).__name__, ", ".join("0" * parameter.dim())
        for query in (best, "sample_posterior"):
            with pytest.raises(RankspaceError) as caught:
                getattr(broken, query)(WORDS, LENGTHS)
            assert str(caught.value) == f"{kind}: {label}[{place}] is NaN; check what it was computed from."
        assert broken.state_marginals(WORDS, LENGTHS)[0].isnan().any()
        assert broken.with_parameters(broken.parameters).log_prob(WORDS[:1]).isnan().all()


@pytest.mark.parametrize("name", ["hmm", "hsmm", "block-hmm"])
def test_why_there_is_no_rank_order(name: str) -> None:
    given = CHAINS[name]
    with pytest.raises(RankspaceError) as caught:
        type(given)(**given.parameters, **{**given.options(), "order": "rank"})
    assert str(caught.value) == (
        f"{type(given).__name__}: order is 'rank', but its link is one dense matrix over states and has no ranks; give "
        f"'state' or 'auto', or use RankSpaceHMM."
    )


@pytest.mark.parametrize("name", ALL)
def test_divergences_are_rounded_once_and_never_negative(name: str) -> None:
    """Of a model and one that differs in the last digits of float32, by the same in float64."""
    own = ALL[name].to(torch.float32)
    near = {label: (value + 1e-4 * torch.sin(value)).log_softmax(-1) for label, value in own.parameters.items()}
    other = own.with_parameters({**near, **{label: own.parameters[label] for label in own.JOINT}})
    found = own.posterior_kl(other, WORDS, LENGTHS)
    expected = own.to(torch.float64).posterior_kl(other.to(torch.float64), WORDS, LENGTHS)
    torch.testing.assert_close(found, expected.float(), rtol=1e-6, atol=0)
    assert bool((found >= 0).all())
    assert torch.equal(own.posterior_kl(own, WORDS, LENGTHS), torch.zeros(ROWS))
    assert bool((own.posterior_entropy(WORDS, LENGTHS) >= 0).all())


def test_an_entropy_of_nothing_is_not_negative() -> None:
    """One state, whose path is certain: log Z and the expected log weight differ by rounding alone."""
    emission = torch.randn(1, 50, generator=torch.Generator().manual_seed(0)).log_softmax(-1)
    words = torch.randint(50, (64, 40), generator=torch.Generator().manual_seed(1))
    certain = HMM(torch.zeros(1), torch.zeros(1, 1), emission)
    assert bool((certain.posterior_entropy(words) >= 0).all())


def test_log_space_does_not_keep_its_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Large ones are made again for the backward pass, to the same derivatives, first and second."""
    found = []
    for kept in (2**16, 0):
        monkeypatch.setattr("rankspace.inference.chain.log_space.NUMBERS_KEPT", kept)
        leaves = {name: value.clone().requires_grad_() for name, value in CHAINS["hmm"].parameters.items()}
        plain = HMM(**leaves, backend="autograd", validate=False)
        sizes: list[int] = []
        with torch.autograd.graph.saved_tensors_hooks(lambda t, sizes=sizes: sizes.append(t.numel()) or t, lambda t: t):
            total = plain.log_prob(WORDS, LENGTHS).sum()
        slopes = torch.autograd.grad(total, list(leaves.values()), create_graph=True)
        second = torch.autograd.grad(sum(slope.square().sum() for slope in slopes), list(leaves.values()))
        found.append((max(sizes), *slopes, *second))
    (all_kept, *first), (little_kept, *again) = found
    assert little_kept < all_kept
    for one, other in zip(first, again, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


if __name__ == "__main__":
    results: dict[str, Any] = {f"{case}, {name}": answer(*made) for (case, name), made in CASES.items()}
    print(json.dumps({**results, **{f"unsigned, {name}": unsigned(name) for name in ALL}}))
