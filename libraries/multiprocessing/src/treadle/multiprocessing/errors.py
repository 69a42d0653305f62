"""Errors that the standard library does not have: there, the same events make the program hang."""

from __future__ import annotations

from treadle.primitives.errors import TreadleError


class HolderLost(TreadleError):
    """A process ended while it held the lock: the data that the lock protects may be half changed.

    One call of `acquire` raises it. The lock is free then.
    """


class WorkerLost(TreadleError):
    """A worker of a pool ended while it ran the task: the task may have taken effect."""


class ReleasedTooOften(ValueError, RuntimeError):
    """More releases than acquires: a ValueError of `multiprocessing`, and a RuntimeError of the locks of managers."""
