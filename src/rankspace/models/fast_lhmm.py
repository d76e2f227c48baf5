"""log p of a batch under `NeuralLHMM` by kernels, from its weights to the batch in few launches."""

from typing import Any

from jaxtyping import Bool, Float, Int
from torch import Tensor

from rankspace.inference.links import Precision
from rankspace.inference.ragged import Ragged
from rankspace.models.fast_emission import log_words
from rankspace.models.fast_networks import residual_network
from rankspace.models.fast_rank_hmm import chosen
from rankspace.models.fast_states import Settings, state_chain_log_prob
from rankspace.models.networks import kept_rows


def lhmm_log_prob(
    model: Any,
    words: Int[Tensor, "batch length"],
    layout: Ragged,
    precision: Precision,
    seed: Int[Tensor, ""],
    true_lengths: Int[Tensor, "batch"] | None = None,
) -> tuple[Float[Tensor, "batch"], Bool[Tensor, "batch"]]:
    """log p of each sentence in float64, and which sentences lost more than rounding: these have gradient zero.

    Does what `NeuralLHMM.log_prob` does, without a look at the distinct words of the batch. Words and networks have the
    precision "high" where "medium" is asked for: what a logit is off by, log p is off by for each word, and embeddings
    that come from networks in bfloat16 have gradients off by 5e-2 instead of 1e-2. Which ranks are left out torch's
    generator chooses. `true_lengths` are those of sentences that are shorter than in the layout.
    """
    finer: Precision = "high" if precision == "medium" else precision
    states, emission = model.states, model.emission
    hidden = residual_network(emission.network, states, finer)
    found = log_words(hidden, emission.words.weight, emission.words.bias, layout.pack(words), finer)
    return state_chain_log_prob(
        residual_network(model.from_state, states, finer),
        residual_network(model.to_state, states, finer),
        kept_rows(model.ranks, model.settings["dropout"], model.training),
        chosen(model.start, states, finer),
        found,
        Settings(layout, precision, model.settings["form"] == "features", true_lengths),
        seed,
    )
