"""`ResidualNetwork` by kernels: products with what lies between them in one pass each, and an explicit way back.

h_0 = W x + b        u_i = relu(A_i h_{i-1} + a_i)        z_i = B_i u_i + b_i        h_i = h_{i-1} + relu(z_i)
"""

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from rankspace.inference.differentiation import first_derivatives_only, tell_of_lacks, without_autocast
from rankspace.inference.gradient_products import Factor, is_halved
from rankspace.inference.links import Precision, operand, tf32


def residual_network(
    network: nn.Module, rows: Float[Tensor, "row size"], precision: Precision
) -> Float[Tensor, "row size"]:
    """What the network gives, in the dtype of operands of the precision: bfloat16 in "medium".

    Derivatives come from products in bfloat16 unless the precision is "highest".
    """
    weights = network.parameters()  # matrix and bias of each linear map in turn
    apply: Callable[..., Tensor] = _ResidualNetwork.apply
    return apply(rows, precision, *weights)


def chosen(choice: Any, rows: Float[Tensor, "row size"], precision: Precision) -> Float[Tensor, "row"]:
    """Probabilities of a `Choice` among rows."""
    hidden = residual_network(choice.network, rows, precision).float()
    logits: Tensor = hidden @ choice.start[0]
    return logits.softmax(0)


@tell_of_lacks
class _ResidualNetwork(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, precision: Precision, *weights: Tensor) -> Tensor:
        from rankspace.kernels.rectifying import plus_rectified

        maps = _operands(weights, precision)
        with without_autocast(rows.device), tf32(rows.device, allowed=precision == "high"):
            x = operand(rows, precision)
            h = torch.addmm(maps[1], x, maps[0].T)
            kept = [x, h]
            for i in range(2, len(maps), 4):
                u = torch.addmm(maps[i + 1], h, maps[i].T).relu_()
                z = torch.addmm(maps[i + 3], u, maps[i + 2].T)
                h = plus_rectified(h, z)
                kept += [u, z, h]
        ctx.save_for_backward(*kept[:-1], *maps)
        ctx.num_kept, ctx.precision = len(kept) - 1, precision
        return h

    @staticmethod
    @first_derivatives_only
    def backward(ctx: Any, slopes: Tensor) -> tuple[Tensor | None, ...]:
        return _gradients(ctx, slopes)


def _gradients(ctx: Any, slopes: Tensor) -> tuple[Tensor | None, ...]:
    from rankspace.kernels.rectifying import new_sums, passed_back

    precision: Precision = "highest" if ctx.precision == "highest" else "medium"
    dtype = torch.float32 if precision == "highest" else torch.bfloat16
    kept, maps = ctx.saved_tensors[: ctx.num_kept], ctx.saved_tensors[ctx.num_kept :]
    of_maps: list[Tensor] = []
    total, added, halved = slopes.contiguous(), None, is_halved(slopes, precision)
    sums = new_sums(total, len(maps) // 2)  # of each bias
    for i in range(len(maps) - 4, 0, -4):
        layer = 1 + 3 * (i - 2) // 4
        h, u, z = kept[layer : layer + 3]
        outer = passed_back(total, added, z, sums[i // 2 + 1], dtype, halved)
        of_outer = _factor(outer, precision)
        before = of_outer.rounded_times(operand(maps[i + 2], precision))
        inner = passed_back(before, None, u, sums[i // 2], dtype, halved)
        of_inner = _factor(inner, precision)
        of_second = of_outer.T.times(operand(u, precision))
        of_maps = [of_inner.T.times(operand(h, precision)), of_second, *of_maps]
        total, added = outer.total, of_inner.rounded_times(operand(maps[i], precision))
    first = _factor(passed_back(total, added, None, sums[0], dtype, halved), precision)
    of_rows = first.times(operand(maps[0], precision))
    of_maps = [first.T.times(operand(kept[0], precision)), *of_maps]
    return of_rows, None, *(each for pair in zip(of_maps, sums.sum(1), strict=True) for each in pair)


def _operands(weights: tuple[Tensor, ...], precision: Precision) -> list[Tensor]:
    """All weights as operands: rounded together, in two launches, not one by one."""
    if precision != "medium":
        return list(weights)
    rounded = torch.cat([weight.flatten() for weight in weights]).bfloat16()
    parts = rounded.split([weight.numel() for weight in weights])
    return [part.view_as(weight) for part, weight in zip(parts, weights, strict=True)]


def _factor(passed: Any, precision: Precision) -> Factor:
    """What passed a rectifier, for products."""
    if passed.low is None:
        return Factor.of(passed.passed, precision)
    from rankspace.kernels.halves import Halves

    return Factor(precision, None, Halves(passed.passed, passed.low))
