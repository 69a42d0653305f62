"""The dataset of a stage as JSON lines, decoded with the code of its run."""

from __future__ import annotations

import base64
import json
import math
import sys
from collections.abc import Iterable, Iterator
from contextlib import redirect_stdout
from functools import cache
from itertools import chain
from typing import TYPE_CHECKING, Any

from treadle.orchestrator.plan.plan import Child, DataRef, Plan, Segment
from treadle.orchestrator.run_store.run_files import LoopResult, Manifest, Submission
from treadle.primitives.errors import MissingError, UsageError

from .attempt_logs import nodes_of

if TYPE_CHECKING:
    from treadle.orchestrator.run_store.run_files import RunFiles
    from treadle.primitives.blocks import Blocks
    from treadle.primitives.encoding.references import Slice

    from ..common.environment import Environment


class Incomplete(UsageError):
    """The stage is not finished yet."""


def records(env: Environment, run: str, stage: str) -> Iterator[Iterator[str]]:
    """Each record as the pieces of a line of JSON; a large record has several. Raises UsageError for a stage without
    data, Incomplete."""
    from treadle.executors.bundle.unpack import prepare
    from treadle.primitives.blocks import Blocks
    from treadle.primitives.stores.shared_memory import HostFolder

    files = env.files(run)
    submission = files.load(Submission, "spec")
    plan = files.find(Plan, "plan")
    if plan is None:
        raise Incomplete(f"run {run} has not begun yet")
    slices = _slices(files, plan, _reference(plan, stage), stage)
    prepare(files.store, run, submission.bundle, files.key, submission.shared)
    blocks = Blocks(files.store, run, HostFolder(env.home.host_root))
    try:
        for one in slices:
            yield from _lines(blocks, one)
    except MissingError as error:
        hint = "Shared memory is given back once a run has succeeded: give the stage `durability: segment`."
        raise UsageError(f"the data of {stage} is not kept: {error.message}", hint) from error


def _reference(plan: Plan, stage: str) -> DataRef:
    reference = plan.datasets.get(stage)
    if reference is not None:
        return reference
    known = f"Stages with data: {', '.join(sorted(plan.datasets)) or 'none'}."
    if not nodes_of(plan, stage):
        raise UsageError(f"the workflow has no stage {stage}", known)
    raise UsageError(f"{stage} leaves no data of its own: {_reason(plan, stage)}", known)


def _reason(plan: Plan, stage: str) -> str:
    match next((node for node in plan.graph.nodes if stage in (*node.stages, node.id)), None):
        case Segment(id=node):
            return f"it runs within {node}"
        case Child():
            return "it is a run of its own"
    return "of a loop the last state is kept, for the stages that read it"


def _slices(files: RunFiles, plan: Plan, reference: DataRef, stage: str) -> list[Slice]:
    from treadle.orchestrator.dispatcher.tasks.dataset_scope import Scope, loop_chains, partition_inputs

    @cache
    def manifest(segment: str) -> Manifest:
        found = files.manifest(segment)
        if found is None:
            raise Incomplete(f"{stage} is not complete")
        return found

    def loop(name: str) -> LoopResult:
        found = files.find(LoopResult, f"segments/{name}/result")
        if found is None:
            raise Incomplete(f"{stage} is not complete")
        return found

    data = Scope(loop_chains(plan.graph)).data(reference, loop)
    outcomes = [outcome for segment in data.segments for outcome in manifest(segment).outcomes]
    uri = plan.graph.outputs.get(stage)
    if uri and outcomes and all(outcome.block is None for outcome in outcomes):
        raise UsageError(f"{stage} keeps no data in the run", f"It was written to {uri}")
    inputs = partition_inputs(data, manifest)
    return [one for partition in inputs for row in partition.inputs for one in row]


def _lines(blocks: Blocks, one: Slice) -> Iterator[Iterator[str]]:
    with redirect_stdout(sys.stderr):  # modules of the run may print when imported
        value = blocks.get(one)
    if one.kind == "table":
        for batch in value.to_batches(max_chunksize=1024):
            yield from map(_pieces, batch.to_pylist())
    else:
        yield from map(_pieces, value)


_encode = json.JSONEncoder(ensure_ascii=False).encode


LARGE = 1000
"""Lists and arrays with more entries are written in pieces."""


def _pieces(record: Any) -> Iterator[str]:
    """The JSON of a record. Long lists and arrays are written in pieces, so that the reader need not wait."""
    if isinstance(record, list | tuple) and any(map(_is_long, (record, *record[:LARGE]))):
        yield from _bracketed(map(_pieces, record))
    elif isinstance(record, dict) and any(map(_is_long, record.values())):
        named = ((_line({key: 0})[1:-2], value) for key, value in record.items())
        yield from _bracketed((chain([name], _pieces(value)) for name, value in named), "{}")
    elif _is_long(record):
        yield from _bracketed(map(_pieces, record) if record.ndim > 1 else _numbers(record))
    else:
        yield _line(record)


def _is_long(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return len(value) > LARGE
    return hasattr(value, "tolist") and getattr(value, "size", 0) > LARGE  # a NumPy array


def _bracketed(items: Iterable[Iterator[str]], brackets: str = "[]") -> Iterator[str]:
    yield brackets[0]
    for index, item in enumerate(items):
        if index:
            yield ", "
        yield from item
    yield brackets[1]


def _numbers(array: Any) -> Iterator[Iterator[str]]:
    """The entries of a one-dimensional array, in pieces."""
    for start in range(0, len(array), LARGE):
        yield iter([_line(array[start : start + LARGE])[1:-1]])


def _line(record: Any) -> str:
    return repr(record) if type(record) is int else _encode(_jsonable(record))


def _jsonable(value: Any) -> Any:
    """Convert values that JSON cannot represent to text: NaN, dates (ISO 8601), bytes (base64), other objects
    (`repr`)."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, dict):
        return {key if isinstance(key, str) else str(_jsonable(key)): _jsonable(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_jsonable(item) for item in value]
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if hasattr(value, "isoformat"):
        return value.isoformat()
    if hasattr(value, "tolist"):
        return value.tolist() if _is_finite(value) else _jsonable(value.tolist())
    return repr(value)


def _is_finite(value: Any) -> bool:
    """Whether it is an array of numbers that JSON can represent."""
    import numpy as np

    return isinstance(value, np.ndarray) and value.dtype.kind in "biuf" and bool(np.isfinite(value).all())
