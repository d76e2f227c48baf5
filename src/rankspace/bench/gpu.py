"""`rankspace bench gpu`: the training steps, parses and training runs that the project promises to be fast, in one run.

Every row is compared with float64 before it is timed, and a row that is wrong has no time. Rates of matrix products and
of a copy, measured first, say what the device could do.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch

from rankspace.bench import gpu_parse, gpu_step, gpu_training
from rankspace.bench.device_clock import Rate, product_rate, rates, release
from rankspace.bench.gpu_rows import PARSE, ROWS, SWEEPS, TRAINING, Row, small, swept
from rankspace.bench.gpu_work import step_bytes, step_flops
from rankspace.bench.measurement import circumstances
from rankspace.inference.links import Precision


@dataclass(frozen=True)
class Job:
    """What is measured. `precision`, if given, is that of all rows; `quick`: sizes that say nothing of speed."""

    names: Sequence[str]
    precision: Precision | None = None
    sweep: bool = False
    quick: bool = False

    @property
    def rows(self) -> list[Row]:
        return [self._fitted(row) for row in ROWS if row.name in self.names]

    @property
    def sweeps(self) -> dict[str, list[tuple[int, Row]]]:
        """For each size that is varied, its values and their rows."""
        if not self.sweep:
            return {}
        return {
            varied: [(value, self._fitted(swept(varied, value))) for value in values]
            for varied, values in SWEEPS.items()
        }

    @property
    def parses(self) -> bool:
        return PARSE in self.names

    @property
    def training(self) -> dict[str, Row]:
        return {name: self._fitted(row) for name, row in TRAINING.items() if name in self.names}

    @property
    def num_runs(self) -> int:
        """How often `run` calls `tick`."""
        steps = len(self.rows) + sum(len(points) for points in self.sweeps.values())
        return 1 + steps + self.parses + len(self.training)

    def _fitted(self, row: Row) -> Row:
        row = row if self.precision is None else replace(row, precision=self.precision)
        return small(row) if self.quick else row


Record = dict[str, Any]


def run(job: Job, device: torch.device, tick: Callable[[Record], None] = lambda _: None) -> Record:
    """The record, a JSON object; `tick` is given what there is of it after each measurement."""
    found = rates(device, 64, 3) if job.quick else rates(device)
    release(device)
    record = {"benchmark": "gpu", **circumstances(device), "quick": job.quick, "rates": found}
    record |= {"rows": [], "sweeps": {}, "training": []}
    tick(record)
    rounds = 3 if job.quick else 20

    def measure(row: Row, into: list[Record], **more: Any) -> None:
        into.append({**more, **step_record(row, gpu_step.measure(row, device, rounds), found)})
        tick(record)

    for row in job.rows:
        measure(row, record["rows"])
    for varied, points in job.sweeps.items():
        record["sweeps"][varied] = []
        for value, row in points:
            measure(row, record["sweeps"][varied], value=value)
    if job.parses:
        record["parse"] = gpu_parse.measure(job.quick, device, job.precision or "high")
        tick(record)
    for name, row in job.training.items():
        record["training"].append({"name": name, **gpu_training.measure(row, job.quick, device)})
        tick(record)
    return record


def is_right(record: Record) -> bool:
    """Whether nothing of what was measured was found wrong."""
    swept = [point for points in record["sweeps"].values() for point in points]
    parsed = [record["parse"]] if "parse" in record else []
    return not any(found["wrong"] for found in [*record["rows"], *swept, *parsed, *record["training"]])


def step_record(row: Row, found: dict[str, Any], device_rates: dict[Rate, float]) -> dict[str, Any]:
    """A row with what was measured of it, beside its limits, its peer and the rates of products in its precision and of
    a copy."""
    flops, milliseconds = step_flops(row), found.get("milliseconds")
    result = {**asdict(row), "settings": dict(row.settings), "batch": row.batch, "gflop": flops / 1e9, **found}
    if milliseconds is None:
        return result
    result["gemm_fraction"] = flops / 1e9 / milliseconds / product_rate(row.precision, device_rates)
    result["copy_fraction"] = 1e3 * step_bytes(row) / milliseconds / 1e12 / device_rates["copy"]
    result["faster"] = row.peer.milliseconds / milliseconds if row.peer else None
    result["smaller"] = row.peer.gigabytes / found["peak_gb"] if row.peer and found["peak_gb"] else None
    result["reached"] = _reached(row, found)
    return result


def _reached(row: Row, found: dict[str, Any]) -> bool:
    """Whether time and memory are within their limits."""
    pairs = (found["milliseconds"], row.limit_ms), (found["peak_gb"], row.limit_gb)
    return all(value <= limit for value, limit in pairs if value is not None and limit is not None)
