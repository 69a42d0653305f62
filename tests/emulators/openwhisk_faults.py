"""The faults of the emulated OpenWhisk, as data."""

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
"""The kinds of fault.

throttle        429 of either kind
unavailable     503, nothing runs
platform error  it ran, and the record has `whisk internal error`
lose response   it ran, and the connection is cut
lose call       the connection is cut before anything runs
kill            the container is killed in that phase
run twice       two containers run it at once, one answer is kept
late record     a blocking call turns into 202 at once, and the record comes a while after the end
"""


class Fault(Struct, frozen=True):
    """A fault of some of the calls, in their order."""

    kind: Kind
    share: float = 1.0
    """The share of the calls, drawn with the seed."""
    times: int = 0
    """Maximum number of times. 0: no limit."""
    after: int = 0
    """The number of calls that are spared at first."""
    seconds: float = 0.0
    """Seconds into the run (kill during run), or after the end (late record)."""


class Faults:
    """The faults of calls. The same calls in the same order get the same faults."""

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
        """Kind -> how often it struck."""
        totals: dict[Kind, int] = {}
        for fault, count in zip(self._faults, self._struck, strict=True):
            totals[fault.kind] = totals.get(fault.kind, 0) + count
        return totals
