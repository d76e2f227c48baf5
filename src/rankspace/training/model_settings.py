"""The settings of the models with their defaults, so that a configuration is checked before torch is imported.

The registry of models is what counts; a test holds this table against it.
"""

from typing import Any

DEFAULTS: dict[str, dict[str, Any]] = {
    "rank-pcfg": {
        "nonterminals": 4500,
        "preterminals": 9000,
        "rank": 1000,
        "size": 256,
        "start": "states",
        "initial": "normal",
        "networks": "residual",
        "biases": "zero",
        "dropout": 0.0,
    },
    "tn-pcfg": {"nonterminals": 250, "preterminals": 500, "rank": 200, "size": 256},
    "simple-pcfg": {"nonterminals": 4096, "preterminals": 8192, "size": 512},
    "simple-cpcfg": {"nonterminals": 512, "preterminals": 1024, "size": 256, "latent": 64, "samples": None},
    "n-pcfg": {"nonterminals": 30, "preterminals": 60, "size": 256},
    "c-pcfg": {"nonterminals": 30, "preterminals": 60, "size": 256, "latent": 64, "samples": None},
    "l-pcfg": {"nonterminals": 60, "preterminals": 120, "rank": 30, "size": 256},
    "rank-hmm": {
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
    },
    "lhmm": {
        "states": 16384,
        "rank": 2048,
        "size": 256,
        "form": "features",
        "dropout": 0.0,
        "state_dropout": 0.0,
        "eos": None,
    },
    "hmm": {"states": 1024, "size": 256, "dropout": 0.0, "eos": None},
    "vl-hmm": {
        "states": 16384,
        "blocks": 128,
        "size": 256,
        "clusters": "brown",
        "largest": None,
        "dropout": 0.0,
        "eos": None,
    },
    "direct": {
        "of": "rank-pcfg",
        "nonterminals": 30,
        "preterminals": 60,
        "states": 64,
        "rank": 16,
        "spread": 1.0,
        "eos": None,
    },
}
BOUNDS = ("simple-cpcfg", "c-pcfg")  # whose loss is a bound, with a KL term


def defaults_of(name: str) -> dict[str, Any]:
    """The settings of a model with their defaults. Raises RankspaceError for a model that does not exist."""
    if name in DEFAULTS:
        return dict(DEFAULTS[name])
    from rankspace.models import describe

    return describe(name).settings


def is_bound(name: str) -> bool:
    """Whether the loss of a model has a KL term."""
    if name in DEFAULTS:
        return name in BOUNDS
    from rankspace.models import MODELS

    return MODELS[name].BOUND
