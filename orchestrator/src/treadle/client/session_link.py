"""A session as one client sees it: a thread writes calls to the call log, and reads their ends from the ledger."""

from __future__ import annotations

import secrets
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING

from treadle.orchestrator.dispatcher.ledger.ledger import (
    CANCELLED,
    Committed,
    Copied,
    Failed,
    LedgerReader,
    Record,
    Started,
)
from treadle.orchestrator.plan.plan import CALLS
from treadle.orchestrator.run_store.call_log import (
    Called,
    CallIndex,
    CallLog,
    CallPlace,
    CallRecord,
    Cancelled,
    FunctionAdded,
    ValueAdded,
    ValueReleased,
)
from treadle.primitives.encoding.references import BlockRef
from treadle.primitives.errors import StoreError, TreadleError
from treadle.primitives.stores.input_files import is_local

from .futures import CallKey, CallProgress, Future, SessionEnded, show_running
from .session_wake import SessionWake
from .waiting_futures import WaitingFutures

if TYPE_CHECKING:
    from treadle.orchestrator.dispatcher.ledger.attempt_records import AttemptRecord
    from treadle.orchestrator.run_requests.run_views import State
    from treadle.orchestrator.run_store.run_files import RunFiles
    from treadle.primitives.blocks import Blocks

_BUSY, _QUIET, _REMOTE = 0.001, 0.02, 0.25
"""Seconds between two looks at the ledger: soon after a sign of life unless new objects are announced, else, on a store
over the network."""
_SOON = 1.0
_AGAIN = 0.5
"""Seconds after a passing error of the store."""
SILENCE = 3.0
"""Seconds without an end of a call, while one is waited for, after which the driver is looked for."""


