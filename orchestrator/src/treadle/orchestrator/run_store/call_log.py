"""The calls of a session: a chain of sealed objects that its clients write and its driver reads.

The chain is the expected set of an open segment, and grows while the segment runs. A call is accepted once its object
is written; of two clients that want the same number, one wins, and the other takes the next number. The order of the
chain gives every function the number of its segment, and every call the numbers of its partitions. So clients and
driver agree on them without a message.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from treadle.primitives import sealing
from treadle.primitives.encoding.decoding import decoded
from treadle.primitives.encoding.references import BlockRef
from treadle.primitives.errors import CorruptError, MissingError

from ..plan.plan import CALLS
from .run_files import RunFiles, Submission

SESSION = "session"
"""Memo key of a submission: the run is a session."""
VALUES = "values"
"""The segment of the large values: no function has this name."""
Gives = Literal["future", "futures", "nothing"]
"""The futures of a call: one, one for each item, or none, since only another call needs the results."""
Need = tuple[str, int]
"""The result of a partition, by the call's key and the partition's position in the call."""


class FunctionAdded(Struct, frozen=True, tag="function", gc=False):
    """A function with its options. Its calls form a segment of their own."""

    key: str
    """Unique in the session, chosen by the client."""
    name: str
    code: BlockRef
    """The function by value, one record."""
    executor: str = ""
    retries: int = 0
    """Further attempts after an exception."""
    timeout: float = 0.0
    """Seconds that a partition may take. 0: no limit."""
    memory: int = 0
    """Bytes that an attempt may allocate. 0: the slot's limit."""
    max_concurrency: int = 0
    """Tasks of the function that run at the same time. 0: no limit."""
    kept: bool = True
    """Results are copied to the store. False: only further calls need them, and a lost result is computed again."""
    parts: int = 0
    """Members of each result, which are stored apart. 0: results are stored whole."""
    content: dict[str, str] = {}
    """The digests of the parts of the function, by their names in a message, if its calls may be reused."""


class ValueAdded(Struct, frozen=True, tag="value", gc=False):
    """A large value among arguments, held by a client. Calls need it as they need a result."""

    key: str
    """Its content: equal values have one key."""
    block: BlockRef
    """One CallResult by value, alone in a list."""
    holder: str
    """The client. Empty: the driver, which has copied the block to the store."""


class ValueReleased(Struct, frozen=True, tag="released", gc=False):
    """The client makes no further calls with a value, unless it adds it again."""

    key: str
    holder: str


class Called(Struct, frozen=True, tag="called", gc=False):
    """Calls of one function: a partition for each part of the block of arguments."""

    key: str
    """Unique in the session, chosen by the client."""
    function: str
    """Key of the function."""
    arguments: BlockRef
    calls: int
    chunk: int
    """Calls in each partition; the last one may have fewer."""
    needs: tuple[tuple[Need, ...], ...] = ()
    """For each partition the results that its arguments hold. Empty: none."""
    parts_of: str = ""
    """Key of a call: instead, partition n needs part n of each of its results."""
    gives: Gives = "future"


class Cancelled(Struct, frozen=True, tag="cancelled", gc=False):
    """A partition of a call shall not begin. If it runs already, this has no effect."""

    key: str
    partition: int


class NoMoreCalls(Struct, frozen=True, tag="ended", gc=False):
    """No further call follows."""


CallRecord = FunctionAdded | ValueAdded | ValueReleased | Called | Cancelled | NoMoreCalls


class CallEntry(Struct, frozen=True, array_like=True, gc=False):
    """One object of the chain."""

    writer: str
    records: tuple[CallRecord, ...]


class CallPlace(Struct, frozen=True, gc=False):
    """A partition of a session: a segment, and a partition of it. There are many, so the collector skips them."""

    segment: str
    partition: int


