"""Decides when a member is used, dismissed or replaced. Pure; times are seconds of one clock."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

import msgspec

from treadle.primitives.errors import FailureClass

from ..functions.call_records import usable
from ..functions.payload import Blockset
from ..program import Failure, Outcome, Report, Task

HANDOVER = 30.0
"""Seconds reserved at the end of a member for handing its blocks to the next member, which must start first."""
HANDOVER_SHARE = 0.2
"""Maximum share of a member's total time for the handover."""
_SHARE = 0.1
"""Share of its working time that a task without a `timeout` is assumed to need."""
_FRESH = 0.1
"""Share of its working time: a task that started earlier had practically all of it."""
SETTLED = 1.0
"""Idle seconds after which a member may leave to make room for a refused call. Between two tasks of one stage a member
is idle for milliseconds only."""
LONE = 10.0
"""The same for a member whose blocks no other member can take over."""
GATHERING = 60.0
"""Seconds in which the functions of a gang must all start. Otherwise they leave, and the gang waits."""
OVER = "its member's time was over"


class CallWindow(NamedTuple):
    """The time limits of one long call, in seconds from its start."""

    work: float
    """Until then it runs tasks."""
    total: float
    """Until then it serves blocks."""

    @staticmethod
    def of(seconds: float) -> CallWindow:
        """The limits of a call that the provider ends after `seconds`."""
        total = usable(seconds)
        return CallWindow(total - min(HANDOVER, total * HANDOVER_SHARE), total)


def needs(task: Task, span: CallWindow) -> float:
    """Seconds a member should have left to begin the task. Work it does not finish must be called again."""
    return min(task.timeout or span.work * _SHARE, span.work)


class SlotMember(NamedTuple):
    """The state of a slot's member."""

    born: float
    """The time of the call. The member may live a little longer than this implies, never shorter."""
    size: int
    """Memory of the function, in bytes."""
    fresh: bool
    """It has not run any task yet."""


def choose(
    member: SlotMember | None, span: CallWindow, size: int, seconds: float, now: float
) -> Literal["call", "use", "replace"]:
    """Decide for a task that needs a function of `size` bytes, and `seconds`."""
    if member is None:
        return "call"
    late = now + seconds > member.born + span.work and not member.fresh
    return "replace" if member.size < size or late else "use"


def rest(
    member: SlotMember, span: CallWindow, used: float, idle: float, holds: bool, now: float
) -> tuple[Literal["keep", "dismiss", "replace"], float]:
    """Decide about an idle member, and when to decide the next time. `used`: end of its last task; `idle`: seconds it
    is kept after that; `holds`: it has blocks that other members may need."""
    leaves, works_until = used + idle, member.born + span.work
    if now >= leaves:
        return "dismiss", now
    if now >= works_until:
        return ("replace" if holds else "dismiss"), now
    return "keep", min(leaves, works_until)


class Resting(NamedTuple):
    """An idle member."""

    slot: str
    used: float
    """The end of its last task."""
    holds: bool
    """It has blocks that other members may need."""


def leavers(resting: Sequence[Resting], working: int, wanted: int, now: float) -> list[tuple[str, str]]:
    """The slots whose members leave, so that `wanted` refused calls can be made. Each is paired with the slot whose
    member takes over its blocks; empty: it has none, or no other member can take them. `working`: number of members
    with a task.

    Members without blocks leave first, then the members that have been idle longest. The last member with blocks stays
    while others work or have just worked, and for `LONE` seconds, because its blocks would have to be recomputed.
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


def not_their_fault(reports: list[Report], began: float, ended: float, span: CallWindow) -> list[Report]:
    """Convert a timeout at the end of a member to a lost worker, if the member had run other tasks before.

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
    """The blocks that one member holds, by run, and their known hosts."""

    def __init__(self) -> None:
        self._blocks: dict[tuple[str, str], dict[str, int]] = {}
        self._hosts: dict[tuple[str, str], dict[str, None]] = {}

    def __bool__(self) -> bool:
        return bool(self._blocks)

    def note(self, task: Task, reports: Iterable[Report]) -> None:
        """Add the blocks that the outcomes of a task left there."""
        place = (task.job.run, task.job.store)
        for report in reports:
            refs = (report.block, report.failed_items) if isinstance(report, Outcome) else ()
            for ref in refs:
                hosts = [one.removeprefix("host:") for one in ref.locations if one.startswith("host:")] if ref else []
                if ref and hosts:
                    self._blocks.setdefault(place, {})[ref.name] = ref.size
                    self._hosts.setdefault(place, {})[hosts[0]] = None

    def add(self, other: Holdings) -> None:
        """Add the blocks of another member, which this member has taken over."""
        for place, blocks in other._blocks.items():
            self._blocks.setdefault(place, {}).update(blocks)
            self._hosts[place] = {**other._hosts[place], **self._hosts.get(place, {})}

    def sets(self) -> tuple[Blockset, ...]:
        """The blocks to adopt. They are pulled from the last host in each set."""
        return tuple(
            Blockset(run, store, tuple(self._hosts[run, store]), tuple(blocks.items()))
            for (run, store), blocks in self._blocks.items()
        )
