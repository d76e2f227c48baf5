"""torch's precision of products, for a while: whatever the user has set, by either of torch's ways, is there again."""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from rankspace.inference import torch_precision
from rankspace.inference.links import product, tf32
from rankspace.inference.torch_precision import HAS_SETTINGS, multiplying_in, multiplying_on_gpu
from rankspace.training.machine import matmul_precision

with_settings = pytest.mark.skipif(not HAS_SETTINGS, reason="torch has no fp32_precision before 2.9")
GPU = torch.device("cuda")
BACKENDS: Any = torch.backends
OWNERS = (BACKENDS.cuda.matmul, BACKENDS.mkldnn.matmul, BACKENDS.cudnn, BACKENDS) if HAS_SETTINGS else ()


@pytest.fixture(autouse=True)
def as_at_first() -> Iterator[None]:
    yield
    set_nothing()


def set_nothing() -> None:
    torch.set_float32_matmul_precision("highest")
    if HAS_SETTINGS:
        for owner in OWNERS:
            owner.fp32_precision = "none"


def state() -> tuple[str, ...]:
    """What products on a GPU and on a CPU go by, and what stands above them."""
    return tuple(owner.fp32_precision for owner in OWNERS)


def of_products() -> None:
    BACKENDS.cuda.matmul.fp32_precision = "tf32"


def of_cuda() -> None:
    BACKENDS.cudnn.fp32_precision = "tf32"


def of_all() -> None:
    BACKENDS.fp32_precision = "tf32"


def of_all_exact() -> None:
    BACKENDS.fp32_precision = "ieee"


def of_all_and_products() -> None:
    BACKENDS.fp32_precision = "tf32"
    BACKENDS.cuda.matmul.fp32_precision = "tf32"
    BACKENDS.mkldnn.matmul.fp32_precision = "tf32"


def of_all_in_bfloat16() -> None:
    BACKENDS.fp32_precision = "bf16"


def older() -> None:
    torch.set_float32_matmul_precision("medium")


def nothing() -> None:
    pass


USERS = [of_products, of_cuda, of_all, of_all_exact, of_all_and_products, of_all_in_bfloat16, older, nothing]


@with_settings
@pytest.mark.parametrize("user", USERS)
def test_a_user_s_settings_are_given_back(user: Callable[[], None]) -> None:
    assert told(user, change_all) == told(user, nothing)


def told(user: Callable[[], None], change: Callable[[], None]) -> list[tuple[str, ...]]:
    """What a user has set, and what follows when what stands above is changed later."""
    set_nothing()
    user()
    change()
    found = [state()]
    for owner, later in itertools.product((BACKENDS, BACKENDS.cudnn), ("ieee", "tf32")):
        owner.fp32_precision = later
        found.append(state())
    return found


def change_all() -> None:
    for allowed in (True, False):
        with tf32(GPU, allowed):
            assert rounds_on_gpu() == allowed
    for precision in ("highest", "high", "medium"):
        with matmul_precision(precision):
            assert rounds_on_gpu() == (precision != "highest")
            with tf32(GPU, allowed=False):
                assert not rounds_on_gpu()


def rounds_on_gpu() -> bool:
    return bool(BACKENDS.cuda.matmul.fp32_precision == "tf32")


@with_settings
@pytest.mark.parametrize("precision", ["highest", "high", "medium"])
def test_products_on_a_cpu_are_never_rounded(precision: str) -> None:
    BACKENDS.mkldnn.matmul.fp32_precision = "bf16"
    with multiplying_in(precision):
        assert BACKENDS.mkldnn.matmul.fp32_precision == "ieee"
    assert BACKENDS.mkldnn.matmul.fp32_precision == "bf16"


@with_settings
def test_where_nothing_is_to_change_nothing_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_precision._Setting, "own", None)
    with multiplying_in("highest"), multiplying_on_gpu(rounded=False):
        assert state() == ("none",) * 4


@pytest.mark.parametrize("before", ["highest", "high", "medium"])
def test_with_an_older_torch(monkeypatch: pytest.MonkeyPatch, before: str) -> None:
    monkeypatch.setattr(torch_precision, "HAS_SETTINGS", False)
    torch.set_float32_matmul_precision(before)
    for allowed, expected in ((True, "high"), (False, "highest")):
        with tf32(GPU, allowed):
            assert torch.get_float32_matmul_precision() == expected
        assert torch.get_float32_matmul_precision() == before
    for precision in ("highest", "high", "medium"):
        with matmul_precision(precision):
            assert torch.get_float32_matmul_precision() == ("highest" if precision == "highest" else "high")
        assert torch.get_float32_matmul_precision() == before


@pytest.mark.parametrize("has_settings", [pytest.param(True, marks=with_settings), False])
def test_an_error_within_gives_them_back_as_well(monkeypatch: pytest.MonkeyPatch, has_settings: bool) -> None:
    monkeypatch.setattr(torch_precision, "HAS_SETTINGS", has_settings)
    with pytest.raises(ZeroDivisionError), multiplying_in("medium"):
        raise ZeroDivisionError
    assert torch.get_float32_matmul_precision() == "highest"
    assert not has_settings or state() == ("none",) * 4


def test_on_a_cpu_nothing_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rankspace.inference.links.multiplying_on_gpu", None)
    a = torch.ones(2, 2)
    assert torch.equal(product(a, a, "high"), a @ a)
