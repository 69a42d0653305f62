"""Large arrays and tables among the arguments of calls: each is sent once, however many calls get it.

A value counts by its content: a later change of an array makes another value. It is held for further calls as long as
all held values take at most `HELD` bytes; then the driver may drop a value that no call needs.
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

import xxhash

from treadle.executors.operations.calls import CallResult
from treadle.orchestrator.run_store.call_log import VALUES
from treadle.primitives.blocks import Blocks
from treadle.primitives.encoding.by_value import Packed, pack

from .futures import CallKey, Future
from .session_link import SessionLink

LARGE = 1 << 20
"""Bytes from which a value is sent apart from its call."""
HELD = 256 << 20
Place = Literal["host", "store"]


class ArgumentValues:
    """Sends large values. For any number of threads."""

    def __init__(self, link: SessionLink, blocks: Blocks) -> None:
        self._link, self._blocks = link, blocks
        self._lock = threading.RLock()  # a future may be collected anywhere
        self._held: OrderedDict[str, int] = OrderedDict()
        """Key -> bytes, the value used last at the end."""
        self._users: Counter[str] = Counter()
        """Key -> the futures of it, and the calls that are being made with it."""

    @contextmanager
    def sharing(self, place: Callable[[], Place], *, fixed: bool) -> Iterator[Callable[[object], str]]:
        """A function that returns the key of a large value, which it sends if need be; empty for any other object.

        `place`: where the block goes. `fixed`: no value changes meanwhile, so that one object needs one look. The
        values are held until the block ends: their calls are then sent.
        """
        used: list[str] = []
        seen: dict[int, tuple[object, str]] = {}

        def key(found: object) -> str:
            if _size(found) < LARGE:
                return ""
            if id(found) not in seen or not fixed:
                seen[id(found)] = found, self._send(found, place(), used)
            return seen[id(found)][1]

        try:
            yield key
        finally:
            if used:
                self._leave(used)

    def put(self, value: object, place: Place) -> Future:
        """Send a value of any size. It is held as long as the future exists."""
        used: list[str] = []
        future = self._link.future(CallKey(self._send(value, place, used)))
        weakref.finalize(future, self._leave, used).atexit = False
        return future

    def _send(self, value: object, place: Place, used: list[str]) -> str:
        packed = pack([CallResult(value)])
        key = f"{place}-{_digest(packed)}"
        used.append(key)
        with self._lock:
            self._users[key] += 1
            known = key in self._held
        if not known:
            local = place == "host"  # read in memory only; its copy in the store gets a checksum
            block = self._blocks.put(f"{VALUES}/{key}", "objects", [[packed]], place, checksums=not local)
            self._link.send_value(key, block)
        with self._lock:
            self._held[key] = sum(map(_length, packed))
            self._held.move_to_end(key)
        return key

    def _leave(self, used: list[str]) -> None:
        with self._lock:
            self._users -= Counter(used)
            for key in [key for key in self._held if not self._users[key]]:
                if sum(self._held.values()) <= HELD:
                    break
                del self._held[key]
                self._link.release(key)


def _size(found: object) -> int:
    """The bytes of an array of numbers or of an Arrow table. 0: another value."""
    numpy, arrow = sys.modules.get("numpy"), sys.modules.get("pyarrow")
    if numpy is not None and type(found) is numpy.ndarray:
        return 0 if found.dtype.hasobject else found.nbytes  # type: ignore[attr-defined]
    return found.nbytes if arrow is not None and isinstance(found, arrow.Table) else 0


def _digest(packed: Packed) -> str:
    digest = xxhash.xxh3_128()
    for part in packed:
        data: Any = memoryview(part).cast("B")
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()


def _length(part: Any) -> int:
    return memoryview(part).nbytes
