"""Futures until they have their outcome."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from threading import RLock

from treadle.orchestrator.dispatcher.ledger.ledger import Failed
from treadle.orchestrator.run_store.call_log import CallPlace
from treadle.primitives.blocks import Blocks
from treadle.primitives.encoding.references import BlockRef
from treadle.primitives.errors import TreadleError

from .call_results import CallResults
from .futures import Future


class WaitingFutures:
    """Gives futures the ends of their calls. For any number of threads."""

    def __init__(self, blocks: Blocks, ends: Mapping[CallPlace, BlockRef | Failed]) -> None:
        self._results, self._ends, self._lock = CallResults(blocks), ends, RLock()
        self._unplaced: defaultdict[str, list[Future]] = defaultdict(list)
        """Futures of calls that are not on record yet, by the call's key."""
        self._placed: defaultdict[CallPlace, list[Future]] = defaultdict(list)
        self._ready: list[CallPlace] = []
        """Partitions that have ended and have futures."""

    def add(self, future: Future, place: CallPlace | None) -> None:
        """`place`: of its call, if that is on record."""
        with self._lock:
            if place is None:
                self._unplaced[future.call.key].append(future)
                return
            self._placed[place].append(future)
            if place in self._ends:
                self._ready.append(place)

    def take(self, key: str) -> Sequence[Future]:
        """Take out the futures of a call that is on record now."""
        with self._lock:
            return self._unplaced.pop(key, ())

    def at(self, place: CallPlace) -> Sequence[Future]:
        return self._placed.get(place, ())

    def ended(self, place: CallPlace) -> None:
        """The call has ended, or its result is at one more location."""
        with self._lock:
            if place in self._placed:
                self._ready.append(place)

    @property
    def some_are_ready(self) -> bool:
        return bool(self._ready)

    @property
    def some_wait(self) -> bool:
        return any(self._placed.values())

    def deliver(self) -> None:
        """Give all futures the ends that are there."""
        with self._lock:
            ready, self._ready = self._ready, []
        for place in ready:
            self._deliver(place)

    def _deliver(self, place: CallPlace) -> None:
        with self._lock:
            futures, end = self._placed.pop(place, []), self._ends[place]
        for future in futures:
            if not self._results.deliver(future, place, end):
                with self._lock:  # until the driver has copied the block, or has had it computed again
                    self._placed[place].append(future)

    def settle(self, error: TreadleError) -> None:
        """Give all futures the ends that are there, or else the error: no further end is read."""
        self.deliver()
        with self._lock:
            left = [one for futures in (*self._placed.values(), *self._unplaced.values()) for one in futures]
            self._placed.clear()
            self._unplaced.clear()
        for future in left:
            future.set_exception(error)
