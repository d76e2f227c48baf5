"""What every test stands on: shapes checked at every call, one thread, the same examples in every run."""

import gc
from importlib.util import find_spec

import pytest
import torch

SHAPES_ARE_CHECKED = find_spec("beartype") is not None

if SHAPES_ARE_CHECKED:
    import jaxtyping

    from shape_checks import checked

    jaxtyping.jaxtyped = checked  # what the hook decorates with
    jaxtyping.install_import_hook("rankspace", "beartype.beartype")  # before any test module imports rankspace

if find_spec("hypothesis") is not None:
    import hypothesis

    hypothesis.settings.register_profile("rankspace", derandomize=True, deadline=None)
    hypothesis.settings.load_profile("rankspace")

torch.set_num_threads(1)


def pytest_report_header() -> str:
    if SHAPES_ARE_CHECKED:
        return "shapes: checked at every call (jaxtyping with beartype)"
    return "shapes: NOT CHECKED, because beartype is not installed"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if torch.cuda.is_available():
        return
    for item in items:
        if "gpu" in item.keywords:
            item.add_marker(pytest.mark.skip(reason="needs a GPU: torch sees no CUDA device"))


def pytest_collection_finish() -> None:
    gc.freeze()  # thousands of tests and all modules are there to the end: no garbage is looked for among them
