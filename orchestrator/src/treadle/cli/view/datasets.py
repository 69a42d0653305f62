"""The dataset of a stage as JSON lines, decoded with the code of its run."""

from __future__ import annotations

import base64
import json
import math
import sys
from collections.abc import Iterable, Iterator
from contextlib import redirect_stdout
from itertools import chain
from typing import TYPE_CHECKING, Any

from treadle.client.object_states import read_object
from treadle.client.stage_checkpoints import read_checkpoint
from treadle.client.stage_data import StageData
from treadle.orchestrator.run_store.run_files import Submission

if TYPE_CHECKING:
    from treadle.client.environment import ClientEnvironment
    from treadle.orchestrator.run_store.run_files import RunFiles

_END = object()


def records(env: ClientEnvironment, run: str, stage: str) -> Iterator[Iterator[str]]:
    """Each record as the pieces of a line of JSON; a large record has several. Raises UsageError for a stage without
    data, Incomplete."""
    data = StageData(env, run, stage)
    _prepare(env.files(run))
    for part in _quietly(data.parts()):
        yield from map(_pieces, data.rows(part))


def states(env: ClientEnvironment, run: str, stage: str, number: int | None) -> tuple[int, Iterator[Iterator[str]]]:
    """The number of a checkpoint, and the states of the gang's members like `records`. Raises UsageError."""
    files = env.files(run)
    _prepare(files)
    with redirect_stdout(sys.stderr):  # decoding imports modules of the run, which may print
        checkpoint = read_checkpoint(files, stage, number)
    return checkpoint.number, map(_pieces, checkpoint.states)


def object_value(env: ClientEnvironment, run: str, name: str) -> tuple[str, Iterator[str]]:
    """The stage after which the object is read, and its value like a record; its text if its class has no value."""
    _prepare(env.files(run))
    with redirect_stdout(sys.stderr):
        found = read_object(env, run, name)
        value = found.value._value() if hasattr(found.value, "_value") else found.value
    return found.after, _pieces(value)


def _prepare(files: RunFiles) -> None:
    """Have the modules of the run imported from its bundle."""
    from treadle.executors.bundle.unpack import prepare

    submission = files.load(Submission, "spec")
    prepare(files.store, files.run, submission.bundle, files.key, submission.shared)


def _quietly(parts: Iterator[Any]) -> Iterator[Any]:
    """Decoding a part imports modules of the run, which may print."""
    while True:
        with redirect_stdout(sys.stderr):
            part = next(parts, _END)
        if part is _END:
            return
        yield part


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
