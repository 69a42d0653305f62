"""Call records: written before the calls are made, so that a later driver finds calls that are still running. Pure.

    runs/<run>/functions/<segment>/calls/<session>-<n>          sealed: calls recorded together before they are made
    runs/<run>/functions/<segment>/reports/<session>-<m>/<n>    sealed: the reports of call n; the first write wins
    ....alive                                                   sealed: the last time that a long call was running

A session is one executor of one driver at one segment. Its name is random, so that no two calls share an object. A
thousand calls share a folder of reports, so that one listing finds all of them and fits into a page of S3.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import xxhash
from msgspec import Struct
from msgspec.structs import replace

from treadle.primitives import sealing
from treadle.primitives.encoding.decoding import decoded
from treadle.primitives.run_paths import run_folder

from ..program import Task

ALIVE_AFTER, ALIVE_EVERY = 2.0, 20.0
"""Seconds until a function first writes its heartbeat, and between heartbeats. Most calls end before."""
PATIENCE = 3 * ALIVE_EVERY
"""Seconds without a heartbeat after which a function counts as gone."""
RESERVE = 5.0
"""Seconds reserved for stacks and reports before the provider ends a function; at most a quarter of its time."""
START_SECONDS = 15.0
"""Seconds added to a task's own time: cold start, fetching the bundle, and writing the reports."""
_FOLDER = 1000
"""Objects in a page of ListObjectsV2 (Amazon S3 API reference)."""


Work = tuple[int, int]
"""A partition, and the hash of the program and of its input. An adopted outcome must have the same hash."""


def work_of(task: Task) -> dict[int, Work]:
    """The work of each partition, by its index."""
    program = msgspec.msgpack.encode(task.program)
    inputs = {one.index: msgspec.msgpack.encode(one.input) for one in task.partitions}
    return {index: (index, xxhash.xxh3_64_intdigest(program + data)) for index, data in inputs.items()}


class CallRecord(Struct, frozen=True, array_like=True):
    """One call of a function that is about to be made."""

    reports: str
    """Name of the object for its reports."""
    work: tuple[Work, ...]
    made: float
    """Seconds since the epoch."""
    begins: float
    """Seconds since the epoch. By then it has begun and sent a heartbeat, or has ended, or will never begin."""
    until: float
    """Seconds since the epoch; after that it cannot be running any more."""

    def lost(self, now: float, waits: float) -> CallRecord:
        """The call after its answer was lost at `now`, where calls begin within `waits` seconds.

        Its first heartbeat must then arrive within `waits` plus `START_SECONDS`, which is sooner than the provider's
        maximum queue time allows.
        """
        return replace(self, begins=min(self.begins, now + START_SECONDS + waits))

    def may_last(self, alive: float | None) -> float:
        """The latest time at which it may be running, given its last heartbeat `alive`; None: no heartbeat yet."""
        return self.begins if alive is None else min(alive + PATIENCE, self.until)


def usable(seconds: float) -> float:
    """Seconds that a task may use of a call that the provider ends after `seconds`."""
    return seconds - min(RESERVE, seconds / 4)


class ObjectNames(Struct, frozen=True):
    """Object names for a session's calls of one segment."""

    segment: str
    """`runs/<run>/functions/<segment>`"""
    session: str

    @staticmethod
    def of(run: str, segment: str, session: str) -> ObjectNames:
        return ObjectNames(f"runs/{run_folder(run)}/functions/{segment}", session)

    @property
    def calls(self) -> str:
        return f"{self.segment}/calls"

    def batch(self, number: int) -> str:
        return f"{self.calls}/{self.session}-{number}"

    def reports(self, number: int) -> str:
        return f"{self.segment}/reports/{self.session}-{number // _FOLDER}/{number}"


def seal_calls(name: str, calls: list[CallRecord], key: bytes) -> bytes:
    return sealing.seal(key, name, msgspec.msgpack.encode(calls))


def open_calls(name: str, sealed: bytes, key: bytes) -> list[CallRecord]:
    """Raises CorruptError unless the calls were sealed for the object `name`, by this version of treadle."""
    return decoded(list[CallRecord], name, sealing.unseal(key, name, sealed))


class CallsUnderWay:
    """Calls of one segment whose end is not known, by their work.

    A call is removed when its end is known. Outcomes of a call are taken only once: a second request for a partition
    that has an outcome means that its block was lost.
    """

    def __init__(self) -> None:
        self._calls: dict[Work, dict[str, CallRecord]] = {}

    def add(self, calls: Iterable[CallRecord]) -> None:
        for call in calls:
            for work in call.work:
                known = self._calls.setdefault(work, {})
                if call.reports not in known or known[call.reports].made < call.made:
                    known[call.reports] = call

    def taken(self, call: CallRecord, works: Iterable[Work]) -> None:
        """Remove the call: its outcomes for these works were reported, or it has none."""
        for work in works:
            calls = self._calls.get(work, {})
            calls.pop(call.reports, None)
            if not calls:
                self._calls.pop(work, None)

    def at(self, works: Iterable[Work]) -> list[CallRecord]:
        """Calls that may return any of them, the newest first."""
        found = {name: call for work in works for name, call in self._calls.get(work, {}).items()}
        return sorted(found.values(), key=lambda call: -call.made)
