"""When a member is used, left to itself, or another one takes its place. Pure; times are seconds of one clock."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

import msgspec

from treadle.primitives.errors import FailureClass

from ..functions.call_records import usable
from ..functions.payload import Blockset
from ..program import Failure, Outcome, Report, Task

HANDOVER = 30.0
"""Seconds kept at the end of a member for handing its blocks to the next one, which has to start first."""
HANDOVER_SHARE = 0.2
"""At most, of all the time that a member has."""
_SHARE = 0.1
"""Of its working time: what a task without a `timeout` is supposed to need."""
_FRESH = 0.1
"""Of its working time: a task that began earlier had all the time there is."""
SETTLED = 1.0
"""Seconds without a task after which a member may leave for a call that the provider refuses: between two tasks of one
stage it has none for milliseconds."""
LONE = 10.0
"""The same for a member whose blocks nothing can take over."""
OVER = "its member's time was over"


class Span(NamedTuple):
    """The time of one long call, in seconds from its beginning."""

    work: float
    """Tasks run."""
    total: float
    """Blocks are served."""

    @staticmethod
    def of(seconds: float) -> Span:
        """Of a call that the provider ends after so many seconds."""
        total = usable(seconds)
        return Span(total - min(HANDOVER, total * HANDOVER_SHARE), total)


def needs(task: Task, span: Span) -> float:
    """Seconds a member should have left to begin the task: what it has not done then is called for again."""
    return min(task.timeout or span.work * _SHARE, span.work)


class Standing(NamedTuple):
    """A slot's member as its slot sees it."""

    born: float
    """When it was called for: it may live a little longer than that says, never shorter."""
    size: int
    """Bytes of the function."""
    fresh: bool
    """It has done nothing yet."""


def choose(
    member: Standing | None, span: Span, size: int, seconds: float, now: float
) -> Literal["call", "use", "replace"]:
    """For a task that wants a function of `size` bytes, and `seconds`."""
    if member is None:
        return "call"
    late = now + seconds > member.born + span.work and not member.fresh
    return "replace" if member.size < size or late else "use"


def rest(
    member: Standing, span: Span, used: float, idle: float, holds: bool, now: float
) -> tuple[Literal["keep", "dismiss", "replace"], float]:
    """What becomes of a member without a task, and when to ask again. `used`: when its last task ended; `idle`: how
    long it is kept after that; `holds`: it has blocks that others may want."""
    leaves, works_until = used + idle, member.born + span.work
    if now >= leaves:
        return "dismiss", now
    if now >= works_until:
        return ("replace" if holds else "dismiss"), now
    return "keep", min(leaves, works_until)


class Resting(NamedTuple):
    """A member without a task."""

    slot: str
    used: float
    """When its last task ended."""
    holds: bool
    """It has blocks that others may want."""


def leavers(resting: Sequence[Resting], working: int, wanted: int, now: float) -> list[tuple[str, str]]:
    """Slots whose members leave, so that `wanted` calls which the provider refuses can be made; beside each the slot
    whose member takes the blocks, empty where there are none or nothing can take them. `working`: members with a task.

    Members without blocks leave first, then those that have been idle for longest. The last member with blocks stays
    while others work or have just worked, and for `LONE` seconds: what it holds would have to be made again.
    """
    settled = sorted((one for one in resting if now - one.used >= SETTLED), key=lambda one: (one.holds, one.used))
    found: list[tuple[str, str]] = []
    for one in settled[:wanted]:
        if not one.holds:
            found.append((one.slot, ""))
        elif one is not settled[-1]:
            found.append((one.slot, settled[-1].slot))
        elif len(resting) == 1 and not working and now - one.used >= LONE:
            found.append((one.slot, ""))
    return found


def not_their_fault(reports: list[Report], began: float, ended: float, span: Span) -> list[Report]:
    """A partition that was cut off by the end of a member which had worked for others before has lost its worker.

    `began` and `ended`: of the task, in seconds of the member's life.
    """
    last = reports[-1] if reports else None
    if not isinstance(last, Failure) or last.failure is not FailureClass.TIMED_OUT:
        return reports
    if ended < span.work or began < span.work * _FRESH:
        return reports
    lost = msgspec.structs.replace(last, failure=FailureClass.WORKER_LOST, how=OVER, message=OVER)
    return [*reports[:-1], lost]


class Holdings:
    """The blocks that one member holds, by run, and the hosts that they are known to be on."""

    def __init__(self) -> None:
        self._blocks: dict[tuple[str, str], dict[str, int]] = {}
        self._hosts: dict[tuple[str, str], dict[str, None]] = {}

    def __bool__(self) -> bool:
        return bool(self._blocks)

    def note(self, task: Task, reports: Iterable[Report]) -> None:
        """What the outcomes of a task left there."""
        place = (task.job.run, task.job.store)
        for report in reports:
            refs = (report.block, report.failed_items) if isinstance(report, Outcome) else ()
            for ref in refs:
                hosts = [one.removeprefix("host:") for one in ref.locations if one.startswith("host:")] if ref else []
                if ref and hosts:
                    self._blocks.setdefault(place, {})[ref.name] = ref.size
                    self._hosts.setdefault(place, {})[hosts[0]] = None

    def add(self, other: Holdings) -> None:
        """What another member held is here now."""
        for place, blocks in other._blocks.items():
            self._blocks.setdefault(place, {}).update(blocks)
            self._hosts[place] = {**other._hosts[place], **self._hosts.get(place, {})}

    def sets(self) -> tuple[Blockset, ...]:
        """The host that is asked for them is the last."""
        return tuple(
            Blockset(run, store, tuple(self._hosts[run, store]), tuple(blocks.items()))
            for (run, store), blocks in self._blocks.items()
        )
