"""Large arrays and tables among the arguments of calls: each is sent once, however many calls get it.

A value counts by its content: a later change of an array makes another value. Most values are new, which a sample of a
few pages shows; a digest of the whole is made for the others. The values used last are held for further calls: one of
any size, and others of at most `HELD` bytes. The driver may drop the rest once no call needs them.
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any, Literal, Self

import xxhash

from treadle.executors.operations.calls import CallResult
from treadle.orchestrator.run_store.call_log import VALUES
from treadle.primitives.blocks import Blocks
from treadle.primitives.encoding.by_value import Packed, pack
from treadle.primitives.errors import TreadleError

from .futures import CallKey, Future
from .session_link import SessionLink

LARGE = 1 << 20
"""Bytes from which a value is sent apart from its call."""
HELD = 64 << 20
_PAGE, _PAGES = 4096, 16
"""Bytes of a page, and about how many pages of a buffer are in its sample."""
Place = Literal["host", "store"]


class ArgumentValues:
    """Sends large values. For any number of threads."""

    def __init__(self, link: SessionLink, blocks: Blocks) -> None:
        self._link, self._blocks = link, blocks
        self._lock = threading.RLock()  # a future may be collected anywhere
        self._held: OrderedDict[str, _SentValue] = OrderedDict()
        """By key, the value used last at the end."""
        self._users: Counter[str] = Counter()
        """Key -> the futures of it, and the calls that are being made with it."""

    def put(self, value: object, place: Place) -> Future:
        """Send a value of any size. It is held as long as the future exists."""
        used: list[str] = []
        future = self._link.future(CallKey(self.send(value, place, used)))
        weakref.finalize(future, self.leave, used).atexit = False
        return future

    def send(self, value: object, place: Place, used: list[str]) -> str:
        """Send a value unless an equal one is held, and hold it until `leave`. Returns its key, which is added to
        `used`."""
        packed = pack([CallResult(value)])
        sample = f"{place}-{_sample(packed)}"
        with self._lock:
            key = self._equal(sample, packed)
            if key:
                self._use(key, used)
                return key
        key, local = self._link.key(), place == "host"  # read in memory only; its copy in the store gets a checksum
        block = self._blocks.put(f"{VALUES}/{key}", "objects", [[packed]], place, checksums=not local)
        self._link.send_value(key, block)
        known = "" if local else _digest(packed)
        with self._lock:
            read = partial(self._blocks.get, block.slice(0))
            self._held[key] = _SentValue(sample, sum(map(_length, packed)), known, read)
            self._use(key, used)
        return key

    def content(self, key: str) -> str:
        """The digest of a value that is held. Any other key as it is."""
        with self._lock:
            held = self._held.get(key)
            return (held and held.digest) or key

    def _equal(self, sample: str, packed: Packed) -> str:
        """The key of an equal value; empty: none. Few values that differ have the same sample."""
        alike = [key for key, one in self._held.items() if one.sample == sample]
        digest = _digest(packed) if alike else ""
        return next((key for key in alike if self._held[key].digest == digest), "")

    def _use(self, key: str, used: list[str]) -> None:
        used.append(key)
        self._users[key] += 1
        self._held.move_to_end(key)

    def leave(self, used: list[str]) -> None:
        with self._lock:
            self._users -= Counter(used)
            for key in [key for key in self._held if not self._users[key]]:
                sizes = [one.size for one in self._held.values()]
                if sum(sizes) - max(sizes) <= HELD:
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


class _SentValue:
    """A value that was sent. Its digest is made when it is first asked for: most values have no equal."""

    def __init__(self, sample: str, size: int, digest: str, read: Callable[[], list[Packed]]) -> None:
        """`digest`: empty: it is made from the record that `read` returns."""
        self.sample, self.size = sample, size
        self._known, self._read = digest, read

    @property
    def digest(self) -> str:
        """Empty: the value is lost."""
        if not self._known:
            with suppress(TreadleError):
                (packed,) = self._read()
                self._known = _digest(packed)
        return self._known


def _digest(packed: Packed) -> str:
    return _digest_of(packed, lambda data: [data])


def _sample(packed: Packed) -> str:
    """A digest of some pages of a value. Values with different samples are different."""
    return _digest_of(packed, _some_pages)


def _some_pages(data: memoryview) -> Iterator[memoryview]:
    return (data[at : at + _PAGE] for at in range(0, len(data), max(_PAGE, len(data) // _PAGES)))


def _digest_of(packed: Packed, some: Callable[[memoryview], Iterable[memoryview]]) -> str:
    digest = xxhash.xxh3_128()
    for part in packed:
        data = memoryview(part).cast("B")
        digest.update(len(data).to_bytes(8, "little"))
        for piece in some(data):
            digest.update(piece)
    return digest.hexdigest()


def _length(part: Any) -> int:
    return memoryview(part).nbytes
