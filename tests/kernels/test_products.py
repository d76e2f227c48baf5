"""Products that are exact although the matrix units are not: of halves, and of tf32 numbers and what they leave."""

import pytest
import torch

pytest.importorskip("triton", reason="needs triton")

from kernels.charts import DEVICE
from rankspace.inference.gradient_products import Factor
from rankspace.inference.links import Precision
from rankspace.kernels.halves import halves, halves_by_torch
from rankspace.models.fast_products import MIDDLE, SHORT, WORTH, product

SIZES = [(1, 1), (3, 5), (40, 1025), (9, 16), (5, 24), (1030, 7), (0, 4), (4, 0)]


def table_of(num_rows: int, num_columns: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(num_rows + num_columns)
    exponents = torch.randint(-40, 40, (num_rows, num_columns), generator=generator)
    return torch.randn(num_rows, num_columns, generator=generator).mul(torch.exp2(exponents)).to(DEVICE)


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("form", ["rows", "turned", "some columns", "every other column"])
def test_halves(sizes: tuple[int, int], form: str) -> None:
    table = table_of(*sizes)
    table = {
        "rows": table,
        "turned": table.T,
        "some columns": table[:, : sizes[1] // 2],
        "every other column": table[:, ::2],
    }[form]
    found, expected = halves(table), halves_by_torch(table)
    if DEVICE.type == "cuda":  # Triton's interpreter cuts bits off instead of rounding
        assert torch.equal(found.high, expected.high)
        assert torch.equal(found.low, expected.low)
    together = found.high.double() + found.low.double()
    bound = 2.0**-17 if DEVICE.type == "cuda" else 2.0**-14
    assert bool(((together - table.double()).abs() <= bound * table.double().abs()).all())
    assert torch.equal(found.T.low, found.low.T)


@pytest.mark.parametrize("precision", ["highest", "high", "medium"])
def test_small_products_are_plain(precision: Precision) -> None:
    a, b = table_of(5, 4).bfloat16().float(), table_of(4, 3).bfloat16().float()
    torch.testing.assert_close(Factor.of(a, precision).times(b), a @ b)
    torch.testing.assert_close(Factor.of(b, precision).T.times(a.T), b.T @ a.T)


@pytest.mark.gpu
@pytest.mark.parametrize(("rows", "middle", "columns"), [(256, 300, 257), (1000, 5000, 512), (2000, 256, 300)])
def test_large_products_are_exact_to_1e5(rows: int, middle: int, columns: int) -> None:
    generator = torch.Generator(DEVICE).manual_seed(0)
    a, b = (torch.randn(*size, generator=generator, device=DEVICE) for size in ((rows, middle), (middle, columns)))
    shared, expected = Factor.of(a, "highest"), a.double() @ b.double()
    for found in (shared.times(b), shared.times(Factor.of(b, "highest")), Factor.of(b.T, "highest").times(a.T).T):
        assert float((found - expected).norm() / expected.norm()) < 1e-5
    back = a.double().T @ expected
    assert float((shared.T.times(expected.float()) - back).norm() / back.norm()) < 1e-5
    plain = a.bfloat16().double() @ b.bfloat16().double()
    assert float((plain - expected).norm() / expected.norm()) > 1e-3


@pytest.mark.gpu
@pytest.mark.parametrize(("rows", "middle", "columns"), [(1024, 700, 1100), (1100, 9000, 1024)])
@pytest.mark.parametrize("positive", [False, True])
@pytest.mark.parametrize("turned", [False, True])
def test_three_products_of_tf32(rows: int, middle: int, columns: int, positive: bool, turned: bool) -> None:
    """At once for the short sums, by portions for the long ones. The tolerance: matrix units sum eight terms at a time
    and cut off what a float32 cannot hold, half of 2^-23 on average, of a sum that is on average half of the last one;
    twice that."""
    assert min(rows, columns) >= WORTH
    assert (middle <= SHORT) == (middle == 700)
    a, b = operands(rows, middle, columns, positive, turned)
    expected = a.double() @ b.double()
    tolerance = min(middle, MIDDLE) / 8 * 2.0**-24
    found = product(a, b, "highest")
    assert found.dtype == torch.float32
    assert relative(found, expected) < tolerance
    if positive:
        assert float(((found - expected).abs() / expected).mean()) < tolerance
    else:  # of positive numbers the sum of many hides what each was rounded by
        assert relative(product(a, b, "high"), expected) > 10 * relative(found, expected)


@pytest.mark.gpu
def test_what_tf32_leaves_of_a_number_is_kept() -> None:
    """Sums of one term each, so that operands alone are rounded: by 2^-20 for what both leave, and less besides."""
    numbers = 1 + torch.rand(WORTH, generator=torch.Generator().manual_seed(0)).to(DEVICE)
    a, b = numbers.diag(), numbers.flip(0).diag()
    expected = numbers.double() * numbers.flip(0).double()
    errors = {name: (product(a, b, name).diagonal() / expected - 1).abs() for name in ("highest", "high")}
    assert float(errors["highest"].max()) < 2.0**-18
    assert float(errors["high"].mean()) > 2.0**-13


def operands(rows: int, middle: int, columns: int, positive: bool, turned: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Random tables; the second as a table that is read the other way, if it is to be turned."""
    generator = torch.Generator(DEVICE).manual_seed(0)
    a = torch.randn(rows, middle, generator=generator, device=DEVICE)
    b = torch.randn(*((columns, middle) if turned else (middle, columns)), generator=generator, device=DEVICE)
    a, b = (a.abs(), b.abs()) if positive else (a, b)
    return a, b.T if turned else b


def relative(found: torch.Tensor, expected: torch.Tensor) -> float:
    return float((found - expected).norm() / expected.norm())
