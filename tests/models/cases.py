"""Every model in tiny sizes, and sentences for it."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

VOCABULARY = 11
NETWORK: dict[str, Any] = {"vocabulary": VOCABULARY, "size": 8}
TREE: dict[str, Any] = {**NETWORK, "nonterminals": 3, "preterminals": 4}
CHAIN: dict[str, Any] = {**NETWORK, "states": 6, "eos": 10}
FREE: dict[str, Any] = {
    "vocabulary": VOCABULARY,
    "nonterminals": 3,
    "preterminals": 4,
    "states": 6,
    "rank": 3,
    "spread": 2.0,
}

CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "rank-pcfg": ("rank-pcfg", {**TREE, "rank": 5}),
    "rank-pcfg, start in ranks": (
        "rank-pcfg",
        {**TREE, "rank": 5, "start": "ranks", "initial": "xavier", "dropout": 0.2},
    ),
    "rank-pcfg, as published": (
        "rank-pcfg",
        {**TREE, "rank": 5, "start": "embedding", "initial": "xavier", "networks": "rectified", "biases": "uniform"},
    ),
    "tn-pcfg": ("tn-pcfg", {**TREE, "rank": 5}),
    "n-pcfg": ("n-pcfg", TREE),
    "c-pcfg": ("c-pcfg", {**TREE, "latent": 3}),
    "c-pcfg, samples": ("c-pcfg", {**TREE, "latent": 3, "samples": 2}),
    "l-pcfg": ("l-pcfg", {**TREE, "rank": 2}),
    "simple-pcfg": ("simple-pcfg", TREE),
    "simple-cpcfg": ("simple-cpcfg", {**TREE, "latent": 3}),
    "rank-hmm": ("rank-hmm", {**CHAIN, "rank": 5}),
    "rank-hmm, start in ranks": ("rank-hmm", {**CHAIN, "rank": 5, "start": "ranks"}),
    "lhmm": ("lhmm", {**CHAIN, "rank": 4, "dropout": 0.5, "state_dropout": 0.3}),
    "lhmm, tables": ("lhmm", {**CHAIN, "rank": 4, "form": "tables"}),
    "hmm": ("hmm", {**CHAIN, "dropout": 0.3}),
    "vl-hmm": ("vl-hmm", {**CHAIN, "states": 12, "blocks": 4, "dropout": 0.4}),
    "vl-hmm, uniform": ("vl-hmm", {**CHAIN, "states": 12, "blocks": 4, "clusters": "uniform"}),
    **{
        f"direct, {of}": ("direct", {**FREE, "of": of})
        for of in ("rank-pcfg", "simple-pcfg", "pcfg", "l-pcfg", "hmm", "rank-hmm", "lhmm")
    },
}

PADDING = -7  # no word
SENTENCES = [
    [0, 1, 2, 10],
    [0, 3, 2, 10],
    [0, 1, 4, 0, 3, 10],
    [5, 10],
    [0, 3, 4, 0, 1, 10],
    [6, 0, 1, 2, 10],
    [6, 5, 2, 10],
    [0, 1, 7, 0, 3, 10],
    [8, 9, 10],
    [8, 10],
]


def padded(sentences: list[list[int]]) -> tuple[Tensor, list[int]]:
    lengths = [len(sentence) for sentence in sentences]
    rows = [[*sentence, *[PADDING] * (max(lengths) - len(sentence))] for sentence in sentences]
    return torch.tensor(rows), lengths


def sentence_alone(sentences: list[list[int]]) -> Iterator[Tensor]:
    return (torch.tensor([sentence]) for sentence in sentences)
