"""Requests that this process has made to stores, by kind, in all and for each run.

Kinds are those that S3 has prices for: `get`, `head`, `put` (PUT, COPY and POST), `list`, `delete`. An upload in parts
is one request to begin it, one for each part and one to complete it. Repetitions by a client library are not seen.
"""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextvars import ContextVar

from .atomic_files import Buffer

PAGE = 1000
"""Objects of one listing (Amazon S3 API reference, ListObjectsV2), and of one DeleteObjects."""
_RUNS = "runs/"
_counts: Counter[str] = Counter()
_of_runs: dict[str, Counter[str]] = {}
_lock = threading.Lock()
_run: ContextVar[str] = ContextVar("run that store requests belong to", default="")


def count(kind: str, name: str, number: int = 1) -> None:
    """Requests were made for the object or the folder `name`."""
    run = name[len(_RUNS) :].partition("/")[0] if name.startswith(_RUNS) else _run.get()
    with _lock:
        _counts[kind] += number
        if run:
            _of_runs.setdefault(run, Counter())[kind] += number


def made() -> dict[str, int]:
    """All so far."""
    with _lock:
        return dict(_counts)


def since(before: Mapping[str, int]) -> dict[str, int]:
    """What was made after `before`, which `made` returned."""
    return {kind: number - before.get(kind, 0) for kind, number in made().items() if number > before.get(kind, 0)}


def of_run(run: str) -> dict[str, int]:
    """What was made for a run and the runs below it, by the names of objects and inside `counted_for`."""
    with _lock:
        return dict(_of_runs.get(run.partition("/")[0], {}))


@contextlib.contextmanager
def counted_for(run: str) -> Iterator[None]:
    """Requests made here for objects of no run, such as inputs, belong to this one."""
    token = _run.set(run.partition("/")[0])
    try:
        yield
    finally:
        _run.reset(token)


class Sent:
    """Data on its way, and the requests that it takes: bytes go as one, what an iterator gives in parts."""

    def __init__(self, data: bytes | Iterator[Buffer]) -> None:
        self._size = 0
        self._in_parts = not isinstance(data, bytes)
        self.data = data if isinstance(data, bytes) else self._counting(data)

    def _counting(self, data: Iterator[Buffer]) -> Iterator[Buffer]:
        for one in data:
            self._size += memoryview(one).nbytes
            yield one

    def requests(self, part: int) -> int:
        """One; else one to begin the upload, one for each part of `part` bytes, one to complete it."""
        return 2 + max(1, -(-self._size // part)) if self._in_parts else 1


def pages(objects: int) -> int:
    """Of a listing."""
    return max(1, -(-objects // PAGE))
