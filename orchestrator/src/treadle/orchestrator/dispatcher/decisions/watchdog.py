"""Stuck slots, found by comparing the pool's view of each slot with the slot's own report. Pure.

    the pool's view                the slot reports     after PATIENCE seconds
    a task runs in it              no or another task   `LOST`: the task ends as `worker lost`, and the slot is reset
    no task runs in it             a task               `STRAY`: the slot is reset
    it should be ending its task   anything             `STUCK`: the slot is out of service until its task has ended

The clock is passed in. A pause between two looks counts for `LONGEST_STEP` seconds at most: a driver that was itself
stopped for a minute has not seen its slots disagree for a minute.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from msgspec import Struct

PATIENCE = 30.0
"""Seconds that pool and slot may disagree. Killing a worker that holds much memory takes a while."""
LONGEST_STEP = 10.0
"""Maximum of seconds that one pause between two looks counts."""


class Finding(Enum):
    """The fault of a slot."""

    LOST = "lost"
    STRAY = "stray"
    STUCK = "stuck"


class SlotObservation(Struct, frozen=True):
    """One slot at one look."""

    believed: str
    """Id of the task that the pool believes to run there; empty: none."""
    said: str
    """Id of the task that the slot reports; empty: none."""
    ending: bool = False
    """The slot was ordered to end its task, or to reset."""

    @property
    def finding(self) -> Finding | None:
        """The fault that the slot has if this state lasts."""
        if self.ending:
            return Finding.STUCK
        if self.believed == self.said:
            return None
        return Finding.LOST if self.believed else Finding.STRAY


class _Doubt(Struct):
    seen: SlotObservation
    seconds: float = 0.0
    reported: bool = False


class Watchdog:
    """Call `look` every few seconds. A finding is reported once, and again only after the slot has changed."""

    def __init__(self, patience: float = PATIENCE) -> None:
        self._patience = patience
        self._doubts: dict[str, _Doubt] = {}
        self._last: float | None = None

    def look(self, slots: Mapping[str, SlotObservation], now: float) -> dict[str, Finding]:
        """Slots whose fault has lasted for the whole patience. `now`: monotonic seconds."""
        step = 0.0 if self._last is None else min(max(now - self._last, 0.0), LONGEST_STEP)
        self._last = now
        before, self._doubts = self._doubts, {}
        for slot, seen in slots.items():
            if seen.finding is not None:
                known = before.get(slot)
                if known is not None and known.seen == seen:
                    known.seconds += step
                self._doubts[slot] = known if known is not None and known.seen == seen else _Doubt(seen)
        return {slot: finding for slot, doubt in self._doubts.items() if (finding := self._due(doubt)) is not None}

    def _due(self, doubt: _Doubt) -> Finding | None:
        if doubt.reported or doubt.seconds < self._patience:
            return None
        doubt.reported = True
        return doubt.seen.finding
