"""Tiny runs with random weights and prepared data, and what a command left behind."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch

from rankspace.data import Vocabulary, encode_trees, save_prepared
from rankspace.data.prepared import PreparedData
from rankspace.models import create
from rankspace.training import Config, RunDirectory
from rankspace.training.checkpoints import Checkpoint
from rankspace.training.config import config_text
from rankspace.trees import Tree

WORDS = Vocabulary(("<unk>", "<eos>", "the", "dog", "sleeps", "sees", "N", "never"))  # no model emits "never"
GRAMMAR = {"nonterminals": 3, "preterminals": 4, "rank": 5}
TREEBANK = [
    "(S (NP (DT the) (NN dog)) (VP (VB sees) (NP (DT the) (NN dog))))",
    "(S (NP (DT the) (NN dog)) (VP (VB sleeps) (NP (CD N) (NN dog))))",
    "(S (NN dog) (VB sleeps))",
    "(X (NN dog))",
]
NO_RUN = (
    "no: there is no such folder; make one with rankspace train, or name a model of the package: craft-small, "
    "craft-small-hmm."
)


class Ran(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def result(self) -> str:
        """What it printed, of a command that ended well; a test that takes it shows the error of one that did not."""
        assert self.code == 0, self.err
        return self.out


Run = Callable[..., Ran]


def make_run(path: Path, name: str, source: str = "", **settings: Any) -> Path:
    """A run of a model with random weights."""
    torch.manual_seed(1)
    model = create(name, vocabulary=len(WORDS), **settings)
    if name == "direct":
        logits = model.state_dict()["logits.log_emission"]
        logits[:, WORDS.index["never"]] = -torch.inf
    card = {
        "model": {"name": name, "kind": model.KIND, "settings": model.settings},
        "data": {
            "preprocessing": {"lower_case": True, "numbers": "digits", "removed_words": ["."], "removed_tags": ["."]},
            "splits": {"train": {"num_sentences": 4, "num_words": 14}},
        },
        "results": {"steps": 7, "best": {"perplexity": 12.5, "split": "valid"}},
    }
    options = {f"model.{key}": value for key, value in settings.items() if key != "eos"}
    config = config_text(Config().changed({"data.source": source, "model.name": name, **options}))
    checkpoint = Checkpoint(model.state_dict(), {"step": 7})
    run = RunDirectory.create(path, config, card, WORDS, checkpoint)
    run.save_chosen("best", checkpoint)
    for step in (1, 2, 3):
        run.add_metrics({"step": step, "loss": 3.0 / step})
        run.add_metrics({"step": step, "split": "valid", "perplexity": 20.0 / step, "f1": 10.0 * step})
    return path


def prepared(path: Path, vocabulary: Vocabulary = WORDS, trees: Sequence[str] | None = TREEBANK) -> str:
    """Prepared data with gold trees; without `trees` the words of those alone."""
    corpus = encode_trees([Tree.parse(text) for text in trees or TREEBANK], vocabulary)
    gold = corpus.gold
    assert gold is not None
    card: dict[str, Any] = {"vocabulary": {}, "splits": {"train": {}, "test": {}}}
    card |= {"labels": list(gold.label_names), "tags": list(gold.tag_names)}
    corpus = corpus if trees is not None else replace(corpus, gold=None)
    save_prepared(path, PreparedData(card, vocabulary, {"train": corpus, "test": corpus}))
    return str(path)
