"""log p of a batch under `RankHMM` by kernels, from its weights to the batch in few launches."""

from typing import Any

from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from rankspace.inference.links import Precision
from rankspace.models.fast_batch import Batch
from rankspace.models.fast_chain import rank_chain_log_prob
from rankspace.models.fast_emission import log_words, precision_of_words
from rankspace.models.fast_networks import chosen, residual_network


def rank_hmm_log_prob(
    model: Any, words: Int[Tensor, "batch length"], batch: Batch
) -> tuple[Float[Tensor, "batch"], Bool[Tensor, "batch"]]:
    """log p of each sentence in float64, and which sentences lost more than rounding: these have gradient zero.

    Does what `RankHMM.log_prob` does in rank order, without a look at the distinct words of the batch. The seed
    chooses the entries that are left out in training. Words have a precision of their own (`precision_of_words`).
    """
    dropout, kept = model.settings["dropout"] if model.training else 0.0, model.kept()
    finer = precision_of_words(batch.precision)
    vocabulary = model.dropped(residual_network(model.word_network, model.words, finer))
    found = log_words(kept.emitters, vocabulary, None, batch.layout.pack(words), finer)
    return rank_chain_log_prob(
        kept.from_states,
        kept.to_states,
        kept.ranks,
        None if kept.starts is None else _start(model, kept.starts, dropout, batch.precision),
        found,
        batch,
        dropout,
    )


def _start(
    model: Any, starts: Float[Tensor, "state size"], dropout: float, precision: Precision
) -> Float[Tensor, "state"]:
    """Probabilities."""
    return chosen(model.start, nn.functional.dropout(starts, dropout, model.training), precision)
