"""How much memory a batch takes under a model, from its settings: as its distribution's, and tables and weights."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

from rankspace.distributions import HMM, LHMM, LPCFG, PCFG, BlockHMM, RankSpaceHMM, RankSpacePCFG, SimplePCFG
from rankspace.distributions.contract import Distribution
from rankspace.distributions.memory import (
    EMISSION,
    Shortage,
    Work,
    if_known,
    lower,
    num_of_axes,
    numbers_of_tables,
    sentences_text,
    size_of,
)
from rankspace.inference.tree.choosing import NUMBERS_TOGETHER as DRAWN_TOGETHER
from rankspace.models.emission import PORTION as LOGITS
from rankspace.models.fast_emission import PORTION as LOGITS_BY_KERNELS
from rankspace.models.networks import kept_of_row

if TYPE_CHECKING:
    from rankspace.models.contract import Model

DISTRIBUTIONS: Mapping[str, type[Distribution]] = {
    "rank-pcfg": RankSpacePCFG,
    "tn-pcfg": RankSpacePCFG,
    "simple-pcfg": SimplePCFG,
    "simple-cpcfg": SimplePCFG,
    "n-pcfg": PCFG,
    "pcfg": PCFG,
    "c-pcfg": PCFG,
    "l-pcfg": LPCFG,
    "rank-hmm": RankSpaceHMM,
    "lhmm": LHMM,
    "hmm": HMM,
    "vl-hmm": BlockHMM,
}


def distribution_of(model: "Model") -> type[Distribution] | None:
    """What a model of the registry gives; None for one of somebody's own."""
    return DISTRIBUTIONS.get(model.settings.get("of", model.NAME))


def has_kernels_for(model: "Model", parses: bool) -> bool:
    """Whether sentences are scored, or parsed, by kernels where a model is; no where memory is too short to know."""
    device = next(model.parameters()).device
    return if_known(lambda: model.poses_kernels(device) if parses else model.by_kernels(device))


def chart_bytes(model: "Model", work: Work) -> int:
    """Bytes of what an engine keeps, and nothing besides: no run takes less. Zero where it is not known."""
    of = distribution_of(model)
    return 0 if of is None else of.numbers_kept(_sizes(model, work), work) * _bytes_per_number(model, work)


def bytes_needed(model: "Model", work: Work) -> int | None:
    """About as many bytes as a batch takes, weights included; with gradients, also theirs and what an optimiser
    remembers. None where it is not known."""
    of = distribution_of(model)
    if of is None:
        return None
    sizes = _sizes(model, work)
    copies = len(work.lengths) if model.BOUND else 1  # tables of each sentence's own
    tables = {label: copies * number for label, number in num_of_axes(of.AXES, sizes).items()}
    made = numbers_of_tables(tables, sizes["vocab"], work)
    from_weights = work.kernels and not model.BOUND  # kernels make tables by themselves
    if not (from_weights and work.gradients):  # those train without logarithms of tables
        made += sum(tables.values())
    if work.gradients:  # of the logits of tables; networks
        made += sum(tables.values()) + copies * _numbers_of_networks(model)
    whole = {**sizes, "vocab": model.vocabulary, "vocabulary": model.vocabulary}
    logits = copies * num_of_axes(of.AXES, whole)[EMISSION]
    made += min(logits, LOGITS_BY_KERNELS if from_weights else LOGITS)
    weights = bytes_of_weights(model, work.gradients)
    return weights + made * _bytes_per_number(model, work) + chart_bytes(model, work)


def bytes_of_weights(model: "Model", learns: bool) -> int:
    """Of those alone; where they are learned, with gradients and what an optimiser remembers."""
    return model.num_weights * (4 if learns else 1) * _dtype(model).itemsize


