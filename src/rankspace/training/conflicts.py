"""Options that have no effect together, or no meaning: refused, so that no setting is passed over in silence."""

from collections.abc import Iterator

from rankspace.errors import RankspaceError
from rankspace.training.sections import (
    EMConfig,
    EvaluationConfig,
    ObjectiveConfig,
    OptimiserConfig,
    ScheduleConfig,
)


def check_optimiser(
    model: str, optimiser: OptimiserConfig, em: EMConfig, schedule: ScheduleConfig, every_steps: int, max_steps: int
) -> None:
    """Raises RankspaceError for what the optimiser, or the model under it, would not look at."""
    if optimiser.name == "em" and not model.startswith("direct"):
        raise RankspaceError(f"config: optimiser.name is 'em' but model.name {model!r}; EM is for direct models.")
    if optimiser.name == "em":
        for key, value in _of_gradients(optimiser, schedule):
            raise RankspaceError(
                f"config: {key} is {value!r} but optimiser.name 'em'; EM has no gradients, leave it out."
            )
        if em.batch == "full":
            _check_full(every_steps, max_steps)
    if optimiser.name == "adam" and optimiser.weight_decay:
        raise RankspaceError(
            f"config: optimiser.weight_decay is {optimiser.weight_decay!r} but optimiser.name 'adam'; take 'adamw' for "
            f"it."
        )


def check_measures(model: str, is_bound: bool, objective: ObjectiveConfig, evaluation: EvaluationConfig) -> None:
    """Raises RankspaceError for a KL term of a model that has none, and for a measure that is not computed."""
    if objective.kl_warm_up and not is_bound:
        raise RankspaceError(
            f"config: objective.kl_warm_up is {objective.kl_warm_up!r} but model.name {model!r} has no KL term; leave "
            f"it out."
        )
    if evaluation.measure == "s_f1" and not evaluation.parse:
        raise RankspaceError(
            "config: evaluation.measure is 's_f1' but evaluation.parse false; nothing is parsed, set it to true."
        )


def _of_gradients(optimiser: OptimiserConfig, schedule: ScheduleConfig) -> Iterator[tuple[str, float | str]]:
    """What is set of the options that concern gradients alone."""
    if schedule.name != "constant":
        yield "schedule.name", schedule.name
    options = {
        "schedule.warm_up": schedule.warm_up,
        "optimiser.average": optimiser.average,
        "optimiser.clip": optimiser.clip,
        "optimiser.weight_decay": optimiser.weight_decay,
    }
    yield from ((key, value) for key, value in options.items() if value)


def _check_full(every_steps: int, max_steps: int) -> None:
    """Full EM sets its tables at the end of an epoch: amid one there is nothing to evaluate or to end with."""
    for key, value in (("evaluation.every_steps", every_steps), ("run.max_steps", max_steps)):
        if value:
            raise RankspaceError(
                f"config: {key} is {value!r} but em.batch 'full', which learns at the ends of epochs; give "
                f"run.epochs, or em.batch 'mini'."
            )
