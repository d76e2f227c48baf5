"""Products of few rows with a table that no cache holds, by kernels where these are sooner."""

import torch
from jaxtyping import Float
from torch import Tensor

from rankspace.inference.links import Precision
from rankspace.models.fast_products import product, product_into


def meet(rows: Tensor, table: Float[Tensor, "middle column"], precision: Precision) -> Float[Tensor, "row column"]:
    """rows @ table in float32."""
    from rankspace.kernels.chain_tall import add_up, product_in_shares

    if not is_tall(rows, table):
        return product(rows, table, precision)
    parts = product_in_shares(rows, table)
    if len(parts) > 1:
        add_up(parts, parts[0])
    return parts[0]


def meet_into(out: Float[Tensor, "row column"], rows: Tensor, table: Tensor, precision: Precision) -> None:
    """rows @ table, rounded to the dtype of operands."""
    from rankspace.kernels.chain_tall import add_up, product_in_shares

    if is_tall(rows, table):
        add_up(product_in_shares(rows, table), out)
    else:
        product_into(out, rows, table, precision)


def is_tall(rows: Tensor, table: Tensor) -> bool:
    """Whether reading the table is what a product takes, and is what the kernels are for."""
    from rankspace.kernels.chain_tall import ROWS

    return table.dtype == torch.bfloat16 and len(rows) <= ROWS
