"""Which members there is no path to for now. Pure: the clock is passed in."""

from __future__ import annotations

from msgspec import Struct

FIRST_PAUSE = 10.0
"""Seconds after the first failure; doubled with every further one."""
LONGEST_PAUSE = 600.0


class _Record(Struct):
    failures: int
    until: float


class Paths:
    """What earlier attempts came to, so that nobody waits for the same failure again: relay, or use the store, instead.

    A record is forgotten once its pause has been over for `LONGEST_PAUSE`: networks change.
    """

    def __init__(self, first: float = FIRST_PAUSE, longest: float = LONGEST_PAUSE) -> None:
        self._first = first
        self._longest = longest
        self._records: dict[str, _Record] = {}

    def __len__(self) -> int:
        return len(self._records)

    def may_try(self, member: str, now: float) -> bool:
        """No attempt to reach this member failed lately."""
        return member not in self._records or now >= self._records[member].until

    def failed(self, member: str, now: float) -> float:
        """Remember a failure; returns when to try again. Failing again until then changes nothing."""
        self._forget(now)
        record = self._records.setdefault(member, _Record(0, now))
        if now >= record.until:
            record.until = now + min(self._first * 2**record.failures, self._longest)
            record.failures = min(record.failures + 1, 32)
        return record.until

    def opened(self, member: str) -> None:
        """There is a path: failures are forgotten."""
        self._records.pop(member, None)

    def _forget(self, now: float) -> None:
        old = [member for member, record in self._records.items() if now >= record.until + self._longest]
        for member in old:
            del self._records[member]
