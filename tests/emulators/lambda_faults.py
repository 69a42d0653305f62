"""The faults of an emulated provider, as data."""

from __future__ import annotations

import random
import threading
from collections import Counter
from typing import Literal

from msgspec import Struct

Kind = Literal[
    "throttle",  # 429, nothing runs
    "service error",  # 500, nothing runs
    "lose the answer",  # it runs, and the connection is closed instead of answering
    "twice",  # it runs again after the first run; the first answer counts
    "two at once",  # it runs in two sandboxes at once; the first answer counts
    "kill at start",  # the sandbox is killed before it gets the event
    "kill under way",  # the sandbox is killed `after` seconds into the call
    "kill at the end",  # the sandbox is killed as it answers: the answer is lost
    "out of memory",  # like `kill under way`, with all of its memory in use
    "slow",  # the answer takes `after` seconds longer
]


class Fault(Struct):
    """A fault of `share` of the calls, at most `times` times (-1: always)."""

    kind: Kind
    share: float = 1.0
    times: int = -1
    after: float = 0.0
    """Seconds."""


class Faults:
    """The faults of one emulator, drawn by a seed."""

    def __init__(self, *faults: Fault, seed: int = 0) -> None:
        self._faults = list(faults)
        self._random = random.Random(seed)
        self._lock = threading.Lock()
        self._struck: Counter[str] = Counter()

    def set(self, *faults: Fault) -> None:
        """Replace all faults by these."""
        with self._lock:
            self._faults = list(faults)
            self._struck.clear()

    def struck(self, kind: Kind) -> int:
        """The number of calls that it has hit."""
        return self._struck[kind]

    def strikes(self, kind: Kind) -> Fault | None:
        """The fault of this kind for the present call."""
        with self._lock:
            for fault in self._faults:
                if fault.kind == kind and fault.times and self._random.random() < fault.share:
                    fault.times -= 1
                    self._struck[kind] += 1
                    return fault
        return None
