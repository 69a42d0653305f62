"""All decisions of one Kafka trigger in one process. Pure: events in, instructions out; the clock is passed in.

An arriving record is already decided. Its decision leads to these steps:

    filtered out    none; its offset is done
    dead letter     it is written, with retries; then its offset is done
    match           a batch of one; with `batch`, it is collected with the following matches of its partition, until
                    there are maxEvents or maxBytes, the oldest has waited maxWait, or another version decides. Then a
                    start is requested

    start           result
    done            its offsets are done; with maxActive 1 only at the end of its run, so that the next owner of the
                    partition finds the run and waits for it too
    failed          the batch comes first again; starts pause for a while, which doubles up to half a minute
    refused         a batch of several records is started in halves; a single record becomes a dead letter. A record
                    thus never becomes one because of its neighbours, which depend on the owner's cuts

Batches of several records form a **chain**: one is started at a time, with an id from its first match. The next one
begins at the end of the accepted start, which its memo holds. Cuts depend on time, so another owner may have cut
differently. The first writer wins; all owners adopt its end and continue from there. A batch waits for the dead letters
below its end, because an owner that adopts that end never reads those records.

    offset          committed up to the first record that is not done, and never beyond
    revoked         batches that are not started are dropped; starts in progress are awaited for up to HANDOVER seconds.
                    Then comes the last commit, and the partition is released
    lost            dropped without a commit
    reached         the offsets up to there hold no records (they are transaction markers), and are done
    out of range    reading continues with the next existing record; the loss is logged
    too much held   reading stops until half of it is gone; the loop keeps polling

Partitions take turns with their starts. At most WINDOW starts are in progress, and fewer than maxActive runs are open.
Open runs are the runs started here that have not ended, or Temporal's count if that is higher. With maxActive, nothing
is started before the first count, because the previous owner may have left open runs.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

from treadle.dsl.triggers import EventBatch

from .batch import KafkaBatch
from .machine_events import (
    Answer,
    Arrived,
    Assigned,
    Bury,
    Commit,
    CommitFailed,
    EffectDone,
    EffectFailed,
    Happening,
    Instruction,
    Judged,
    KafkaPartition,
    MaxActiveChanged,
    Note,
    OutOfRange,
    PartitionsLost,
    PauseChanged,
    Reached,
    Revoked,
    RunEnded,
    RunsCounted,
    Seek,
    Start,
    StartRefused,
    WantRecords,
    WatchRun,
)
from .partition_progress import PartitionLog

WINDOW = 50
"""Maximum starts in progress."""
HANDOVER = 5.0
"""Seconds that a revoked partition waits for starts in progress."""
COMMIT_EVERY = 1.0
"""Seconds."""
HELD_RECORDS = 2_000
"""Maximum records in memory, or twice the largest batch if that is more."""
HELD_BYTES = 32 * 2**20


class Backoff:
    """The time of the next retry: after half a second at first, after half a minute at most."""

    def __init__(self) -> None:
        self._pause, self.until = 0.0, 0.0

    def failed(self, now: float) -> None:
        """Record a failure. Failures of one wave count once."""
        if now >= self.until:
            self._pause = min(30.0, 2 * self._pause or 0.5)
            self.until = now + self._pause

    def worked(self) -> None:
        self._pause = self.until = 0.0


class TriggerMachine:
    """The decisions of one trigger; `batching` returns the `batch` setting of a version."""

    def __init__(
        self, batching: Callable[[int], EventBatch | None], max_active: int | None = None, *, window: int = WINDOW
    ) -> None:
        self._batching, self._max_active, self._window = batching, max_active, window
        self._logs: dict[KafkaPartition, PartitionLog] = {}
        self._leaving: dict[KafkaPartition, float] = {}
        self._numbers = itertools.count(1)
        self._starts: dict[int, tuple[PartitionLog, KafkaBatch]] = {}
        self._letters: dict[int, tuple[PartitionLog, int, Judged]] = {}
        self._unwritten: list[int] = []
        self._runs: dict[str, list[tuple[PartitionLog, KafkaBatch]]] = {}
        """Known open runs -> the batches that wait for their end."""
        self._counted: int | None = None
        self._resting, self._reading = False, True
        self._start_again, self._bury_again = Backoff(), Backoff()
        self._next_commit = 0.0
        self._now = 0.0
        self._out: list[Instruction] = []
        self.started = self.repeated = 0
        """Runs that this process started, and starts whose run existed already."""
        self.received = self.filtered = self.dead = 0
        """Records that were decided, records filtered out, and dead letters written."""
        self._start_trouble = self._letter_trouble = ""

    # -- state for callers

    @property
    def partitions(self) -> tuple[KafkaPartition, ...]:
        return tuple(self._logs)

    @property
    def active(self) -> int:
        """Open runs: the known ones, or the listing's count if that is higher."""
        return max(len(self._runs), self._counted or 0)

    @property
    def trouble(self) -> str:
        """Why starts or dead letters fail now; empty: no problem."""
        return self._letter_trouble or self._start_trouble

    @property
    def under_way(self) -> int:
        """Starts and dead letters in progress."""
        return len(self._starts) + len(self._letters) - len(self._unwritten)

    @property
    def held(self) -> int:
        """Matching records and dead letters in memory that are not started or written yet."""
        return sum(log.held for log in self._logs.values())

    # -- driving

    def handle(self, happening: Happening, now: float) -> list[Instruction]:
        """Handle an event; return the instructions."""
        self._now = now
        match happening:
            case Assigned(partition, position):
                self._assigned(partition, position)
            case Revoked(partitions):
                self._revoked(partitions)
            case PartitionsLost(partitions):
                for partition in partitions:
                    self._logs.pop(partition, None)
                    self._leaving.pop(partition, None)
            case Arrived(partition, records):
                self._arrived(partition, records)
            case OutOfRange(partition, low, high):
                self._out_of_range(partition, low, high)
            case Reached(partition, offset):
                if (log := self._logs.get(partition)) and partition not in self._leaving:
                    log.position = max(log.position, offset)
            case CommitFailed(partition):
                if log := self._logs.get(partition):
                    log.committed = -1
            case RunsCounted(active):
                self._counted = active
            case PauseChanged(paused):
                self._resting = paused
            case MaxActiveChanged(max_active):
                self._max_active = max_active
            case RunEnded(run):
                self._ended(run)
            case EffectDone() | EffectFailed() | StartRefused():
                self._answered(happening)
        return self._settle()

    def tick(self, now: float) -> list[Instruction]:
        """Handle the passing of time: due batches, retries, commits. Call it several times a second."""
        self._now = now
        for log in self._logs.values():
            if log.due is not None and now >= log.due:
                log.cut()
        if now >= self._bury_again.until:
            waiting, self._unwritten = self._unwritten, []
            for ticket in waiting:
                self._bury(ticket)
        if now >= self._next_commit:
            self._next_commit = now + COMMIT_EVERY
            for log in self._logs.values():
                self._commit(log)
        return self._settle()

    def _settle(self) -> list[Instruction]:
        self._release()
        self._start()
        self._watch_memory()
        out, self._out = self._out, []
        return out

    # -- partitions

    def _assigned(self, partition: KafkaPartition, position: int) -> None:
        self._leaving.pop(partition, None)
        self._logs[partition] = PartitionLog(partition, position)

    def _revoked(self, partitions: tuple[KafkaPartition, ...]) -> None:
        for partition in partitions:
            if partition in self._logs:
                self._logs[partition].drop_ready()
                self._leaving[partition] = self._now + HANDOVER

    def _release(self) -> None:
        for partition, deadline in list(self._leaving.items()):
            log = self._logs[partition]
            if log.starting and self._now < deadline:
                continue
            self._commit(log)
            del self._logs[partition], self._leaving[partition]

    def _out_of_range(self, partition: KafkaPartition, low: int, high: int) -> None:
        log = self._logs.get(partition)
        if log is None:
            return
        at, log.position = log.position, min(max(log.position, low), high)
        if at < low:
            text = f"{partition}: records {at} to {low - 1} were deleted before they were read"
        elif at > high:
            text = f"{partition}: its end went back from {at} to {high}; records were lost by the brokers"
        else:
            text = f"{partition}: its end was below {at} for a while; records may have been lost by the brokers"
        self._out += [Note(text), Seek(partition, log.position)]

    def _commit(self, log: PartitionLog) -> None:
        if log.mark > log.committed:
            log.committed = log.mark
            self._out.append(Commit(log.partition, log.mark))

    # -- records

    def _arrived(self, partition: KafkaPartition, records: tuple[Judged, ...]) -> None:
        log = self._logs.get(partition)
        if log is None or partition in self._leaving:
            return
        for judged in records:
            self._tally(judged, log.position)
            if log.take(judged, self._batching(judged.version), self._now):
                self._dig(log, judged, judged.record.offset)

    def _tally(self, judged: Judged, position: int) -> None:
        fresh = judged.record.offset >= position
        self.received += fresh
        self.filtered += fresh and not judged.matches and not judged.reason

    def _dig(self, log: PartitionLog, judged: Judged, entry: int) -> None:
        ticket = next(self._numbers)
        self._letters[ticket] = (log, entry, judged)
        self._bury(ticket)

    def _bury(self, ticket: int) -> None:
        _, _, judged = self._letters[ticket]
        self._out.append(Bury(ticket, judged.record, judged.version, judged.reason))

    def _letter(self, answer: Answer) -> None:
        if not isinstance(answer, EffectDone):
            self._bury_again.failed(self._now)
            self._unwritten.append(answer.ticket)
            self._letter_trouble = answer.reason
            return
        log, entry, judged = self._letters.pop(answer.ticket)
        self._bury_again.worked()
        self.dead += 1
        self._letter_trouble = ""
        log.done(entry, letter=judged.record.offset)

    # -- starts

    def _answered(self, answer: Answer) -> None:
        if answer.ticket in self._letters:
            self._letter(answer)
        elif answer.ticket in self._starts:
            self._start_answered(answer)

    def _start(self) -> None:
        """Start one batch for each partition in turn, within the limits."""
        if self._resting or self._now < self._start_again.until:
            return
        turn = [log for log in self._logs.values() if log.partition not in self._leaving]
        while turn := sorted((log for log in turn if log.startable()), key=lambda log: log.last_start):
            for log in turn:
                if not self._room():
                    return
                ticket = next(self._numbers)
                batch = log.start(ticket)
                self._starts[ticket] = (log, batch)
                self._out.append(Start(ticket, batch))

    def _room(self) -> bool:
        if len(self._starts) >= self._window:
            return False
        if self._max_active is None:
            return True
        return self._counted is not None and len(self._starts) + self.active < self._max_active

    def _start_answered(self, answer: Answer) -> None:
        log, batch = self._starts.pop(answer.ticket)
        match answer:
            case EffectDone(_, memo, new):
                self._start_again.worked()
                self._start_trouble = ""
                self.started += new
                self.repeated += not new
                self._started(log, batch, int(memo.get("end", batch.end)))
            case EffectFailed(_, reason):
                self._start_again.failed(self._now)
                self._start_trouble = reason
                log.put_back(batch)
            case StartRefused() if len(batch.matched) > 1:
                log.halve(batch)
            case StartRefused(_, reason):
                log.bury(batch)
                self._dig(log, Judged(batch.first, batch.version, reason=reason), batch.first.offset)

    def _started(self, log: PartitionLog, batch: KafkaBatch, end: int) -> None:
        log.started()
        if batch.first.offset in log.chained and end != batch.end and self._logs.get(log.partition) is log:
            log.adopt(batch, end)
            if log.partition not in self._leaving:
                self._out.append(Seek(log.partition, end))
        if self._max_active is not None:
            if batch.run not in self._runs:
                self._out.append(WatchRun(batch.run))
            waiting = self._runs.setdefault(batch.run, [])
            if self._max_active == 1:
                waiting.append((log, batch))
                return
        log.done(batch.first.offset)

    def _ended(self, run: str) -> None:
        for log, batch in self._runs.pop(run, []):
            log.done(batch.first.offset)
        if self._counted:
            self._counted -= 1

    # -- memory

    def _watch_memory(self) -> None:
        """Reading stops when too much is held, and continues when half of it is gone."""
        records = sum(log.held for log in self._logs.values())
        size = sum(log.held_bytes for log in self._logs.values())
        limits = [self._limits(log) for log in self._logs.values()]
        share = max(
            records / max([HELD_RECORDS, *(one[0] for one in limits)]),
            size / max([HELD_BYTES, *(one[1] for one in limits)]),
        )
        self._reading = not self._resting and share < (1.0 if self._reading else 0.5)
        for log in self._logs.values():
            if log.reading != self._reading:
                log.reading = self._reading
                self._out.append(WantRecords(log.partition, self._reading))

    def _limits(self, log: PartitionLog) -> tuple[int, int]:
        batching = self._batching(log.open_version) if log.open_version is not None else None
        return (2 * batching.max_events, 2 * batching.max_bytes) if batching else (0, 0)
