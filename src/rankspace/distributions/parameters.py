"""Checks of the tensors a distribution is made of, once, when it is made."""

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from rankspace.errors import RankspaceError, ShapeError

TOLERANCE = 1e-4  # of a sum of probabilities: softmax in float32 over 10^5 entries errs by less

Axes = tuple[str, ...]


def sizes_of(name: str, axes: Mapping[str, Axes], parameters: Mapping[str, Tensor]) -> dict[str, int]:
    """The size of each axis; raises ShapeError where two disagree, of one parameter or two. Axes "_" are free."""
    sizes: dict[str, int] = {}
    origin: dict[str, str] = {}
    for label, parameter in parameters.items():
        if parameter.dim() != len(axes[label]):
            raise ShapeError(
                f"{name}: {label} has shape {tuple(parameter.shape)} but needs {len(axes[label])} axes: "
                f"[{', '.join(axes[label])}]."
            )
        for axis, size in zip(axes[label], parameter.shape, strict=True):
            if sizes.setdefault(axis, size) != size and axis != "_":
                if origin[axis] == f"{label} {tuple(parameter.shape)}":
                    raise ShapeError(
                        f"{name}: {origin[axis]} has {sizes[axis]} and {size} along its two axes {axis!r}; give both "
                        f"the same size."
                    )
                raise ShapeError(
                    f"{name}: {axis} is {sizes[axis]} in {origin[axis]} but {size} in {label} "
                    f"{tuple(parameter.shape)}; build both from one set of sizes."
                )
            origin.setdefault(axis, f"{label} {tuple(parameter.shape)}")
    return sizes


def check_kind(name: str, parameters: Mapping[str, Tensor]) -> None:
    """All parameters are float32 or all float64, on one device."""
    first, *others = parameters
    here = parameters[first]
    if here.dtype not in (torch.float32, torch.float64):
        raise RankspaceError(f"{name}: {first} is {here.dtype}; give float32 or float64.")
    for label in others:
        there = parameters[label]
        if (there.dtype, there.device) != (here.dtype, here.device):
            raise RankspaceError(
                f"{name}: {label} is {there.dtype} on {there.device} but {first} is {here.dtype} on {here.device}; "
                f"bring all parameters to one dtype and device."
            )


def is_integral(tensor: Tensor) -> bool:
    """Whether a tensor's numbers can be indices; those of bools would be a mask."""
    return not (tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool)


def check_eos(name: str, eos: int | None, vocabulary: int) -> None:
    """The word that ends a sentence is one of the vocabulary, if there is one."""
    if eos is None:
        return
    remedy = "give the number of the word that ends a sentence, or None."
    if isinstance(eos, bool) or not isinstance(eos, int):
        raise RankspaceError(f"{name}: eos is {eos!r}, which is no integer; {remedy}")
    if not 0 <= eos < vocabulary:
        raise RankspaceError(f"{name}: eos is {eos} but there are {vocabulary} words; {remedy}")


def nan_error(name: str, parameters: Mapping[str, Tensor]) -> RankspaceError:
    """Names the first parameter that is NaN, for results that are."""
    for label, parameter in parameters.items():
        if bool(parameter.isnan().any()):
            place = parameter.isnan().nonzero()[0].tolist()
            return RankspaceError(f"{name}: {label}{place} is NaN; check what it was computed from.")
    return RankspaceError(f"{name}: a log-probability is NaN; give parameters of at most 0, normalised.")


def check_normalised(name: str, label: str, parameter: Tensor, num_axes: int = 1) -> None:
    """Every index of the leading axes has log-probabilities whose last `num_axes` axes sum to one."""
    rows = parameter.detach().flatten(-num_axes) if num_axes > 1 else parameter.detach()
    total = rows.logsumexp(-1).exp()
    wrong = ~((total - 1).abs() <= TOLERANCE)  # NaN is wrong
    if not bool(wrong.any()):
        return
    place = tuple(wrong.nonzero()[0].tolist())
    if bool(rows.isnan().any()):
        raise nan_error(name, {label: parameter})
    value = total[place].item() if place else total.item()
    shown = "more than the largest number" if math.isinf(value) else f"{value:.6g}"
    raise RankspaceError(
        f"{name}: {label}{list(place) if place else ''} sums to {shown}, not 1; normalise with log_softmax over the "
        f"last {'axis' if num_axes == 1 else f'{num_axes} axes'}."
    )
