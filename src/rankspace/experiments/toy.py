"""The experiments at toy size: every row, every path, in seconds on a CPU."""

from dataclasses import replace

from rankspace.experiments.tables import Row
from rankspace.training import Config

NUM_SENTENCES = 24
SIZES = {
    "nonterminals": 4,
    "preterminals": 8,
    "rank": 4,
    "size": 8,
    "latent": 2,
    "states": 16,
    "blocks": 4,
}
CHANGES = {
    "batches.max_tokens": 0,
    "batches.max_sentences": 12,
    "batches.max_length": 0,
    "curriculum.start": 0,
    "run.epochs": 2,
    "run.log_every": 1,
}


def toy_row(row: Row) -> Row:
    """The same row with a tiny model, two epochs and its first seed."""
    return replace(row, config=_toy(row.config), seeds=row.seeds[:1])


def _toy(config: Config) -> Config:
    sizes = {f"model.{name}": size for name, size in SIZES.items() if name in config.model.settings}
    warm_up = {"schedule.warm_up": min(config.schedule.warm_up, 1)}
    return config.changed({**CHANGES, **sizes, **warm_up})
