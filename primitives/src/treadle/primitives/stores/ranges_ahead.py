"""Ranges of objects that are requested before they are read: several at the same time, within a window."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from ..small_threads import start_thread

if TYPE_CHECKING:
    from concurrent.futures import Future

WINDOW = 16 << 20
"""Limit of bytes that are requested and not yet read."""
REQUESTS = 16
"""Requests at the same time."""


class ObjectRange(NamedTuple):
    """Bytes of an object."""

    name: str
    offset: int
    length: int


class RangesAhead:
    """Reads ranges in the order in which they were announced. Thread-safe.

    Nothing is requested before the first announced range is read: a cache may have them all by then.
    """

    def __init__(self, read: Callable[[str, int, int], bytes]) -> None:
        """`read(name, offset, length)` requests a range."""
        self._read = read
        self._expected: deque[ObjectRange] = deque()
        self._coming: dict[ObjectRange, Future[bytes]] = {}
        self._lock = threading.Lock()

    def expect(self, ranges: Iterable[ObjectRange]) -> None:
        """Announce ranges that will be read after the ones announced before. Each fits into the window."""
        with self._lock:
            self._expected.extend(ranges)

    def forget(self) -> None:
        """Forget the announced ranges. Bytes on their way are dropped when they arrive."""
        with self._lock:
            self._expected.clear()
            self._coming.clear()

    def read(self, name: str, offset: int, length: int) -> bytes:
        """Return a range, and request the next ones. Raises what its request raises."""
        wanted = ObjectRange(name, offset, length)
        with self._lock:
            coming = self._taken(wanted)
        return self._read(*wanted) if coming is None else coming.result()

    def _taken(self, wanted: ObjectRange) -> Future[bytes] | None:
        """The request for a range, if it is under way. Announced ranges before it are passed over."""
        if wanted in self._coming:
            while (first := next(iter(self._coming))) != wanted:
                del self._coming[first]
        elif wanted in self._expected:
            self._coming.clear()
            while self._expected.popleft() != wanted:
                pass
        else:
            return None
        coming = self._coming.pop(wanted, None)
        self._request()
        return coming

    def _request(self) -> None:
        size = sum(one.length for one in self._coming)
        while self._expected and len(self._coming) < REQUESTS and size + self._expected[0].length <= WINDOW:
            following = self._expected.popleft()
            size += following.length
            with suppress(RuntimeError):  # no room for another thread: it is requested when it is read
                self._coming[following] = self._begun(following)

    def _begun(self, wanted: ObjectRange) -> Future[bytes]:
        from concurrent.futures import Future

        coming = Future[bytes]()

        def fetch() -> None:
            try:
                coming.set_result(self._read(*wanted))
            except BaseException as error:  # noqa: BLE001  raised where the range is read
                coming.set_exception(error)

        start_thread(fetch, name="read ahead")
        return coming
