"""Small data and configurations that the tests of training share."""

from functools import cache
from typing import Any

from rankspace.data.prepared import PreparedData
from rankspace.training import Config, synthetic_data

TREE = {
    "model.name": "rank-pcfg",
    "model.nonterminals": 4,
    "model.preterminals": 6,
    "model.rank": 5,
    "model.size": 8,
    "model.start": "ranks",
}
CHAIN = {"model.name": "rank-hmm", "model.states": 8, "model.rank": 5, "model.size": 8, "model.dropout": 0.2}
DIRECT = {"model.name": "direct", "model.of": "hmm", "model.states": 5, "optimiser.name": "em"}


@cache
def data() -> PreparedData:
    return synthetic_data(40, max_length=8)


def config(model: dict[str, Any] | None = None, **changes: Any) -> Config:
    """A configuration for a few quick epochs; keys with __ for the point."""
    quick = {"run.epochs": 2, "run.log_every": 3, "batches.max_sentences": 8, "optimiser.learning_rate": 0.01}
    given = {key.replace("__", "."): value for key, value in changes.items()}
    return Config().changed({**quick, "data.source": "synthetic:40", **(TREE if model is None else model), **given})