class CallIndex:
    """The places of calls, computed from the records in the order of the chain. Pure."""

    def __init__(self) -> None:
        self._segments: dict[str, str] = {}
        """Key of a function -> its segment."""
        self._sizes: dict[str, int] = {}
        """Segment -> its partitions so far."""
        self._starts: dict[str, list[int]] = {}
        self._keys: dict[str, list[str]] = {}
        """Segment -> the first partition of each call, and its key."""
        self.first: dict[str, CallPlace] = {}
        """Key of a call -> the place of its first partition."""
        self.calls: dict[str, Called] = {}
        self.functions: dict[str, FunctionAdded] = {}
        """By segment."""
        self.values: dict[str, BlockRef] = {}
        """By key."""
        self.ended = False

    def add(self, record: CallRecord) -> bool:
        """Whether the record says something new: it has another key than the records before it, and the session has
        not ended. Raises CorruptError for a call of an unknown function."""
        if self.ended:
            return False
        match record:
            case FunctionAdded(key) if key not in self._segments:
                segment = self._segments[key] = f"{record.name}-{len(self._segments) + 1}"
                self.functions[segment] = record
                self._sizes[segment] = 0
                self._starts[segment], self._keys[segment] = [], []
            case Called(key, function) if key not in self.first:
                segment = self._segments.get(function, "")
                if not segment:
                    raise CorruptError(f"the call {key} names a function that the session does not have")
                self.first[key] = CallPlace(segment, self._sizes[segment])
                self._starts[segment].append(self._sizes[segment])
                self._keys[segment].append(key)
                self.calls[key] = record
                self._sizes[segment] += len(record.arguments.parts)
            case ValueAdded(key, block):
                self.first.setdefault(key, CallPlace(VALUES, len(self.values)))
                self.values[key] = block
            case NoMoreCalls():
                self.ended = True
            case FunctionAdded() | Called():
                return False
        return True

    def places(self, key: str) -> tuple[CallPlace, ...]:
        """The places of a call's partitions. Raises KeyError for an unknown call."""
        return tuple(self.place(key, partition) for partition in range(len(self.calls[key].arguments.parts)))

    def with_inner(self, key: str) -> Iterator[str]:
        """The call, and the calls that only it needs. Raises KeyError for an unknown call."""
        yield key
        call = self.calls[key]
        needed = {name: None for needs in call.needs for name, _ in needs}
        for name in (call.parts_of,) if call.parts_of else needed:
            if name in self.calls and self.calls[name].gives == "nothing":
                yield from self.with_inner(name)

    def size(self, segment: str) -> int:
        """Partitions of a segment so far."""
        return self._sizes[segment]

    def call_at(self, place: CallPlace) -> tuple[Called, int]:
        """The call of a partition, and the partition's position in it. Raises KeyError for an unknown partition."""
        starts = self._starts[place.segment]
        number = bisect_right(starts, place.partition) - 1
        if not 0 <= place.partition < self._sizes[place.segment]:
            raise KeyError(f"{place.segment}/{place.partition}")
        return self.calls[self._keys[place.segment][number]], place.partition - starts[number]

    def place(self, key: str, partition: int) -> CallPlace:
        """The place of a call's partition. Raises KeyError for an unknown call."""
        first = self.first[key]
        return CallPlace(first.segment, first.partition + partition)


def session_submission(run: str, name: str, executor: str) -> Submission:
    """The submission of a session. `executor`: of calls that name none."""
    spec = {"apiVersion": "treadle/v1", "name": name, "stages": {}}
    return Submission(run, spec, {}, "", {}, "", executor, {SESSION: True})


class CallLog:
    """The chain as one process reads and writes it. Methods block; use from one thread at a time."""

    def __init__(self, files: RunFiles, writer: str = "") -> None:
        """`writer`: unique name of the process, if it writes."""
        self._store = files.store
        self._objects = sealing.SealedStore(files.store, files.key)
        self._prefix, self._writer = f"{files.segment(CALLS)}/calls", writer
        self._number = 0
        self._found: list[CallRecord] = []

    @property
    def folder(self) -> Path | None:
        """The folder of the chain, if it is on this host."""
        return self._store.path(self._prefix)

    def read(self) -> list[CallRecord]:
        """The records since the last `read` or `write`, in order.

        Raises StoreError, CorruptError. The next call then also returns the records read before the error.
        """
        while self._next() is not None:
            pass
        return self._taken()

    def write(self, records: Iterable[CallRecord]) -> list[CallRecord]:
        """Append records as one object, durable on return. Raises StoreError; then it may be called again.

        Returns the records that others have written in the meantime, then these: the chain from the last read on.
        """
        entry = CallEntry(self._writer, tuple(records))
        data = msgspec.msgpack.encode(entry)
        while not self._objects.create(self._name(), data):
            if self._next() == entry:  # written before, and the answer got lost
                return self._taken()
        self._number += 1
        self._objects.prepare(self._name(), self._number)
        return [*self._taken(), *entry.records]

    def _taken(self) -> list[CallRecord]:
        found, self._found = self._found, []
        return found

    def may_have_more(self) -> bool:
        """Whether `read` may find records. On a store of this host a cheap test answers it."""
        path = self._store.path(self._name())
        return path is None or path.exists()

    def _next(self) -> CallEntry | None:
        name = self._name()
        try:
            entry = decoded(CallEntry, name, self._objects.get(name))
        except MissingError:
            return None
        self._number += 1
        self._found += entry.records
        return entry

    def _name(self) -> str:
        return f"{self._prefix}/{self._number:08d}"
