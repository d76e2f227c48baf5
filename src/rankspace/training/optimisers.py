"""Optimisers, their states as tensors by name, and how the learning rate changes."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from rankspace.training.sections import OptimiserConfig, ScheduleConfig


def make_optimiser(config: OptimiserConfig, model: nn.Module, captured: bool = False) -> torch.optim.Optimizer:
    """Adam, or AdamW with its weight decay, in one pass over each weight. If it is to be captured in a CUDA graph, its
    learning rate is a number on the device."""
    betas, rate = (config.beta1, config.beta2), config.learning_rate
    options: dict[str, Any] = {"eps": config.epsilon, "fused": True, "capturable": captured}
    if captured:
        rate = torch.tensor(rate, device=next(model.parameters()).device)  # type: ignore[assignment]
    if config.name == "adamw":
        return torch.optim.AdamW(model.parameters(), rate, betas, weight_decay=config.weight_decay, **options)
    return torch.optim.Adam(model.parameters(), rate, betas, **options)


def set_learning_rate(optimiser: torch.optim.Optimizer, rate: float) -> None:
    for group in optimiser.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate


def optimiser_tensors(optimiser: torch.optim.Optimizer, model: nn.Module) -> dict[str, Tensor]:
    """What the optimiser remembers of each weight, under the weight's name."""
    found: dict[str, Tensor] = {}
    for name, weight in model.named_parameters():
        found |= {f"optimiser.{name}.{key}": value for key, value in optimiser.state.get(weight, {}).items()}
    return found


def load_optimiser_tensors(optimiser: torch.optim.Optimizer, model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Gives an optimiser back what `optimiser_tensors` took from it."""
    state: dict[int, dict[str, Tensor]] = {}
    for place, (name, _) in enumerate(model.named_parameters()):
        prefix = f"optimiser.{name}."
        own = {key.removeprefix(prefix): value for key, value in tensors.items() if key.startswith(prefix)}
        own = {key: value for key, value in own.items() if "." not in key}  # of this weight, not of one below its name
        if own:
            state[place] = own
    optimiser.load_state_dict({**optimiser.state_dict(), "state": state})


@dataclass
class Schedule:
    """The learning rate of each step: warm-up, then constant, falling with the cosine, or lowered at plateaus."""

    config: ScheduleConfig
    highest: float
    scale: float = 1.0  # of plateaus
    num_bad: int = 0  # evaluations without improvement

    def learning_rate(self, step: int, progress: float) -> float:
        """Of a step, counted from 0, at a share of the whole run."""
        rate = self.scale
        if self.config.name == "cosine":
            rate = (1 + math.cos(math.pi * min(progress, 1.0))) / 2
        rate = max(rate, self.config.lowest)
        if step < self.config.warm_up:
            rate *= (step + 1) / (self.config.warm_up + 1)
        return self.highest * rate

    def evaluated(self, improved: bool) -> None:
        """Takes note of an evaluation."""
        self.num_bad = 0 if improved else self.num_bad + 1
        if self.config.name == "plateau" and self.num_bad >= self.config.patience:
            self.scale, self.num_bad = self.scale * self.config.factor, 0

    def state_dict(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if name in ("scale", "num_bad")}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.scale, self.num_bad = float(state["scale"]), int(state["num_bad"])
