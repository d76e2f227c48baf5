"""log p of a batch under `NeuralLHMM` by kernels, from its weights to the batch in few launches."""

from typing import Any

from jaxtyping import Bool, Float, Int
from torch import Tensor

from rankspace.models.fast_batch import Batch
from rankspace.models.fast_emission import log_words, precision_of_words
from rankspace.models.fast_networks import residual_network
from rankspace.models.fast_states import state_chain_log_prob


def lhmm_log_prob(
    model: Any, words: Int[Tensor, "batch length"], batch: Batch
) -> tuple[Float[Tensor, "batch"], Bool[Tensor, "batch"]]:
    """log p of each sentence in float64, and which sentences lost more than rounding: these have gradient zero.

    Does what `NeuralLHMM.log_prob` does, without a look at the distinct words of the batch. Words and their network
    have a precision of their own (`precision_of_words`). Which ranks and states are left out torch's generator
    chooses.
    """
    kept, emission, finer = model.kept(), model.emission, precision_of_words(batch.precision)
    hidden = residual_network(emission.network, kept.emitters, finer)
    found = log_words(hidden, emission.words.weight, emission.words.bias, batch.layout.pack(words), finer)
    has_features = model.settings["form"] == "features"
    return state_chain_log_prob(kept.from_states, kept.to_states, kept.ranks, found, batch, has_features)
