"""Which calls of a session may begin. Pure: call records and ends of partitions in, steps out.

A partition waits until the results that its arguments name are committed, and in the store if its executor does not
share the memory of this host. If one of them failed for good, the partition fails with it. A call of an ended session
is ignored: the order of the chain decides.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from treadle.executors.program import BlockInput
from treadle.primitives.encoding.references import BlockRef, Slice

from ...run_store.call_log import (
    VALUES,
    Called,
    CallIndex,
    CallPlace,
    CallRecord,
    Cancelled,
    FunctionAdded,
    ValueAdded,
    ValueReleased,
)


class OpenFunction(NamedTuple):
    """A function has its first call ahead."""

    segment: str
    function: FunctionAdded


class ExpectCalls(NamedTuple):
    """Partitions of a segment were called."""

    segment: str
    partitions: int


class TakeValue(NamedTuple):
    """A large value of a client; it has `ended` once its block is found, or found to be lost."""

    place: CallPlace
    value: ValueAdded


class BeginCall(NamedTuple):
    """A partition has its input."""

    place: CallPlace
    input: BlockInput


class FailCall(NamedTuple):
    """A partition can never begin, because a call that it needs failed."""

    place: CallPlace
    needed: CallPlace


class WithdrawCall(NamedTuple):
    """A partition is not wanted any more."""

    place: CallPlace


class DropResult(NamedTuple):
    """All partitions that need a result or a value have ended, and nothing else may need it."""

    block: BlockRef


Step = OpenFunction | TakeValue | ExpectCalls | BeginCall | FailCall | WithdrawCall | DropResult


class OpenCalls:
    """The calls of one session."""

    def __init__(self) -> None:
        self._index = CallIndex()
        self._done: dict[CallPlace, BlockRef | None] = {}
        """The block of a committed partition. None: it failed."""
        self._needs: dict[CallPlace, tuple[CallPlace, ...]] = {}
        self._part: dict[CallPlace, int] = {}
        """Waiting partition -> the part of each result that it needs. Missing: the whole results."""
        self._missing: dict[CallPlace, set[CallPlace]] = {}
        """Waiting partition -> the partitions that it waits for."""
        self._readers: dict[CallPlace, list[CallPlace]] = {}
        self._arguments: dict[CallPlace, Slice] = {}
        self._inner: dict[CallPlace, tuple[CallPlace, ...]] = {}
        """Partition that has not ended -> the values among its needs, and the results that only its call needs."""
        self._uses: Counter[CallPlace] = Counter()
        """Such a result, or a value -> its partitions that have not ended."""
        self._holders: dict[CallPlace, set[str]] = {}
        """Value -> the clients that may use it in further calls."""
        self.far: set[str] = set()
        """Segments that read nothing in the memory of this host."""
        self._failures: set[CallPlace] = set()
        self.expected = 0
        self._ended = 0

    @property
    def over(self) -> bool:
        """Whether every call has ended, and no other follows."""
        return self._index.ended and self.idle

    @property
    def idle(self) -> bool:
        """Whether every call so far has ended."""
        return self._ended >= self.expected

    @property
    def failed(self) -> int:
        return len(self._failures)

    def value(self, block: str) -> BlockRef | None:
        """The value with a block of this name, as far as known."""
        return next((one for one in self._index.values.values() if one.name == block), None)

    def left(self, segment: str) -> list[CallPlace]:
        """The partitions of a segment that were called and have not ended."""
        places = (CallPlace(segment, partition) for partition in range(self._index.size(segment)))
        return [place for place in places if place not in self._done]

    def add(self, record: CallRecord) -> list[Step]:
        """A record of the chain, in its order. Raises CorruptError for a call of an unknown function."""
        if self._index.ended:
            return []
        known = len(self._index.functions)
        is_new = self._index.add(record)
        if len(self._index.functions) > known:
            segment = next(reversed(self._index.functions))
            return [OpenFunction(segment, self._index.functions[segment])]
        if isinstance(record, Called) and is_new:
            return list(self._called(record))
        if isinstance(record, ValueAdded):
            place = self._index.first[record.key]
            self._holders.setdefault(place, set()).update({record.holder} - {""})
            return [TakeValue(place, record)]
        if isinstance(record, ValueReleased) and record.key in self._index.values:
            place = self._index.first[record.key]
            self._holders[place].discard(record.holder)
            return list(self._unneeded(place))
        if isinstance(record, Cancelled) and record.key in self._index.first:
            return self._cancelled(self._index.place(record.key, record.partition))
        return []

    def ended(self, place: CallPlace, block: BlockRef | None) -> list[Step]:
        """A partition is committed with its block, or has failed (None)."""
        self._ended += place not in self._done and place.segment != VALUES
        if self._done.get(place) is None or place.segment == VALUES:
            self._done[place] = block
            self._failures.discard(place)
            if block is None and place.segment != VALUES:
                self._failures.add(place)
        self._missing.pop(place, None)
        return [*self._dropped(place), *self._inform_readers(place)]

    def copied(self, place: CallPlace, block: BlockRef) -> list[Step]:
        """The store has the block of a committed partition, too."""
        self._done[place] = block
        return list(self._inform_readers(place))

    def _inform_readers(self, place: CallPlace) -> Iterator[Step]:
        for reader in self._readers.pop(place, ()):
            if self._can_read(reader, place):
                yield from self._informed(reader, place)
            else:
                self._readers.setdefault(place, []).append(reader)

    def _can_read(self, reader: CallPlace, place: CallPlace) -> bool:
        """Whether a partition has ended, and its block, if any, is where the reader reaches it."""
        block = self._done.get(place)
        if block is None or reader.segment not in self.far:
            return place in self._done
        return not {"store", "inline"}.isdisjoint(block.locations)

    def _dropped(self, place: CallPlace) -> Iterator[DropResult]:
        for inner in self._inner.pop(place, ()):
            self._uses[inner] -= 1
            yield from self._unneeded(inner)

    def _unneeded(self, place: CallPlace) -> Iterator[DropResult]:
        block = self._done.get(place)
        if block is not None and not self.needs(place):
            if place.segment == VALUES:
                del self._done[place]
            yield DropResult(block)

    def needs(self, place: CallPlace) -> bool:
        """Whether a partition that has not ended, or a client, may still use a value or an inner result."""
        return self._uses[place] > 0 or bool(self._holders.get(place))

    def _called(self, call: Called) -> Iterator[Step]:
        first = self._index.first[call.key]
        partitions = len(call.arguments.parts)
        self.expected += partitions
        yield ExpectCalls(first.segment, partitions)
        every = self._index.places(call.parts_of) if call.parts_of else ()
        for partition in range(partitions):
            place = CallPlace(first.segment, first.partition + partition)
            names = call.needs[partition] if call.needs else ()
            needs = tuple(self._index.place(*name) for name in names)
            if every:
                needs, self._part[place] = every, partition
            arguments = call.arguments.slice(partition)
            if needs:
                yield from self._awaited(place, arguments, needs)
            else:
                yield BeginCall(place, BlockInput(((arguments,),)))

    def _awaited(self, place: CallPlace, arguments: Slice, needs: tuple[CallPlace, ...]) -> Iterable[Step]:
        self._arguments[place], self._needs[place] = arguments, needs
        inner = self._inner[place] = tuple(filter(self._is_inner, needs))
        self._uses.update(inner)
        failed = next((one for one in needs if one in self._done and self._done[one] is None), None)
        if failed is not None:
            return self._doomed(place, failed)
        missing = self._missing[place] = {one for one in needs if not self._can_read(place, one)}
        for one in missing:
            self._readers.setdefault(one, []).append(place)
        return () if missing else (self._begun(place),)

    def _is_inner(self, place: CallPlace) -> bool:
        return place.segment == VALUES or self._index.call_at(place)[0].gives == "nothing"

    def _informed(self, reader: CallPlace, place: CallPlace) -> list[Step]:
        missing = self._missing.get(reader)
        if missing is None:  # it has failed already
            return []
        if self._done[place] is None:
            return self._doomed(reader, place)
        missing.discard(place)
        return [] if missing else [self._begun(reader)]

    def _begun(self, place: CallPlace) -> BeginCall:
        del self._missing[place]
        needed = [self._done[one] for one in self._needs.pop(place)]
        part = self._part.pop(place, 0)
        results = [block.slice(part) for block in needed if block is not None]
        return BeginCall(place, BlockInput(((self._arguments.pop(place), *results),)))

    def _doomed(self, place: CallPlace, needed: CallPlace) -> list[Step]:
        self._missing.pop(place, None)
        self._arguments.pop(place, None)
        return [FailCall(place, needed)]

    def _cancelled(self, place: CallPlace) -> list[Step]:
        return [] if place in self._done else [WithdrawCall(place)]
