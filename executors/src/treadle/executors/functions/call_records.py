"""Calls on record: written before they are made, so that a later driver finds those still under way. Pure.

    runs/<run>/functions/<segment>/calls/<session>-<n>          sealed: the calls that were about to be made together
    runs/<run>/functions/<segment>/reports/<session>-<m>/<n>    sealed: what call n reported; the first to write it wins
    ....alive                                                   sealed: when a long call last said that it is at work

A session is one executor of one driver at one segment; its name is random, so that no two calls share an object. A
thousand calls share a folder of reports, so that one listing finds all that came and is no longer than a page of S3's.
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
"""Seconds after which a function first writes down that it is at work, and then between times. Most never do."""
PATIENCE = 3 * ALIVE_EVERY
"""Seconds without a sign of life after which a function counts as gone."""
RESERVE = 5.0
"""Seconds kept for stacks and reports before the provider ends a function; at most a quarter of what it has."""
START_SECONDS = 15.0
"""Granted on top of a task's own time: cold start, fetching the bundle, and writing the reports down."""
_FOLDER = 1000
"""Objects in a page of ListObjectsV2 (Amazon S3 API reference)."""


Work = tuple[int, int]
"""A partition, and the hash of the program and of its input: what is adopted must have come from the same."""


def work_of(task: Task) -> dict[int, Work]:
    """By partition."""
    program = msgspec.msgpack.encode(task.program)
    inputs = {one.index: msgspec.msgpack.encode(one.input) for one in task.partitions}
    return {index: (index, xxhash.xxh3_64_intdigest(program + data)) for index, data in inputs.items()}


class Call(Struct, frozen=True, array_like=True):
    """One call of a function, about to be made."""

    reports: str
    """Name of the object its reports go to."""
    work: tuple[Work, ...]
    made: float
    """Seconds since the epoch."""
    begins: float
    """Seconds since the epoch; by then it has begun and said so, or is over, or it never will be."""
    until: float
    """Seconds since the epoch; after that it cannot be under way any more."""

    def lost(self, now: float, waits: float) -> Call:
        """The answer was lost at `now`, where calls begin within `waits` seconds: it has `START_SECONDS` more than
        that to say that it is at work, and not as long as the provider may keep a call."""
        return replace(self, begins=min(self.begins, now + START_SECONDS + waits))

    def may_last(self, alive: float | None) -> float:
        """The moment to which it may be under way, having last said that it is at `alive`; None: not yet."""
        return self.begins if alive is None else min(alive + PATIENCE, self.until)


def usable(seconds: float) -> float:
    """What a task may take of a call that the provider ends after so many seconds."""
    return seconds - min(RESERVE, seconds / 4)


class Names(Struct, frozen=True):
    """Where a session's calls for one segment are kept."""

    segment: str
    """`runs/<run>/functions/<segment>`"""
    session: str

    @staticmethod
    def of(run: str, segment: str, session: str) -> Names:
        return Names(f"runs/{run_folder(run)}/functions/{segment}", session)

    @property
    def calls(self) -> str:
        return f"{self.segment}/calls"

    def batch(self, number: int) -> str:
        return f"{self.calls}/{self.session}-{number}"

    def reports(self, number: int) -> str:
        return f"{self.segment}/reports/{self.session}-{number // _FOLDER}/{number}"


def seal_calls(name: str, calls: list[Call], key: bytes) -> bytes:
    return sealing.seal(key, name, msgspec.msgpack.encode(calls))


def open_calls(name: str, sealed: bytes, key: bytes) -> list[Call]:
    """Raises CorruptError unless they were sealed for the object `name`, by this version of treadle."""
    return decoded(list[Call], name, sealing.unseal(key, name, sealed))


class CallsUnderWay:
    """Calls of one segment whose end nobody has seen, by their work.

    A call leaves when its end is known. What was taken from one is not taken again: whoever asks a second time for a
    partition that has an outcome has lost its block.
    """

    def __init__(self) -> None:
        self._calls: dict[Work, dict[str, Call]] = {}

    def add(self, calls: Iterable[Call]) -> None:
        for call in calls:
            for work in call.work:
                known = self._calls.setdefault(work, {})
                if call.reports not in known or known[call.reports].made < call.made:
                    known[call.reports] = call

    def taken(self, call: Call, works: Iterable[Work]) -> None:
        """Its outcomes of these were reported, or it is known to have none."""
        for work in works:
            calls = self._calls.get(work, {})
            calls.pop(call.reports, None)
            if not calls:
                self._calls.pop(work, None)

    def at(self, works: Iterable[Work]) -> list[Call]:
        """Calls that may bring any of them, the newest first."""
        found = {name: call for work in works for name, call in self._calls.get(work, {}).items()}
        return sorted(found.values(), key=lambda call: -call.made)
