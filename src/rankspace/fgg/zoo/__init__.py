"""Well-known models as factor graph grammars, each written like its figure.

Arguments are nonnegative tensors, mostly probabilities. Node labels are T (state), N (symbol), R (rank), O (word) and
product labels such as TD = (state, time left). `product=True` puts a model's state into one product node, which makes
it a B-FGG.
"""

from rankspace.fgg.zoo.chains import factored_hmm, hmm, hsmm, lhmm
from rankspace.fgg.zoo.trees import (
    factored_pcfg,
    lexicalised_pcfg,
    lpcfg,
    pcfg,
    qcfg,
    split_factored_pcfg,
    split_pcfg,
)

__all__ = [
    "factored_hmm",
    "factored_pcfg",
    "hmm",
    "hsmm",
    "lexicalised_pcfg",
    "lhmm",
    "lpcfg",
    "pcfg",
    "qcfg",
    "split_factored_pcfg",
    "split_pcfg",
]
