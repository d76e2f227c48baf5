"""The sections of a configuration: every option with its default, its bounds and one line for people.

Zero stands for "none" where an option is a limit.
"""

from dataclasses import dataclass, field
from typing import Any, Literal

from rankspace.seeds import LARGEST_SEED
from rankspace.training.options import option


@dataclass(frozen=True)
class DataConfig:
    """What to train on."""

    source: str = option("", "a folder of prepared data, synthetic or synthetic:SENTENCES")
    train: str = option("train", "the split to train on")
    valid: str = option("valid", "the split to evaluate on while training; empty for none")
    held_out: str = option("", "a split of text that chooses a checkpoint of its own, by perplexity; empty for none")
    test: str = option("test", "the split to evaluate the best checkpoint on; empty for none")

    @property
    def required(self) -> list[str]:
        """Splits that the data must have: the one to train on, and those that are named otherwise than by default."""
        default, others = DataConfig(), ("valid", "held_out", "test")
        named = [getattr(self, name) for name in others if getattr(self, name) != getattr(default, name)]
        return [self.train, *filter(None, named)]


@dataclass(frozen=True)
class ModelConfig:
    """The model by name, and its settings."""

    name: str = "rank-pcfg"
    settings: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class BatchesConfig:
    """How sentences are put together in batches. If no limit is set, a batch has 16 sentences."""

    max_tokens: int = option(0, "most words in a batch; 0 for no limit", at_least=0)
    max_sentences: int = option(0, "most sentences in a batch; 0 for no limit", at_least=0)
    padded: bool = option(True, "count sentences times the longest one, not words, against max_tokens")
    min_length: int = option(
        1, "shorter sentences are left out of training; grammars always leave out single words", at_least=1
    )
    max_length: int = option(0, "longer sentences are left out of training; 0 for no limit", at_least=0)
    accumulate: int = option(1, "batches whose gradients make one step", at_least=1)


@dataclass(frozen=True)
class CurriculumConfig:
    """Sentences grow longer from epoch to epoch."""

    start: int = option(0, "the longest sentence of the first epoch; 0 for all sentences from the start", at_least=0)
    growth: int = option(1, "how many words longer it gets each epoch", at_least=1)


@dataclass(frozen=True)
class OptimiserConfig:
    """How weights are updated from gradients, or from counts."""

    name: Literal["adam", "adamw", "em"] = option("adam", "adam, adamw, or em for models named direct")
    learning_rate: float = option(0.001, "the learning rate at its highest", above=0)
    beta1: float = option(0.9, "decay of the mean gradient", at_least=0, below=1)
    beta2: float = option(0.999, "decay of the mean squared gradient", at_least=0, below=1)
    epsilon: float = option(1e-8, "what is added to the root of the mean squared gradient", above=0)
    weight_decay: float = option(0.0, "weight decay of adamw", at_least=0)
    clip: float = option(0.0, "largest norm of the gradient; 0 for no limit", at_least=0)
    average: float = option(0.0, "decay of the averaged weights that are evaluated; 0 for none", at_least=0, below=1)


@dataclass(frozen=True)
class EMConfig:
    """Expectation maximisation, with optimiser.name = "em"."""

    batch: Literal["full", "mini"] = option(
        "full", "full: one step per epoch; mini: one per batch, with averaged counts"
    )
    decay: float = option(0.7, "mini: step k has the weight (k + offset)^-decay", above=0.5, at_most=1)
    offset: float = option(2.0, "mini: see decay", at_least=0)
    pseudo_count: float = option(0.0, "added to every expected count", at_least=0)


@dataclass(frozen=True)
class ObjectiveConfig:
    """What is minimised."""

    normalise: Literal["sentence", "token"] = option("sentence", "what the loss of a batch is the mean over")
    kl_warm_up: int = option(0, "steps in which the weight of the KL term of compound models rises to 1", at_least=0)


@dataclass(frozen=True)
class ScheduleConfig:
    """How the learning rate changes."""

    name: Literal["constant", "plateau", "cosine"] = option(
        "constant", "plateau: falls when evaluations do not improve; cosine: falls to lowest over the run"
    )
    warm_up: int = option(0, "steps in which the rate rises from 0", at_least=0)
    factor: float = option(0.5, "plateau: what the rate is multiplied by", above=0, below=1)
    patience: int = option(2, "plateau: evaluations without improvement before the rate falls", at_least=1)
    lowest: float = option(0.0, "the lowest rate, as a share of the highest", at_least=0, below=1)


@dataclass(frozen=True)
class EvaluationConfig:
    """When and how the model is evaluated."""

    every_steps: int = option(0, "steps between evaluations; 0: at the end of each epoch", at_least=0)
    measure: Literal["perplexity", "s_f1"] = option("perplexity", "what the best checkpoint is best in")
    parse: bool = option(True, "also parse and compute S-F1, where there are gold trees")
    max_length: int = option(
        0, "longer sentences are left out of evaluations while training; 0 for no limit", at_least=0
    )
    max_tokens: int = option(2048, "words in a batch, padding included", at_least=1)
    patience: int = option(0, "evaluations without improvement before training stops; 0: never", at_least=0)


@dataclass(frozen=True)
class RunConfig:
    """How long, how exact and what is kept."""

    seed: int = option(1, "seed of weights, batches and dropout", at_least=0, at_most=LARGEST_SEED)
    epochs: int = option(10, "passes over the training data", at_least=1)
    max_steps: int = option(0, "most steps of the run; 0 for no limit", at_least=0)
    precision: Literal["auto", "highest", "high", "medium"] = option(
        "auto",
        "on a GPU, highest: float32; high: tf32; medium: bfloat16; on a CPU all are float32; auto: medium for a model "
        "with kernels on a GPU (n-pcfg, l-pcfg, hmm: high), else highest",
    )
    log_every: int = option(50, "steps between lines of the log", at_least=1)
    checkpoint_steps: int = option(0, "steps between checkpoints besides those at evaluations; 0: none", at_least=0)
    checkpoint_minutes: float = option(10.0, "minutes between checkpoints; 0: none by time", at_least=0)
    track: Literal["none", "tensorboard", "wandb"] = option("none", "where metrics go besides metrics.jsonl")


CHANGEABLE = ("epochs", "max_steps", "log_every", "checkpoint_steps", "checkpoint_minutes", "track")  # on resuming
