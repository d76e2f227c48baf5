"""Free logits: tables that can be read, set, and fitted by EM."""

from itertools import pairwise
from typing import Any

import pytest
import torch

from models.cases import FREE, SENTENCES, VOCABULARY, padded
from rankspace.errors import RankspaceError, ShapeError
from rankspace.models import create
from rankspace.models.direct import DISTRIBUTIONS, Direct

WORDS, LENGTHS = padded(SENTENCES)


def made(of: str, **settings: Any) -> Direct:
    torch.manual_seed(0)
    model = create("direct", **{**FREE, **settings, "of": of}).double()
    assert isinstance(model, Direct)
    return model


@pytest.fixture(params=list(DISTRIBUTIONS))
def model(request: pytest.FixtureRequest) -> Direct:
    return made(request.param)


def test_every_parameter_of_the_distribution_is_a_weight(model: Direct) -> None:
    assert type(model()) is model.of
    assert set(model.logits) == set(model.of.AXES)
    assert model.num_weights == sum(table.numel() for table in model().parameters.values())


def test_tables_that_are_read_can_be_set(model: Direct) -> None:
    other = made(model.settings["of"], spread=0.5)
    assert not torch.equal(other.loss(WORDS, LENGTHS), model.loss(WORDS, LENGTHS))
    other.set_tables(model.tables())
    torch.testing.assert_close(other.loss(WORDS, LENGTHS), model.loss(WORDS, LENGTHS))


def test_no_spread_is_uniform() -> None:
    for table in made("pcfg", spread=0.0).tables().values():
        torch.testing.assert_close(table, table.flatten()[0].expand_as(table))


def test_counts_are_those_of_the_distribution(model: Direct) -> None:
    found = model.counts(WORDS, LENGTHS)
    expected = model().expected_counts(WORDS.clamp(min=0), LENGTHS)
    assert found.tables.keys() == expected.keys()
    for name, count in expected.items():
        torch.testing.assert_close(found.tables[name], count)
    torch.testing.assert_close(found.log_prob, model.log_prob(WORDS, LENGTHS).detach())


def test_counts_in_any_mode(model: Direct) -> None:
    expected = model.counts(WORDS, LENGTHS).tables["log_emission"]
    with torch.no_grad():
        assert torch.equal(model.counts(WORDS, LENGTHS).tables["log_emission"], expected)
    with torch.inference_mode():
        assert torch.equal(model.counts(WORDS + 0, LENGTHS).tables["log_emission"], expected)


def test_expectation_maximisation_climbs(model: Direct) -> None:
    found = []
    for _ in range(8):
        counts = model.counts(WORDS, LENGTHS)
        found.append(counts.log_prob.sum().item())
        model.set_counts(counts.tables)
    assert all(after >= before - 1e-9 for before, after in pairwise(found))
    assert found[-1] > found[0] + 1


def test_rows_without_counts_stay(model: Direct) -> None:
    before = model.tables()
    model.set_counts({name: torch.zeros_like(table) for name, table in before.items()})
    for name, table in model.tables().items():
        torch.testing.assert_close(table, before[name])


def test_impossible_entries_have_no_gradient_and_no_nan() -> None:
    model = made("pcfg")
    table = model.tables()["log_emission"]
    table[:, 9] = -torch.inf
    model.set_tables({"log_emission": table})
    assert (model.tables()["log_emission"][:, 9] == -torch.inf).all()
    loss = model.loss(WORDS[:8], LENGTHS[:8])
    loss.sum().backward()
    assert loss.isfinite().all()
    assert all(weight.grad.isfinite().all() for weight in model.parameters())
    assert model.loss(WORDS[8:9], LENGTHS[8:9]).item() == torch.inf


def test_smoothing_adds_to_every_count() -> None:
    model = made("hmm")
    model.set_counts({"log_start": torch.tensor([3.0, 0, 0, 0, 0, 0])}, smoothing=1.0)
    expected = (torch.tensor([4.0, 1, 1, 1, 1, 1], dtype=torch.float64) / 9).log()
    torch.testing.assert_close(model.tables()["log_start"], expected)


@pytest.mark.parametrize(
    ("tables", "kind", "message"),
    [
        (
            {"log_rule": torch.zeros(1)},
            RankspaceError,
            "direct: there is no table 'log_rule'; there are log_start, log_transition, log_emission.",
        ),
        (
            {"log_start": torch.zeros(4)},
            ShapeError,
            "direct: log_start is (4,), but the distribution has (6,); give one number for each entry.",
        ),
    ],
)
def test_mistakes(tables: dict[str, Any], kind: type[Exception], message: str) -> None:
    with pytest.raises(kind) as caught:
        made("hmm").set_tables(tables)
    assert str(caught.value) == message


def test_some_words_keep_no_table_over_the_vocabulary_but_the_weights() -> None:
    model, kept = made("hmm"), []
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: kept.append(tensor) or tensor, lambda x: x):
        model(torch.tensor([1, 2]))
    whole = [tensor for tensor in kept if tensor.shape == (FREE["states"], VOCABULARY)]
    assert all(tensor.data_ptr() == model.logits["log_emission"].data_ptr() for tensor in whole)
