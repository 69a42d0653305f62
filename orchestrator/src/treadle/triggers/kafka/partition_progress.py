"""The state of one partition in a machine: its work in progress, and the offset below which everything is done.

An **entry** is work that must be done before the offset may pass it: a batch (identified by its first matching record)
or a dead letter. Entries are added in the order of their offsets and end in any order. The **mark**, below which
everything is done, is the first remaining entry, or else the read position.

    open      matching records collected for a batch that is not cut yet; part of the entries
    ready     batches that are cut; in a chain only the first may be started, and only when the dead letters below its
              end are written
"""

from __future__ import annotations

from collections import deque

from msgspec.structs import replace

from treadle.dsl.triggers import EventBatch

from .batch import KafkaBatch
from .machine_events import Judged, KafkaPartition


class PartitionLog:
    """Starts at a position below which everything is done."""

    def __init__(self, partition: KafkaPartition, position: int) -> None:
        self.partition, self.position, self.committed = partition, position, position
        self.reading = True
        self.starting = 0
        """Number of batches being started."""
        self.last_start = 0
        """Number of the last start: the partition that waited longest comes first."""
        self.chained: set[int] = set()
        """First offsets of batches of several records, which are started one at a time."""
        self._entries: dict[int, int] = {}
        """Offset -> number of its remaining steps."""
        self._letters: set[int] = set()
        """Offsets of dead letters that are not written."""
        self._ready: deque[KafkaBatch] = deque()
        self._ready_size = (0, 0)
        self._open: list[Judged] = []
        self._open_bytes = 0
        self._due = 0.0

    @property
    def mark(self) -> int:
        """Everything below it is done."""
        return min(self._entries, default=self.position)

    @property
    def held(self) -> int:
        """Number of records kept in memory."""
        return len(self._open) + self._ready_size[0] + len(self._letters)

    @property
    def held_bytes(self) -> int:
        return self._open_bytes + self._ready_size[1]

    # -- records

    def take(self, judged: Judged, batching: EventBatch | None, now: float) -> bool:
        """Add a record. Returns whether it is a dead letter, which must be written."""
        if judged.record.offset < self.position:
            return False
        if self._open and (self._open[0].version != judged.version or batching is None):
            self.cut()
        if work := len(judged.matches) + bool(judged.reason):
            self._todo(judged, work, batching, now)
        self.position = judged.record.offset + 1
        if batching is not None and len(self._open) >= batching.max_events:
            self.cut()
        return bool(judged.reason)

    def _todo(self, judged: Judged, work: int, batching: EventBatch | None, now: float) -> None:
        if batching is not None and judged.matches:
            self._gather(judged, batching, now)
            return
        self._entries[judged.record.offset] = work
        if judged.reason:
            self._letters.add(judged.record.offset)
        for match in judged.matches:
            self._add(KafkaBatch(judged.version, (match,), judged.record.offset + 1))

    def _gather(self, judged: Judged, batching: EventBatch, now: float) -> None:
        if self._open and self._open_bytes + judged.size > batching.max_bytes:
            self.cut()
        if not self._open:
            self._entries[judged.record.offset] = 1
            self._due = now + batching.max_wait
            self.chained.add(judged.record.offset)
        self._open.append(judged)
        self._open_bytes += judged.size

    @property
    def due(self) -> float | None:
        """When the open batch has waited long enough; None: there is none."""
        return self._due if self._open else None

    @property
    def open_version(self) -> int | None:
        return self._open[0].version if self._open else None

    def cut(self) -> None:
        """Complete the open batch, which ends at the read position."""
        matched = tuple(match for one in self._open for match in one.matches)
        self._add(KafkaBatch(self._open[0].version, matched, self.position))
        self._open, self._open_bytes = [], 0

    def _add(self, batch: KafkaBatch) -> None:
        self._ready.append(batch)
        self._count(batch, 1)

    # -- starts

    def startable(self) -> bool:
        """Whether the first ready batch may be started now."""
        if not self._ready:
            return False
        batch = self._ready[0]
        if batch.first.offset not in self.chained:
            return True
        return self.starting == 0 and not any(offset < batch.end for offset in self._letters)

    def start(self, number: int) -> KafkaBatch:
        """Take the first ready batch."""
        self.starting += 1
        self.last_start = number
        batch = self._ready.popleft()
        self._count(batch, -1)
        return batch

    def put_back(self, batch: KafkaBatch) -> None:
        """A start failed; the batch comes first again."""
        self.starting -= 1
        self._ready.appendleft(batch)
        self._count(batch, 1)

    def drop_ready(self) -> None:
        """Drop batches that are not started; their entries stay."""
        self._ready.clear()
        self._ready_size = (0, 0)

    def _count(self, batch: KafkaBatch, sign: int) -> None:
        records, size = self._ready_size
        self._ready_size = (records + sign * len(batch.matched), size + sign * batch.size)

    def halve(self, batch: KafkaBatch) -> None:
        """The batch can never be started as a whole. Its halves come first again, one after the other."""
        middle = len(batch.matched) // 2
        rest = replace(batch, matched=batch.matched[middle:])
        self.put_back(rest)
        self._ready.appendleft(half := replace(batch, matched=batch.matched[:middle], end=rest.first.offset))
        self._count(half, 1)
        self._entries[rest.first.offset] = 1
        self.chained.add(rest.first.offset)

    def bury(self, batch: KafkaBatch) -> None:
        """The batch's only record can never start a run. Its entry is done when it is written as a dead letter."""
        self.starting -= 1
        self._letters.add(batch.first.offset)

    def started(self) -> None:
        """A run exists; its entry stays until `done`."""
        self.starting -= 1

    def adopt(self, batch: KafkaBatch, end: int) -> None:
        """The accepted start covered a different range: continue after it, and drop the records collected meanwhile."""
        first = batch.first.offset
        self._entries = {offset: left for offset, left in self._entries.items() if offset <= first}
        self._letters = {offset for offset in self._letters if offset <= first}
        self._open, self._open_bytes = [], 0
        self.drop_ready()
        self.chained &= {first}
        self.position = end

    def done(self, offset: int, *, letter: int | None = None) -> None:
        """One step of the entry at `offset` is done: its start, or the dead letter of one of its records."""
        if letter is not None:
            self._letters.discard(letter)
        left = self._entries.get(offset, 0) - 1
        if left > 0:
            self._entries[offset] = left
        else:
            self._entries.pop(offset, None)
            self.chained.discard(offset)
