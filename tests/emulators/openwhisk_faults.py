"""What goes wrong in the emulated OpenWhisk, as data."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

Kind = Literal[
    "throttle minute",
    "throttle concurrent",
    "unavailable",
    "platform error",
    "lose response",
    "lose call",
    "kill before init",
    "kill before run",
    "kill during run",
    "kill after run",
    "run twice",
    "late record",
]
"""throttle: 429 of either kind. unavailable: 503, nothing runs. platform error: it ran, and the record says `whisk
internal error`. lose response: it ran, and the connection is cut. lose call: it is cut before anything runs. kill: the
container, at that phase. run twice: two containers run it at once, one answer is kept. late record: a blocking call
turns into 202 at once, and the record comes a while after the end."""


class Fault(Struct, frozen=True):
    """Strikes some of the calls it meets, in their order."""

    kind: Kind
    share: float = 1.0
    """Of the calls, drawn with the seed."""
    times: int = 0
    """At most so many; 0: no bound."""
    after: int = 0
    """Calls that are spared at first."""
    seconds: float = 0.0
    """Into the run (kill during run), or after the end (late record)."""


class Faults:
    """Which faults a call meets; the same calls in the same order meet the same ones."""

    def __init__(self, faults: Sequence[Fault] = (), seed: int = 0) -> None:
        self._faults = faults
        self._draws = random.Random(seed)
        self._met = [0] * len(faults)
        self._struck = [0] * len(faults)

    def next_call(self) -> dict[Kind, Fault]:
        found: dict[Kind, Fault] = {}
        for number, fault in enumerate(self._faults):
            self._met[number] += 1
            drawn = self._draws.random() < fault.share
            if drawn and self._met[number] > fault.after and (not fault.times or self._struck[number] < fault.times):
                self._struck[number] += 1
                found[fault.kind] = fault
        return found

    def struck(self) -> dict[Kind, int]:
        """How often each kind struck."""
        totals: dict[Kind, int] = {}
        for fault, count in zip(self._faults, self._struck, strict=True):
            totals[fault.kind] = totals.get(fault.kind, 0) + count
        return totals