def bytes_of_tables(model: "Model") -> int | None:
    """About as many bytes as the distribution over the whole vocabulary takes while it is made, weights included."""
    of = distribution_of(model)
    if of is None:
        return None
    tables = sum(num_of_axes(of.AXES, _sizes(model, Work((model.vocabulary,)))).values())
    return bytes_of_weights(model, learns=False) + 2 * tables * _dtype(model).itemsize


def bytes_of_samples(model: "Model", num: int, max_length: int) -> int | None:
    """About as many bytes as it takes to draw sentences: tables once more in float64 and, in float64, three numbers for
    each word that could be drawn. Chains draw the next words of all sentences, grammars all words in portions."""
    tables = bytes_of_tables(model)
    if tables is None:
        return None
    drawn = model.vocabulary * num
    if model.KIND == "tree":
        drawn = min(drawn * max_length, DRAWN_TOGETHER)
    return 2 * tables + 3 * torch.float64.itemsize * drawn


def shortage(model: "Model", work: Work) -> Shortage:
    """What memory did not hold of a batch."""
    what = sentences_text(len(work.lengths), max(work.lengths, default=0))
    return Shortage(what, _sizes_text(model), bytes_needed(model, work))


def shortage_of_weights(model: "Model", learns: bool) -> Shortage:
    """What memory did not hold of a model that is yet to see a batch."""
    what = f"{model.NAME} with {model.num_weights:,} weights"
    return Shortage(what, _sizes_text(model), bytes_of_weights(model, learns))


def shortage_of_tables(model: "Model") -> Shortage:
    """What memory did not hold of the distribution over the whole vocabulary."""
    return Shortage(f"tables of {model.vocabulary:,} words", _sizes_text(model), bytes_of_tables(model))


def shortage_of_samples(model: "Model", num: int, max_length: int) -> Shortage:
    """What memory did not hold of sentences that were to be drawn."""
    return Shortage(sentences_text(num, max_length), _sizes_text(model), bytes_of_samples(model, num, max_length))


def smaller(model: "Model") -> str:
    """What of a model to reduce: a lower rank, fewer states."""
    of = distribution_of(model)
    return "a smaller model" if of is None else lower(of.WIDTH)


def setting_of_width(model: "Model") -> str:
    """The setting that most of the memory is in proportion to."""
    of = distribution_of(model)
    return "the sizes of the model" if of is None else f"model.{of.WIDTH + 's' if of.WIDTH != 'rank' else 'rank'}"


def _numbers_of_networks(model: "Model") -> int:
    """What a backward pass has of the rows that went through networks."""
    return sum(num_rows * kept_of_row(network) for network, num_rows in model.through_networks())


def _sizes(model: "Model", work: Work) -> dict[str, int]:
    """The axes of its distribution, whose vocabulary are the words of the batch, or each sentence's own."""
    given: Mapping[str, Any] = model.settings
    named = {"rank": "rank", "state": "states", "nonterminal": "nonterminals", "preterminal": "preterminals"}
    sizes = {axis: given[setting] for axis, setting in {**named, "block": "blocks"}.items() if setting in given}
    words = min(given["vocabulary"], max(work.lengths, default=0) if model.BOUND else work.num_tokens)
    sizes |= {"vocab": words, "vocabulary": words, "column": -(-given["vocabulary"] // sizes.get("block", 1))}
    return {**sizes, "symbol": sizes.get("nonterminal", 0) + sizes.get("preterminal", 0)}


def _sizes_text(model: "Model") -> str:
    """rank 300, float32."""
    of = distribution_of(model)
    width = "" if of is None else f"{size_of(of.WIDTH, _sizes(model, Work(()))[of.WIDTH])}, "
    return width + str(_dtype(model)).split(".")[1]


def _bytes_per_number(model: "Model", work: Work) -> int:
    """Kernels keep what they multiply as operands."""
    return 2 if work.kernels and model.options.get("precision") == "medium" else _dtype(model).itemsize


def _dtype(model: "Model") -> torch.dtype:
    return next((weight.dtype for weight in model.parameters()), torch.get_default_dtype())
