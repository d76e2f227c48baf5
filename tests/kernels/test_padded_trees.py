"""log p of padded batches under the grammars with low-rank rules, by kernels, against the torch engine."""

from typing import Any

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton", reason="needs triton")

from kernels.charts import DEVICE
from rankspace.errors import RankspaceError
from rankspace.inference.tree import engine, kernel_bounds
from rankspace.inference.tree.inputs import TreeInputs
from rankspace.inference.tree.triton_engine import log_z_by_kernels
from rankspace.kernels.scales import FLOOR, LINK_FLOOR
from rankspace.models import Model, create, low_rank_trees
from rankspace.models.fast_tables import conditional

VOCABULARY = 11
MODELS: dict[str, dict[str, Any]] = {
    "rank-pcfg": {"nonterminals": 5, "preterminals": 7, "rank": 6, "size": 8},
    "rank-pcfg from ranks": {"nonterminals": 5, "preterminals": 7, "rank": 18, "size": 8, "start": "ranks"},
    "tn-pcfg": {"nonterminals": 5, "preterminals": 7, "rank": 6, "size": 8},
    "simple-pcfg": {"nonterminals": 6, "preterminals": 9, "size": 8},
}


def new_model(name: str, scale: float = 1.0) -> Model:
    torch.manual_seed(3)
    model = create(name.split()[0], vocabulary=VOCABULARY, **MODELS[name])
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter)).mul_(scale)
    return model.to(DEVICE)


def padded_words(lengths: tuple[int, ...], longest: int, seed: int = 0) -> Tensor:
    """Any words behind the ends."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(VOCABULARY, (len(lengths), longest), generator=generator).to(DEVICE)


def gradients(model: Model, log_p: Tensor, lengths: tuple[int, ...]) -> dict[str, Tensor]:
    """Of all sentences but those of one word, which no grammar has."""
    slopes = torch.tensor([0.5 + b if n > 1 else 0.0 for b, n in enumerate(lengths)], device=log_p.device)
    total = (log_p.where(slopes > 0, 0) * slopes).sum()
    found = torch.autograd.grad(total, list(model.parameters()), allow_unused=True)
    names = [name for name, _ in model.named_parameters()]
    return {name: each for name, each in zip(names, found, strict=True) if each is not None}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(("lengths", "longest"), [((5, 2, 4), 5), ((3, 7, 1, 2), 8), ((2,), 4)])
def test_equals_the_torch_engine(name: str, lengths: tuple[int, ...], longest: int) -> None:
    model, words = new_model(name), padded_words(lengths, longest)
    seed = torch.zeros((), dtype=torch.int64, device=DEVICE)
    log_p, lost = model.padded_log_prob(words, torch.tensor(lengths, device=DEVICE), seed)
    found = gradients(model, log_p, lengths)
    double = new_model(name).double()
    double.options = {"backend": "torch"}
    expected_log_p = double.log_prob(words, lengths)
    torch.testing.assert_close(log_p, expected_log_p, rtol=1e-6, atol=1e-4)
    assert not bool(lost.any())
    expected = gradients(double, expected_log_p, lengths)
    assert found.keys() == expected.keys()
    largest = max(float(each.norm()) for each in expected.values())
    for parameter, each in expected.items():
        assert float((found[parameter] - each).norm()) <= 1e-4 * max(float(each.norm()), 1e-2 * largest), parameter


@pytest.mark.parametrize("name", MODELS)
def test_products_of_bfloat16(name: str) -> None:
    """What is rounded has 8 bits: log p and gradients are right to some hundredths."""
    model, lengths, longest = new_model(name), (5, 2, 6), 7
    words, seed = padded_words(lengths, longest), torch.zeros((), dtype=torch.int64, device=DEVICE)
    model.options = {"precision": "medium"}
    log_p, lost = model.padded_log_prob(words, torch.tensor(lengths, device=DEVICE), seed)
    found = gradients(model, log_p, lengths)
    double = new_model(name).double()
    expected_log_p = double.log_prob(words, lengths)
    torch.testing.assert_close(log_p, expected_log_p, rtol=0, atol=0.1)  # the interpreter cuts bits off
    assert not bool(lost.any())
    expected = gradients(double, expected_log_p, lengths)
    largest = max(float(each.norm()) for each in expected.values())
    for parameter, each in expected.items():
        assert float((found[parameter] - each).norm()) <= 0.1 * max(float(each.norm()), 0.1 * largest), parameter


@pytest.mark.parametrize("name", MODELS)
def test_what_lies_behind_the_end_has_no_part_in_it(name: str) -> None:
    """The same bits whatever the words there are, gradients of weights that only they would move included."""
    model, lengths, results = new_model(name), (4, 2, 3), []
    seed = torch.zeros((), dtype=torch.int64, device=DEVICE)
    words = padded_words(lengths, 6)
    for other in (0, VOCABULARY - 1):
        for sentence, length in enumerate(lengths):
            words[sentence, length:] = other
        log_p, _ = model.padded_log_prob(words, torch.tensor(lengths, device=DEVICE), seed)
        results.append((log_p, gradients(model, log_p, lengths)))
    assert torch.equal(results[0][0], results[1][0])
    for parameter, each in results[0][1].items():
        assert torch.equal(each, results[1][1][parameter]), parameter


@pytest.mark.parametrize("scale", [1.5, 6.0])
def test_peaked_parameters_are_right_or_lost(scale: float) -> None:
    model, lengths = new_model("rank-pcfg", scale), (6, 9, 3)
    words, seed = padded_words(lengths, 10), torch.zeros((), dtype=torch.int64, device=DEVICE)
    log_p, lost = model.padded_log_prob(words, torch.tensor(lengths, device=DEVICE), seed)
    double = new_model("rank-pcfg", scale).double()
    expected = double.log_prob(words, lengths)
    limit = (1e-6 * expected.abs() * scale**4).clamp(min=1e-4)  # logits themselves are rounded in float32
    assert bool((lost | ((log_p - expected).abs() <= limit)).all())
    assert all(bool(each.isfinite().all()) for each in gradients(model, log_p, lengths).values())


def test_which_options_can_be_captured() -> None:
    model = new_model("rank-pcfg")
    assert model.can_be_captured(DEVICE)
    for options in ({"backend": "torch"}, {"order": "state"}):
        model.options = options
        assert not model.can_be_captured(DEVICE)
    model.options = {}
    assert not model.double().can_be_captured(DEVICE)
    assert not create("vl-hmm", vocabulary=3, states=2, blocks=1, size=4).can_be_captured(DEVICE)


SIZES = {"rank-pcfg": (6, 7), "rank-pcfg from ranks": (18, 7), "tn-pcfg": (6, 7), "simple-pcfg": (6, 9)}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("which", [0, 1])
def test_kernels_are_for_sizes_that_the_proof_of_their_floor_holds_for(
    name: str, which: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ranks, and the larger of both kinds of symbols. Beyond that torch does it, unless kernels are asked for."""
    model, words, size = new_model(name).eval(), padded_words((3, 2), 3), SIZES[name][which]
    expected, bound = model.log_prob(words), ("MOST_RANKS", "MOST_SYMBOLS")[which]
    monkeypatch.setattr(kernel_bounds, bound, size)
    assert model.can_be_captured(DEVICE)
    monkeypatch.setattr(kernel_bounds, bound, size - 1)
    assert not model.can_be_captured(DEVICE)
    with monkeypatch.context() as patch:
        patch.setattr(engine, "log_z_by_kernels", None)
        torch.testing.assert_close(model.log_prob(words), expected, rtol=1e-5, atol=1e-5)
    model.options = {"backend": "triton"}
    with pytest.raises(RankspaceError) as caught:
        model.log_prob(words)
    symbols = f"nonterminals and as many preterminals and there are {model().num_nonterminals} and {size}"
    told = f"ranks and there are {size}" if which == 0 else symbols
    assert str(caught.value) == (
        f"{type(model()).__name__}: backend is 'triton', but its kernels are for at most {size - 1} {told}; give "
        "backend='auto'."
    )


