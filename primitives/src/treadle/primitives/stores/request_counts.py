"""Requests of this process to stores, by kind: in total and for each run.

The kinds are those with a price in S3: `get`, `head`, `put` (PUT, COPY and POST), `list`, `delete`. An upload in parts
is one request to start it, one for each part and one to complete it. Retries by a client library are not counted.
"""

from __future__ import annotations

import contextlib
import threading
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from contextvars import ContextVar

from .atomic_files import Buffer

PAGE = 1000
"""Objects per listing page (Amazon S3 API reference, ListObjectsV2), and per DeleteObjects request."""
_RUNS = "runs/"
_counts: Counter[str] = Counter()
_of_runs: defaultdict[str, Counter[str]] = defaultdict(Counter)
_lock = threading.Lock()
_run: ContextVar[str] = ContextVar("run that store requests belong to", default="")


def count(kind: str, name: str, number: int = 1) -> None:
    """Count requests for the object or the folder `name`."""
    run = name[len(_RUNS) :].partition("/")[0] if name.startswith(_RUNS) else _run.get()
    with _lock:
        _counts[kind] += number
        if run:
            _of_runs[run][kind] += number


def made() -> dict[str, int]:
    """Return the counts of all requests so far."""
    with _lock:
        return dict(_counts)


def since(before: Mapping[str, int]) -> dict[str, int]:
    """Return the counts of requests since `before`, a result of `made`."""
    return {kind: number - before.get(kind, 0) for kind, number in made().items() if number > before.get(kind, 0)}


def of_run(run: str) -> dict[str, int]:
    """Return the counts for a run and its child runs, by the names of objects and by `counted_for`."""
    with _lock:
        return dict(_of_runs.get(run.partition("/")[0], {}))


@contextlib.contextmanager
def counted_for(run: str) -> Iterator[None]:
    """Count requests inside for objects of no run, such as inputs, as requests of this run."""
    token = _run.set(run.partition("/")[0])
    try:
        yield
    finally:
        _run.reset(token)


class Sent:
    """Data to be sent, and the requests that it takes: bytes go as one request, an iterator's buffers in parts."""

    def __init__(self, data: bytes | Iterator[Buffer]) -> None:
        self._size = 0
        self._in_parts = not isinstance(data, bytes)
        self.data = data if isinstance(data, bytes) else self._counting(data)

    def _counting(self, data: Iterator[Buffer]) -> Iterator[Buffer]:
        for one in data:
            self._size += memoryview(one).nbytes
            yield one

    def requests(self, part: int) -> int:
        """Requests for the data: 1 for bytes; for an iterator 1 to start, 1 for each part of `part` bytes, 1 to
        complete."""
        return 2 + max(1, -(-self._size // part)) if self._in_parts else 1


def pages(objects: int) -> int:
    """Return the number of pages of a listing."""
    return max(1, -(-objects // PAGE))
