"""Training steps of a GPU, at their full size, where there is none.

    python benchmarks/kernels/dry_run.py [--rows NAME ...] [--precision P] [--tables] [--compile 90] [--json]

Tensors have a shape and no numbers (torch's device "meta", which passes for a GPU here). What torch computes has a
shape in turn; kernels are not run but looked at: where their tensors are, and whether a GPU takes their grid. A step
that reads a number, mixes tensors of the host with those of the device or copies any of them there, which no CUDA graph
could hold, ends in an error, and so do products of two dtypes. The steps are those of `rankspace bench gpu`, and with
--tables those of every row of `rankspace experiment` whose model has kernels, with 16 sentences of 40 words; each is
also run as training records it.

Printed are the launches of kernels, how many variants of them there are to compile, and the most memory that tensors
hold at once, beside what a lack of memory would be told with; on an H200 0.11 to 0.16 GB of torch's libraries come on
top. --compile compiles every variant for GPUs of a compute capability (80, 90, 120), which the Triton at hand does
without one, and tells the most shared memory that any of them has.
"""

import argparse
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple
from unittest.mock import patch

import torch
import triton
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime.jit import JITFunction

from rankspace import devices
from rankspace.bench.gpu_inputs import Sentences
from rankspace.bench.gpu_rows import BATCH, ROWS, Row
from rankspace.bench.gpu_timing import training_step
from rankspace.bench.profiling import PeakBytes
from rankspace.distributions.memory import Work
from rankspace.experiments import load_table, table_names
from rankspace.inference import backends, gradient_products
from rankspace.models import MODELS, Model, create
from rankspace.models.memory import bytes_needed, bytes_of_weights
from rankspace.training.captured import Inputs, add_gradients
from rankspace.training.watch import Watch

NOWHERE = torch.device("meta")
SHARED = {80: 166_912, 86: 101_376, 89: 101_376, 90: 232_448, 100: 232_448, 120: 101_376}  # bytes of a program
WAITING = ("_local_scalar_dense", "nonzero", "masked_select", "_unique2", "unique_dim", "equal")
COPIES = ("copy_", "_to_copy")
PRODUCTS = (
    "mm",
    "bmm",
    "addmm",
    "addmm_",
    "baddbmm",
    "baddbmm_",
)  # of two tables of one dtype, the last they are given
GRID = (2**31 - 1, 2**16 - 1, 2**16 - 1)  # programs, at most
TYPES = {
    torch.float64: "fp64",
    torch.float32: "fp32",
    torch.bfloat16: "bf16",
    torch.int64: "i64",
    torch.int32: "i32",
    torch.uint8: "u8",
    torch.bool: "i1",
}
ALIGNED = [["tt.divisibility", 16]]


class DryRunError(Exception):
    """What could not run on a GPU, or not in a CUDA graph."""


class Variant(NamedTuple):
    """What a kernel is compiled for: the types of its arguments, those that are constants, what 16 divides."""

    kernel: JITFunction
    signature: tuple[tuple[str, str], ...]
    constants: tuple[tuple[int, Any], ...]
    aligned: tuple[int, ...]
    options: tuple[tuple[str, Any], ...]

    @classmethod
    def of(cls, kernel: JITFunction, given: Mapping[str, Any], options: Mapping[str, Any]) -> "Variant":
        signature, constants, aligned = {}, {}, []
        for place, parameter in enumerate(kernel.params):
            value = given.get(parameter.name, parameter.default)
            kind = _type_of(value)
            is_special = not parameter.do_not_specialize
            if parameter.is_constexpr or value is None or (is_special and isinstance(value, int) and value == 1):
                kind, constants[place] = "constexpr", value
            elif is_special and _is_aligned(value):
                aligned.append(place)
            signature[parameter.name] = kind
        return cls(kernel, *(tuple(each.items()) for each in (signature, constants)), tuple(aligned), _pairs(options))

    def shared_memory(self, capability: int) -> int:
        """Compiles it; bytes that a program has of the memory of a multiprocessor."""
        source = ASTSource(
            fn=self.kernel,
            signature=dict(self.signature),
            constexprs={(place,): value for place, value in self.constants},
            attrs={(place,): ALIGNED for place in self.aligned},
        )
        compiled = triton.compile(source, target=GPUTarget("cuda", capability, 32), options=dict(self.options))
        found: int = compiled.metadata.shared
        if found > SHARED[capability]:
            raise DryRunError(f"{self.kernel.__name__} takes {found} bytes of shared memory, of {SHARED[capability]}")
        return found


