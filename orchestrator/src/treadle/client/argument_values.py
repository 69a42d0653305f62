"""Large arrays and tables among the arguments of calls: each is sent once, however many calls get it.

A value counts by its content: a later change of an array makes another value. The values used last are held for further
calls: one of any size, and others of at most `HELD` bytes. The driver may drop the rest once no call needs them.
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import Any, Literal, Self

import xxhash

from treadle.executors.operations.calls import CallResult
from treadle.orchestrator.run_store.call_log import VALUES
from treadle.primitives.blocks import Blocks
from treadle.primitives.encoding.by_value import Packed, pack

from .futures import CallKey, Future
from .session_link import SessionLink

LARGE = 1 << 20
"""Bytes from which a value is sent apart from its call."""
HELD = 64 << 20
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

    def put(self, value: object, place: Place) -> Future:
        """Send a value of any size. It is held as long as the future exists."""
        used: list[str] = []
        future = self._link.future(CallKey(self.send(value, place, used)))
        weakref.finalize(future, self.leave, used).atexit = False
        return future

    def send(self, value: object, place: Place, used: list[str]) -> str:
        """Send a value if need be, and hold it until `leave`. Returns its key, which is added to `used`."""
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

    def leave(self, used: list[str]) -> None:
        with self._lock:
            self._users -= Counter(used)
            for key in [key for key in self._held if not self._users[key]]:
                if sum(self._held.values()) - max(self._held.values()) <= HELD:
                    break
                del self._held[key]
                self._link.release(key)


class SharedValues:
    """The large values among the arguments of some calls, held until the calls are sent. Use as a context manager."""

    def __init__(self, values: ArgumentValues, place: Callable[[], Place], *, fixed: bool) -> None:
        """`place`: where the blocks go. `fixed`: no value changes meanwhile, so that one object needs one look."""
        self._values, self._place, self._fixed = values, place, fixed
        self._used: list[str] = []
        self._seen: dict[int, tuple[object, str]] = {}

    def key(self, found: object) -> str:
        """The key of a large value, which is sent if need be; empty for any other object."""
        if _size(found) < LARGE:
            return ""
        if id(found) not in self._seen or not self._fixed:
            self._seen[id(found)] = found, self._values.send(found, self._place(), self._used)
        return self._seen[id(found)][1]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._used:
            self._values.leave(self._used)


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