class SessionLink:
    """Sends calls and delivers their results. For any number of threads."""

    def __init__(self, files: RunFiles, blocks: Blocks, look: Callable[[], State]) -> None:
        """`look`: ensures a driver for the run, and returns the run's state. Called after `SILENCE`."""
        self._files, self._look = files, look
        self._writer, self._keys = secrets.token_hex(6), count(1)
        self._log = CallLog(files, self._writer)
        self._ledger = LedgerReader(files.store, files.segment(CALLS), files.key)
        self._index = CallIndex()
        self._lock = threading.RLock()
        self._news = threading.Condition(self._lock)
        """A record was written or read."""
        self._wake = SessionWake(self._ledger.folder)
        self._outbox: list[CallRecord] = []
        self._counts: defaultdict[str, CallProgress] = defaultdict(CallProgress)
        self._ends: dict[CallPlace, BlockRef | Failed] = {}
        self._released: deque[str] = deque()
        """Keys of values that this client makes no further calls with."""
        self._begun: set[CallPlace] = set()
        """Partitions that have begun and have not ended."""
        self._mine: set[str] = set()
        """Keys of the calls that were made here and are not on record yet."""
        self._failing: set[str] = set()
        """Keys of the calls of which one has failed."""
        self._own: set[CallPlace] = set()
        """Partitions of calls that were made here and have not ended."""
        self._futures = WaitingFutures(blocks, self._ends)
        self._error: TreadleError | None = None
        """Why no call is sent and no end is read any more."""
        self.closed = False
        self._closing, self._local = False, is_local(files.store.url)
        self._last = time.monotonic()
        self._take_calls(self._log.read())
        self._take_ends(self._ledger.read())
        self._thread = threading.Thread(target=self._serve, name="treadle-session", daemon=True)
        self._thread.start()

    # -- sending

    def key(self) -> str:
        """A key that no call or function of the session has."""
        return f"{self._writer}-{next(self._keys)}"

    def send(self, *records: CallRecord, wake: bool = True) -> None:
        """Have records written, soon and in order. Raises the error that ended the session here."""
        with self._lock:
            self._raise_error()
            self._outbox += records
            for record in records:
                if isinstance(record, Called):
                    self._mine.add(record.key)
        if wake:
            self._wake.rouse()

    def claim(self, key: str) -> bool:
        """Wait for a call in `wait_for_own`. False: the call is unknown, or a part of it has failed."""
        with self._lock:
            if key in self._failing or not (key in self._mine or key in self._index.first):
                return False
            self._mine.add(key)
            if key in self._index.first:
                self._note_own(self._index.calls[key])
            return True

    def knows(self, key: str) -> bool:
        """Whether calls have this key."""
        with self._lock:
            return key in self._mine or key in self._index.first

    def send_value(self, key: str, block: BlockRef) -> None:
        """As `send`, for a value that this client holds until `release`. It is written with the call or future that
        follows."""
        self.send(ValueAdded(key, block, self._writer), wake=False)

    def release(self, key: str) -> None:
        """Make no further calls with a value. It takes no lock: futures are collected anywhere."""
        self._released.append(key)

    def latest(self, name: str) -> FunctionAdded | None:
        """The last function of this name whose calls may be reused."""
        with self._lock:
            known = reversed(self._index.functions.values())
            return next((one for one in known if one.name == name and one.content), None)

    def wait_for_own(self) -> None:
        """Wait until the calls that were made here have ended. Raises the error that ended the session here."""
        self._await(lambda: not self._own and not self._outbox)

    def close(self) -> None:
        """Write the remaining calls, and stop. Futures that are not done then raise SessionEnded. Raises the error that
        ended the session here."""
        self._closing = True
        self._wake.rouse()
        self._thread.join()
        if not self.closed:
            self._raise_error()

    # -- futures

    def future(self, call: CallKey) -> Future:
        """A future of a call that was sent, or that another client sent."""
        future = Future(self, call)
        with self._lock:
            self._place(future)
        self._wake.rouse()
        if self._error:
            self._futures.settle(self._error)
        return future

    def name(self, call: CallKey) -> str:
        place = self._placed(call)
        return f"{place.segment}/{place.partition}" + (f"/{call.position}" if self._chunk(call.key) > 1 else "")

    def records(self, call: CallKey) -> Sequence[AttemptRecord]:
        from .attempt_logs import LogFollower

        place = self._placed(call)
        return [one for one in LogFollower(self._files).new() if CallPlace(one.segment, one.partition) == place]

    def cancel(self, future: Future) -> bool:
        if future.done() or self._chunk(future.call.key) > 1:
            return future.cancelled()
        place = self._placed(future.call)
        self.send(*self._cancelled(future.call))
        with self._news:
            self._news.wait_for(lambda: self._error or place in self._ends or place in self._begun)
            end = self._ends.get(place)
            return isinstance(end, Failed) and end.failure == CANCELLED

    def _cancelled(self, call: CallKey) -> Iterator[Cancelled]:
        """Cancel a call, and the calls that only it needs."""
        _, *inner = self._index.with_inner(call.key)
        yield Cancelled(call.key, call.partition)
        for key in inner:
            yield from (Cancelled(key, partition) for partition in range(len(self._index.places(key))))

    def withdraw(self, future: Future) -> None:
        """Do not begin a call that needs no others, if it has not begun. It does not wait for the answer."""
        self.send(Cancelled(future.call.key, future.call.partition))

    def calls(self) -> list[Called]:
        """The calls of the session so far, of all clients, in order."""
        with self._lock:
            return list(self._index.calls.values())

    def key_of(self, segment: str, partition: int) -> CallKey:
        """The call of a partition. Raises KeyError for an unknown one."""
        with self._lock:
            called, position = self._index.call_at(CallPlace(segment, partition))
            return CallKey(called.key, position)

    def counts(self) -> dict[str, CallProgress]:
        """The numbers of calls, of all clients, by function."""
        with self._lock:
            return {name: replace(one) for name, one in self._counts.items()}

    def _chunk(self, key: str) -> int:
        self._await(lambda: key in self._index.calls)
        return self._index.calls[key].chunk

    def _placed(self, call: CallKey) -> CallPlace:
        self._await(lambda: call.key in self._index.first)
        return self._index.place(call.key, call.partition)

    def _await(self, holds: Callable[[], bool]) -> None:
        with self._news:
            self._news.wait_for(lambda: self._error or holds())
            if not holds():
                self._raise_error()

    def _raise_error(self) -> None:
        if self._error is not None:
            raise self._error

    def _place(self, future: Future) -> None:
        call = future.call
        place = self._index.place(call.key, call.partition) if call.key in self._index.first else None
        if place in self._begun:
            show_running(future)
        self._futures.add(future, place)

    # -- the thread

    def _serve(self) -> None:
        run = self._files.run
        error: TreadleError = SessionEnded(f"{run} was closed here", f"attach({run!r}) finds its calls and results.")
        try:
            while not self._closing or self._outbox:
                self._try_turn()
                self._wake.wait(self._interval())
            self.closed = True
        except TreadleError as found:
            error = found
        except Exception as defect:  # noqa: BLE001  the thread's end must reach every waiting future
            error = SessionEnded(f"the session broke: {type(defect).__name__}: {defect}")
        self._wake.close()
        with self._news:
            self._error = error
            self._news.notify_all()
        self._futures.settle(error)

    def _try_turn(self) -> None:
        """A turn. After a passing error of the store, the next one does the same again."""
        try:
            self._turn()
        except StoreError as error:
            if not error.retryable:
                raise
            time.sleep(_AGAIN)

    def _turn(self) -> None:
        read = self._write() or self._log.read() if self._log.may_have_more() or self._outbox else []
        self._take_calls(read)
        self._take_ends(self._ledger.read())
        self._futures.deliver()
        if self._waiting_for_ends() and time.monotonic() - self._last > SILENCE:
            self._last = time.monotonic()
            state = self._look()
            if state not in ("running", "paused"):
                self._take_ends(self._ledger.read())
                hint = f"See: treadle show {self._files.run}. For further calls start a new session."
                raise SessionEnded(f"the session's run {state}", hint)

    def _waiting_for_ends(self) -> bool:
        return bool(self._own) or self._futures.some_wait

    def _interval(self) -> float:
        if self._outbox or self._futures.some_are_ready:
            return 0.0
        if not self._local:
            return _REMOTE
        return _BUSY if time.monotonic() - self._last < _SOON and not self._wake.announces() else _QUIET

    def _write(self) -> list[CallRecord]:
        with self._lock:
            while self._released:
                self._outbox.append(ValueReleased(self._released.popleft(), self._writer))
            batch = list(self._outbox)
        if not batch:
            return []
        chain = self._log.write(batch)
        self._last = time.monotonic()
        with self._news:
            del self._outbox[: len(batch)]
            self._news.notify_all()
        return chain

    def _take_calls(self, records: Iterable[CallRecord]) -> None:
        with self._news:
            for record in records:
                if self._index.ended:
                    self._refuse_own(record)
                    continue
                if self._index.add(record) and isinstance(record, Called | ValueAdded):
                    self._take_call(record)
            self._news.notify_all()

    def _take_call(self, record: Called | ValueAdded) -> None:
        place = self._index.first[record.key]
        if isinstance(record, Called):
            self._counts[place.segment].calls += record.calls
            self._note_own(record)
        else:
            self._ends[place] = record.block
        for future in self._futures.take(record.key):
            self._place(future)

    def _take_ends(self, records: Sequence[Record]) -> None:
        if not records:
            return
        self._last = time.monotonic()
        with self._news:
            for record in records:
                self._take_end(record)
            self._news.notify_all()

    def _take_end(self, record: Record) -> None:
        match record:
            case Started(segment, attempts):
                for partition in attempts:
                    self._begin(CallPlace(segment, partition))
            case Committed(segment, outcome) if outcome.block is not None:
                failed = sum(count.failed for count in outcome.counts.values())
                self._note(CallPlace(segment, outcome.partition), outcome.block, failed)
            case Copied(segment):
                for partition, digests in record.by_partition():
                    self._note_copy(CallPlace(segment, partition), digests)
            case Failed(segment, partition) if record.final:
                place = CallPlace(segment, partition)
                self._note(place, record, self._calls_in(place))

    def _begin(self, place: CallPlace) -> None:
        if place not in self._begun and place not in self._ends:
            self._begun.add(place)
            self._counts[place.segment].running += self._calls_in(place)
        for future in self._futures.at(place):
            show_running(future)

    def _refuse_own(self, record: CallRecord) -> None:
        """A call that comes after the end of the session is ignored. Raises SessionEnded for one that was made here."""
        if isinstance(record, Called) and record.key in self._mine and record.key not in self._index.first:
            raise SessionEnded("the session has ended", "Start a new session for more calls.")

    def _note_own(self, called: Called) -> None:
        if called.key in self._mine:
            self._mine.discard(called.key)
            self._own.update(place for place in self._index.places(called.key) if place not in self._ends)

    def _calls_in(self, place: CallPlace) -> int:
        called, position = self._index.call_at(place)
        return min(called.chunk, called.calls - position * called.chunk)

    def _note(self, place: CallPlace, end: BlockRef | Failed, failed: int) -> None:
        if place not in self._ends:
            counts, calls = self._counts[place.segment], self._calls_in(place)
            counts.ended += calls
            counts.running -= calls if place in self._begun else 0
            counts.failed += failed
            if failed:
                self._failing.add(self._index.call_at(place)[0].key)
        self._ends[place] = end
        self._begun.discard(place)
        self._own.discard(place)
        self._futures.ended(place)

    def _note_copy(self, place: CallPlace, digests: Sequence[bytes]) -> None:
        end = self._ends.get(place)
        if isinstance(end, BlockRef):
            self._ends[place] = end.in_store(digests)
            self._futures.ended(place)
