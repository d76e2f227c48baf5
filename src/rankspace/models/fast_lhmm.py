"""log p of a batch under `NeuralLHMM` by kernels, from its weights to the batch in few launches."""

from typing import Any

from jaxtyping import Bool, Float, Int
from torch import Tensor

from rankspace.inference.links import Precision
from rankspace.inference.ragged import Ragged
from rankspace.models.fast_emission import log_words
from rankspace.models.fast_networks import residual_network
from rankspace.models.fast_states import Settings, state_chain_log_prob


def lhmm_log_prob(
    model: Any,
    words: Int[Tensor, "batch length"],
    layout: Ragged,
    precision: Precision,
    seed: Int[Tensor, ""],
    true_lengths: Int[Tensor, "batch"] | None = None,
) -> tuple[Float[Tensor, "batch"], Bool[Tensor, "batch"]]:
    """log p of each sentence in float64, and which sentences lost more than rounding: these have gradient zero.

    Does what `NeuralLHMM.log_prob` does, without a look at the distinct words of the batch. Words and their network
    have the precision "high" where "medium" is asked for: what a logit is off by, log p is off by for each word. Which
    ranks and states are left out torch's generator chooses. `true_lengths` are those of sentences that are shorter than
    in the layout.
    """
    finer: Precision = "high" if precision == "medium" else precision
    kept, emission = model.kept(), model.emission
    hidden = residual_network(emission.network, kept.emitters, finer)
    found = log_words(hidden, emission.words.weight, emission.words.bias, layout.pack(words), finer)
    settings = Settings(layout, precision, model.settings["form"] == "features", true_lengths)
    return state_chain_log_prob(kept.from_states, kept.to_states, kept.ranks, found, settings, seed)
