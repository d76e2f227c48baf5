"""Models by name: what there is, and what is said about what there is not."""

from typing import Any

import pytest
import torch

from rankspace.errors import RankspaceError
from rankspace.models import MODELS, create, describe
from rankspace.models.registry import check


def test_the_models() -> None:
    assert sorted(MODELS) == [
        "c-pcfg",
        "direct",
        "hmm",
        "l-pcfg",
        "lhmm",
        "n-pcfg",
        "rank-hmm",
        "rank-pcfg",
        "simple-cpcfg",
        "simple-pcfg",
        "tn-pcfg",
        "vl-hmm",
    ]


def test_descriptions() -> None:
    found = describe("rank-hmm")
    assert (found.name, found.kind) == ("rank-hmm", "chain")
    assert found.about == "low-rank HMM in rank space (Yang, Liu, Tu 2022)"
    assert found.settings == {
        "states": 16384,
        "rank": 4096,
        "size": 256,
        "dropout": 0.1,
        "start": "states",
        "rank_dropout": 0.0,
        "state_dropout": 0.0,
        "word_dropout": 0.0,
        "initial": "xavier",
        "eos": None,
    }
    for name in MODELS:
        assert describe(name).kind == ("chain" if "hmm" in name else "tree")
        assert "\n" not in describe(name).about


def test_the_kind_of_free_logits_is_that_of_their_distribution() -> None:
    assert create("direct", vocabulary=3).KIND == "tree"
    assert create("direct", vocabulary=3, of="lhmm").KIND == "chain"


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("rank-pcgf", {}, "there is no model 'rank-pcgf'; did you mean 'rank-pcfg'?"),
        (
            "transformer",
            {},
            "there is no model 'transformer'; there are rank-pcfg, tn-pcfg, simple-pcfg, simple-cpcfg, n-pcfg, c-pcfg, "
            "l-pcfg, rank-hmm, lhmm, hmm, vl-hmm, direct.",
        ),
        ("hmm", {"vocabulary": 5, "stats": 3}, "hmm: there is no setting 'stats'; did you mean 'states'?"),
        (
            "hmm",
            {"vocabulary": 5, "zzz": 3},
            "hmm: there is no setting 'zzz'; there are vocabulary, states, size, dropout, eos.",
        ),
        ("hmm", {}, "hmm: vocabulary is missing; give the number of words."),
        ("hmm", {"vocabulary": 0}, "hmm: vocabulary is 0; give at least 1."),
        ("hmm", {"vocabulary": 5, "size": "big"}, "hmm: size is 'big'; give an integer."),
        ("hmm", {"vocabulary": 5, "size": True}, "hmm: size is True; give an integer."),
        ("hmm", {"vocabulary": 5, "size": 2.0}, "hmm: size is 2.0; give an integer."),
        ("hmm", {"vocabulary": 5, "eos": "."}, "hmm: eos is '.'; give an integer or None."),
        ("hmm", {"vocabulary": 5, "dropout": None}, "hmm: dropout is None; give a number."),
        ("hmm", {"vocabulary": 5, "dropout": 1}, "hmm: dropout is 1.0; give a number from 0 to below 1."),
        (
            "hmm",
            {"vocabulary": 5, "eos": 5},
            "hmm: eos is 5 but there are 5 words; give the number of the word that ends a sentence, or None.",
        ),
        (
            "rank-pcfg",
            {"vocabulary": 5, "start": "rank"},
            "rank-pcfg: start is 'rank'; give one of 'states', 'ranks', 'embedding'.",
        ),
        ("rank-hmm", {"vocabulary": 5, "rank": 0}, "rank-hmm: rank is 0; give at least 1."),
        ("rank-hmm", {"vocabulary": 5, "dropout": 1.5}, "rank-hmm: dropout is 1.5; give a number from 0 to below 1."),
        (
            "rank-hmm",
            {"vocabulary": 5, "rank_dropout": -0.5},
            "rank-hmm: rank_dropout is -0.5; give a number from 0 to below 1.",
        ),
        ("c-pcfg", {"vocabulary": 5, "samples": 0}, "c-pcfg: samples is 0; give at least 1."),
        (
            "vl-hmm",
            {"vocabulary": 5, "states": 6, "blocks": 4},
            "vl-hmm: 6 states cannot be divided evenly into 4 blocks; give a multiple.",
        ),
        (
            "vl-hmm",
            {"vocabulary": 5, "states": 6, "blocks": 6},
            "vl-hmm: 5 words are fewer than 6 blocks; give fewer blocks.",
        ),
        ("direct", {"vocabulary": 5, "spread": -1.0}, "direct: spread is -1.0; give 0 or more."),
        (
            "direct",
            {"vocabulary": 5, "of": "hsmm"},
            "direct: of is 'hsmm'; give one of 'rank-pcfg', 'simple-pcfg', 'pcfg', 'l-pcfg', 'hmm', 'rank-hmm', "
            "'lhmm'.",
        ),
    ],
)
def test_mistakes(name: str, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(RankspaceError) as caught:
        create(name, **settings)
    assert str(caught.value) == message
    if message != "hmm: vocabulary is missing; give the number of words.":
        with pytest.raises(RankspaceError) as caught:
            check(name, **settings)
        assert str(caught.value) == message


@pytest.mark.parametrize("name", MODELS)
def test_settings_can_be_checked_before_there_are_words(name: str) -> None:
    """Nothing is made: no memory holds as many weights, and no number is drawn."""
    huge = {key: 2**50 for key, value in describe(name).settings.items() if type(value) is int}
    before = torch.get_rng_state()
    check(name)
    check(name, **huge)
    check(name, vocabulary=2**50, **huge)
    assert torch.equal(torch.get_rng_state(), before)
    with pytest.raises(RankspaceError) as caught:
        check(name, **dict.fromkeys(huge, 0))
    assert str(caught.value) == f"{name}: {next(iter(huge))} is 0; give at least 1."


def test_a_model_that_is_not_there_cannot_be_described() -> None:
    with pytest.raises(RankspaceError) as caught:
        describe("hmmm")
    assert str(caught.value) == "there is no model 'hmmm'; did you mean 'hmm'?"


def test_an_integer_will_do_for_a_number() -> None:
    made = create("hmm", vocabulary=5, states=2, size=2, dropout=0)
    assert made.settings["dropout"] == 0.0
    assert isinstance(made.settings["dropout"], float)
