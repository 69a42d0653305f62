"""Compares a run with the result of the reference interpreter."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from treadle.dsl.reference import ReferenceFailure, ReferenceResult, run_reference
from treadle.primitives.errors import FailureClass

from .engine import EngineFailure, EngineResult
from .strategies import Case


def expected(case: Case, base: Path, run: str) -> ReferenceResult | ReferenceFailure:
    """The reference result for the case, whose files are below `base`."""
    try:
        return run_reference(case.spec(), case.inputs, base=base, run_id=run)
    except ReferenceFailure as failure:
        return failure


def differences(
    wanted: ReferenceResult | ReferenceFailure, found: EngineResult | EngineFailure, base: Path, run: str
) -> list[str]:
    """Descriptions of all differences between a run and its reference; empty if there are none."""
    if isinstance(wanted, ReferenceFailure):
        return list(_failure(wanted, found))
    if isinstance(found, EngineFailure):
        return [f"the run failed, and should not: {found}"]
    return [
        *_datasets(wanted, found),
        *_metrics(wanted, found),
        *_outputs(wanted, base, run),
        *_failed_items(wanted, base, run),
        *([] if _same_names(wanted.outputs, found.outputs) else [f"outputs: {found.outputs}, not {wanted.outputs}"]),
        *_skipped(wanted, found),
    ]


def _failure(wanted: ReferenceFailure, found: EngineResult | EngineFailure) -> Iterator[str]:
    if isinstance(found, EngineResult):
        yield f"the run succeeded, and should fail: {wanted}"
    elif found.problem.failure != FailureClass.USER_ERROR:
        yield f"the run failed with {found}, and should with a user error: {wanted}"


def _datasets(wanted: ReferenceResult, found: EngineResult) -> Iterator[str]:
    for stage, partitions in found.datasets.items():
        if stage not in wanted.datasets:
            yield f"{stage}: a dataset that should not be"
            continue
        should = [(one.kind, one.value) for one in wanted.datasets[stage]]
        if len(should) != len(partitions):
            yield f"{stage}: {len(partitions)} partitions, not {len(should)}: {partitions}, not {should}"
            continue
        for index, (this, that) in enumerate(zip(partitions, should, strict=True)):
            if this[0] != that[0] or not alike(this[1], that[1]):
                yield f"{stage}[{index}]: {this}, not {that}"


def _metrics(wanted: ReferenceResult, found: EngineResult) -> Iterator[str]:
    for stage, metrics in wanted.metrics.items():
        if "[" in stage or stage in wanted.skipped:
            continue
        if not _same_names(found.metrics.get(stage, {}), metrics):
            yield f"metrics of {stage}: {found.metrics.get(stage, {})}, not {metrics}"


def _same_names(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Compare values by name; the order of names is ignored."""
    return one.keys() == other.keys() and all(alike(one[name], other[name]) for name in one)


def _skipped(wanted: ReferenceResult, found: EngineResult) -> Iterator[str]:
    should = {stage for stage in wanted.skipped if "[" not in stage}
    if found.skipped != should:
        yield f"skipped: {sorted(found.skipped)}, not {sorted(should)}"


def _outputs(wanted: ReferenceResult, base: Path, run: str) -> Iterator[str]:
    for stage, parts in wanted.written_parts.items():
        folder = base / "out" / run / stage
        manifest = json.loads((folder / "_manifest.json").read_bytes())
        names = [part["name"] for part in manifest["parts"]]
        there = {path.name for path in folder.iterdir() if not path.name.startswith(("_", "."))}
        if set(names) != there:
            yield f"output of {stage}: the manifest lists {names}, there are {sorted(there)}"
        contents = [(folder / name).read_bytes() for name in names]
        if contents != parts:
            yield f"output of {stage}: {contents}, not {parts}"


def _failed_items(wanted: ReferenceResult, base: Path, run: str) -> Iterator[str]:
    """Compare the failed items of stages that write them to files."""
    for manifest_path in sorted((base / "failed" / run).glob("*/_manifest.json")):
        manifest = json.loads(manifest_path.read_bytes())
        files = [manifest_path.parent / part["name"] for part in manifest["parts"]]
        listed = [json.loads(line) for file in files for line in file.read_bytes().splitlines()]
        should = wanted.failed_items[manifest["stage"]]
        if [_essence(item) for item in listed] != [_essence(item) for item in should]:
            yield f"failed items of {manifest['stage']}: {listed}, not {should}"


def _essence(item: Mapping[str, Any]) -> list[Any]:
    return [
        item[name] for name in ("stage", "partition", "position", "uri", "line", "row", "fromByte", "error", "message")
    ]


# -- equal values --------------------------------------------------------------------------------------------------


def alike(one: Any, other: Any) -> bool:
    """Equal in type and value at any depth; NaN equals NaN, 0.0 differs from -0.0."""
    if type(one) is not type(other):
        return False
    if isinstance(one, float):
        return _floats(one, other)
    if isinstance(one, Mapping):
        return list(one) == list(other) and all(alike(one[name], other[name]) for name in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(alike, one, other))
    if hasattr(one, "to_pylist"):
        return bool(one.schema == other.schema) and alike(one.to_pylist(), other.to_pylist())
    if hasattr(one, "dtype"):
        return one.dtype == other.dtype and one.shape == other.shape and alike(one.tolist(), other.tolist())
    return bool(one == other)


def _floats(one: float, other: float) -> bool:
    if math.isnan(one) or math.isnan(other):
        return math.isnan(one) and math.isnan(other)
    return one == other and math.copysign(1, one) == math.copysign(1, other)
