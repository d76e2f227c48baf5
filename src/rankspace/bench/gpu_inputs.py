"""What a row of `rankspace bench gpu` runs on: a model with weights, a batch of random words, and their log p."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from rankspace.bench.gpu_rows import Row
from rankspace.models import Model, create

LOW_RANK_CHAINS = ("rank-hmm", "lhmm")
# What logits are linear in: these times 6 are logits times 6.
SCALES = {
    "rank-pcfg": ("ranks", "emission.words.weight", "emission.words.bias", "root.start"),
    "rank-hmm": ("ranks", "emitters", "start.start"),
}


class Sentences(NamedTuple):
    """A batch of random words."""

    words: Int[Tensor, "batch length"]
    lengths: tuple[int, ...]
    device_lengths: Int[Tensor, "batch"]
    seed: Int[Tensor, ""]

    @classmethod
    def of(cls, row: Row, device: torch.device) -> "Sentences":
        generator = torch.Generator().manual_seed(0)
        words = torch.randint(row.vocabulary, (len(row.lengths), max(row.lengths)), generator=generator).to(device)
        seed = torch.zeros((), dtype=torch.int64, device=device)
        return cls(words, row.lengths, torch.tensor(row.lengths, device=device), seed)


def new_model(row: Row, device: torch.device, sharpness: float = 1.0) -> Model:
    """With the weights that training begins with, drawn anew the same way at each call.

    The tables of low-rank chains begin all but uniform, where no rounding shows: their logits are spread to a standard
    deviation of one.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = create(row.model, vocabulary=row.vocabulary, **row.settings)
    model.options["precision"] = row.precision
    weights = dict(model.named_parameters())
    with torch.no_grad():
        for name in ("from_states", "to_states") if row.model in LOW_RANK_CHAINS else ():
            weights[name].div_((weights[name][:1000] @ weights["ranks"].T).std())
        for name in SCALES[row.model] if sharpness != 1 else ():
            weights[name].mul_(sharpness)
    return model.to(device)


def log_prob(model: Model, sentences: Sentences) -> tuple[Float[Tensor, "batch"], Bool[Tensor, "batch"]]:
    """As training computes it: log p of each sentence, and which are lost; the backward pass may mark more."""
    if model.can_be_captured(sentences.words.device):
        return model.padded_log_prob(sentences.words, sentences.device_lengths, sentences.seed)
    log_p = -model.loss(sentences.words, sentences.lengths)
    return log_p, torch.zeros_like(log_p, dtype=torch.bool)