def test_the_floors_are_above_what_they_are_proved_for() -> None:
    assert FLOOR.value >= kernel_bounds.MOST_RANKS * LINK_FLOOR
    assert FLOOR.value > kernel_bounds.MOST_SYMBOLS * 2.0**-126


@pytest.mark.parametrize("name", MODELS)
def test_rules_are_divided_by_what_they_sum_to_as_they_are_rounded(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights of zero make tables uniform: all entries of a row are rounded the same way."""
    seen: list[TreeInputs] = []

    def spying(inputs: TreeInputs, *others: Any) -> Any:
        seen.append(inputs)
        return log_z_by_kernels(inputs, *others)

    monkeypatch.setattr(low_rank_trees, "log_z_by_kernels", spying)
    model, words = new_model(name, scale=0.0), padded_words((3, 2), 3)
    model.options = {"precision": "medium"}
    model.padded_log_prob(words, torch.tensor([3, 2], device=DEVICE), torch.zeros((), dtype=torch.int64, device=DEVICE))
    [inputs] = seen
    settings = MODELS[name]
    children = settings["nonterminals"] + settings["preterminals"]
    row, columns = torch.zeros(1, 1, device=DEVICE), torch.zeros(children, 1, device=DEVICE)
    entry = float(conditional(row, columns, "medium").probabilities[0, 0])
    of_words = settings["preterminals"] * entry
    of_link = inputs.link.tensors[0].detach().bfloat16().double().sum(1)
    assert inputs.mass is not None
    expected = (of_words + of_link[: inputs.rank]) * (of_words + of_link[inputs.rank :])
    torch.testing.assert_close(inputs.mass.double(), expected, rtol=1e-6, atol=0.0)
    assert float((inputs.mass - 1).abs().max()) > 1e-4
    assert float(inputs.root.detach().sum()) == pytest.approx(1, abs=1e-6)
