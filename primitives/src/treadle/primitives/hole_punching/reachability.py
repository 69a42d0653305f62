"""The members that cannot be reached for now. Pure: the clock is passed in."""

from __future__ import annotations

from msgspec import Struct

FIRST_PAUSE = 10.0
"""Seconds after the first failure; doubled after every further failure."""
LONGEST_PAUSE = 600.0


class _Record(Struct):
    failures: int
    until: float


class Paths:
    """Results of earlier attempts, so that no message waits for a repeated failure: it is relayed, or goes through the
    store.

    A record is forgotten once its pause has been over for `LONGEST_PAUSE`: networks change.
    """

    def __init__(self, first: float = FIRST_PAUSE, longest: float = LONGEST_PAUSE) -> None:
        self._first = first
        self._longest = longest
        self._records: dict[str, _Record] = {}

    def __len__(self) -> int:
        return len(self._records)

    def may_try(self, member: str, now: float) -> bool:
        """Return whether no attempt to reach this member failed lately."""
        return member not in self._records or now >= self._records[member].until

    def failed(self, member: str, now: float) -> float:
        """Record a failure; returns when to try again. Another failure before that time changes nothing."""
        self._forget(now)
        record = self._records.setdefault(member, _Record(0, now))
        if now >= record.until:
            record.until = now + min(self._first * 2**record.failures, self._longest)
            record.failures = min(record.failures + 1, 32)
        return record.until

    def opened(self, member: str) -> None:
        """A path opened: forget the member's failures."""
        self._records.pop(member, None)

    def _forget(self, now: float) -> None:
        old = [member for member, record in self._records.items() if now >= record.until + self._longest]
        for member in old:
            del self._records[member]