def _pairs(named: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    return tuple(sorted(named.items()))


def _type_of(value: Any) -> str:
    if isinstance(value, Tensor):
        return "*" + TYPES[value.dtype]
    if isinstance(value, int):
        return "i32" if -(2**31) <= value < 2**31 else "i64"
    return "fp32"


def _is_aligned(value: Any) -> bool:
    if isinstance(value, Tensor):
        return value.storage_offset() * value.element_size() % 16 == 0
    return isinstance(value, int) and value % 16 == 0


class Launches:
    """Of kernels, which are not run."""

    def __init__(self) -> None:
        self.count = 0
        self.variants: dict[Variant, None] = {}  # in the order in which they came

    def run(self, kernel: JITFunction, *values: Any, grid: Any, warmup: bool = False, **named: Any) -> None:
        names = [parameter.name for parameter in kernel.params]
        given = {**dict(zip(names, values, strict=False)), **named}
        for name in names:
            if isinstance(given.get(name), Tensor) and given[name].device != NOWHERE:
                raise DryRunError(f"{kernel.__name__}: {name} is on {given[name].device}")
        sizes = tuple(grid(given) if callable(grid) else grid)
        if not all(0 < size <= most for size, most in zip(sizes, GRID, strict=False)):
            raise DryRunError(f"{kernel.__name__}: no GPU takes a grid of {sizes}")
        self.count += 1
        options = {name: value for name, value in named.items() if name not in names}
        self.variants[Variant.of(kernel, given, options)] = None


@contextmanager
def recording() -> Iterator[None]:
    """Within, as on a stream that is recorded into a graph: nothing may wait, nor read the memory of the host."""
    with _Calls(), _Operations():
        yield


class _Calls(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        by_list = func is Tensor.__getitem__ and any(isinstance(each, list) for each in (args[1], *_parts(args[1])))
        if func in (torch.tensor, torch.as_tensor, Tensor.new_tensor) or by_list:
            raise DryRunError(f"{func.__name__} copies numbers of the host")
        return func(*args, **(kwargs or {}))


def _parts(index: Any) -> tuple[Any, ...]:
    return index if isinstance(index, tuple) else ()


class _Operations(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        if name in WAITING:
            raise DryRunError(f"{name} waits for the device")
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        for leaf in tensors:
            if leaf.device != NOWHERE and (leaf.dim() or name in COPIES):  # a single number may be an argument
                raise DryRunError(f"{name} has a tensor of the host, {tuple(leaf.shape)}")
        dtypes = [each.dtype for each in args if isinstance(each, Tensor)][-2:]
        if name in PRODUCTS and len(set(dtypes)) > 1:
            raise DryRunError(f"{name} of {' and '.join(map(str, dtypes))}")
        return func(*args, **(kwargs or {}))


class _Stream:
    """Nothing is there to wait for."""

    device = NOWHERE

    def __init__(self, *_: Any) -> None:
        pass

    def wait_stream(self, other: "_Stream") -> None:
        pass


class _Properties(NamedTuple):
    shared_memory_per_block_optin: int


@contextmanager
def dry(capability: int) -> Iterator[Launches]:
    """Within, the device "meta" passes for a GPU."""
    if os.environ.get(backends.INTERPRETER) == "1":
        raise DryRunError(f"{backends.INTERPRETER} is set: kernels are for the interpreter, and for no GPU")
    launches = Launches()

    def run(kernel: JITFunction, *values: Any, **named: Any) -> None:
        launches.run(kernel, *values, **named)

    def nothing(*_: Any, **__: Any) -> Any:
        return nullcontext()

    def add_product(total: Tensor, a: Tensor, b: Tensor) -> None:
        """In place of one whose shape torch 2.11 cannot tell."""
        if total.shape != (len(a), b.shape[1]) or a.shape[1] != len(b):
            raise DryRunError(f"{tuple(total.shape)} is not the shape of {tuple(a.shape)} times {tuple(b.shape)}")
        if (total.dtype, a.dtype, b.dtype) != (torch.float32, torch.bfloat16, torch.bfloat16):
            raise DryRunError(f"a product of {a.dtype} and {b.dtype} is added to {total.dtype}")

    of_cuda = {
        "Stream": _Stream,
        "current_stream": _Stream,
        "stream": nothing,
        "device": nothing,
        "is_current_stream_capturing": lambda: True,
        "get_device_properties": lambda _: _Properties(SHARED[capability]),
    }
    with ExitStack() as stack:
        stack.enter_context(patch.object(devices, "GPUS", {*devices.GPUS, NOWHERE.type}))
        stack.enter_context(patch.object(backends, "_unusable", lambda _: ""))
        stack.enter_context(patch.multiple(torch.cuda, **of_cuda))
        stack.enter_context(patch.object(torch, "autocast", nothing))  # which does not know this device
        stack.enter_context(patch.object(gradient_products, "add_product", add_product))
        stack.enter_context(patch.object(JITFunction, "run", run))
        yield launches


@dataclass(frozen=True)
class Outcome:
    """Of a step."""

    row: str
    precision: str
    launches: int
    variants: int
    gigabytes: float
    said_gb: float  # what a lack of memory would be told with
    limit_gb: float | None
    shared_memory: int | None  # bytes, if it was compiled


def looked_at(row: Row, capability: int, compiles: bool) -> Outcome | None:
    """A step, forward and backward, in training; nothing of a model without kernels."""
    with dry(capability) as launches, PeakBytes() as memory:
        with NOWHERE:
            model = create(row.model, vocabulary=row.vocabulary, **row.settings).train()
        model.options["precision"] = row.precision
        if not model.can_be_captured(NOWHERE):
            return None
        step = training_step(model, Sentences.of(row, NOWHERE))
        step()  # finds what depends on the shapes alone, which later steps have
        launches.count, memory.peak = 0, memory.now
        with recording():
            step()
        count, peak = launches.count, memory.peak
        said = bytes_said(model, row)
        train(model, row)
    shared = [each.shared_memory(capability) for each in launches.variants] if compiles else None
    return Outcome(
        row.name,
        row.precision,
        count,
        len(launches.variants),
        peak / 1e9,
        said / 1e9,
        row.limit_gb,
        None if shared is None else max(shared, default=0),
    )


def bytes_said(model: Model, row: Row) -> int:
    """What a step is said to take. It has no optimiser, which would remember two numbers for each weight."""
    padded = Work((max(row.lengths),) * len(row.lengths), gradients=True, kernels=True)
    return (bytes_needed(model, padded) or 0) - 2 * bytes_of_weights(model, learns=False)


def train(model: Model, row: Row) -> None:
    """What training records into graphs: batches that begin a step and others, with losses and clipping."""
    inputs = Inputs.empty((len(row.lengths), max(row.lengths)), NOWHERE)
    watch, seed, held = Watch(NOWHERE), torch.zeros((), dtype=torch.int64, device=NOWHERE), inputs.scale.clone()
    for weight in model.parameters():
        weight.grad = torch.zeros_like(weight)
    with recording():
        for begins in (True, False):
            seed.random_()
            add_gradients(model, inputs, seed, watch, held, begins)
        watch.step(nn.utils.clip_grad_norm_(model.parameters(), 1.0), held == 0)


def rows_of_tables() -> Iterator[Row]:
    """Rows of experiments, each model of some settings and precision once."""
    seen = set()
    for table in table_names():
        for row in load_table(table).rows:
            found = row.config.model
            asked = row.config.run.precision
            precision = MODELS[found.name].PRECISION if asked == "auto" else asked
            key = (found.name, _pairs(found.settings), precision)
            if key not in seen:
                seen.add(key)
                yield Row(f"{table}/{row.name}", found.name, found.settings, "", BATCH, precision)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", nargs="+", default=[row.name for row in ROWS], choices=[row.name for row in ROWS])
    parser.add_argument("--precision", choices=["highest", "high", "medium"], help="of all rows, in place of their own")
    parser.add_argument("--tables", action="store_true", help="rows of experiments instead")
    parser.add_argument("--compile", type=int, choices=sorted(SHARED), metavar="CAPABILITY")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    rows: Sequence[Row] = list(rows_of_tables()) if given.tables else [row for row in ROWS if row.name in given.rows]
    found = []
    for row in rows:
        chosen = replace(row, precision=given.precision) if given.precision else row
        try:
            outcome = looked_at(chosen, given.compile or 90, bool(given.compile))
        except DryRunError as error:
            sys.exit(f"{chosen.name}, {chosen.precision}: {error}")
        if outcome is None:
            continue
        found.append(outcome)
        if not given.json:
            print(line(outcome), flush=True)
    if given.json:
        print(json.dumps([asdict(each) for each in found], indent=1))


def line(of: Outcome) -> str:
    limit = "" if of.limit_gb is None else f" of {of.limit_gb:g}"
    shared = "" if of.shared_memory is None else f"   {of.shared_memory:7,} bytes of shared memory"
    launches = f"{of.launches:5} launches of {of.variants:3} variants"
    return f"{of.row:28} {of.precision:8} {launches}   {of.gigabytes:5.2f} GB{limit}, said {of.said_gb:.2f}{shared}"


if __name__ == "__main__":
    main()
