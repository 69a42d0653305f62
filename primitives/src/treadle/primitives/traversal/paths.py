"""Which pairs of members have no path between them for now. Pure: the clock is passed in."""

from __future__ import annotations

from msgspec import Struct

FIRST_PAUSE = 10.0
"""Seconds after the first failure of a pair; doubled with every further one."""
LONGEST_PAUSE = 600.0


class _Record(Struct):
    failures: int
    until: float


class Paths:
    """What earlier attempts came to, so that nobody waits for the same failure again: relay, or use the store, instead.

    A pair has no order. A record is forgotten once its pause has been over for `LONGEST_PAUSE`: networks change.
    """

    def __init__(self, first: float = FIRST_PAUSE, longest: float = LONGEST_PAUSE) -> None:
        self._first = first
        self._longest = longest
        self._records: dict[tuple[str, str], _Record] = {}

    def __len__(self) -> int:
        return len(self._records)

    def may_try(self, one: str, other: str, now: float) -> bool:
        """No attempt of this pair failed lately."""
        return now >= self.closed_until(one, other)

    def closed_until(self, one: str, other: str) -> float:
        """When the pair may try again, by the clock that is passed in; minus infinity when it has not failed."""
        record = self._records.get(_pair(one, other))
        return record.until if record else float("-inf")

    def failed(self, one: str, other: str, now: float) -> float:
        """Remember a failure; returns when the pair may try again. Failing again while closed changes nothing."""
        self._forget(now)
        record = self._records.setdefault(_pair(one, other), _Record(0, now))
        if now >= record.until:
            record.until = now + min(self._first * 2**record.failures, self._longest)
            record.failures = min(record.failures + 1, 32)
        return record.until

    def opened(self, one: str, other: str) -> None:
        """The pair has a path: its failures are forgotten."""
        self._records.pop(_pair(one, other), None)

    def _forget(self, now: float) -> None:
        old = [pair for pair, record in self._records.items() if now >= record.until + self._longest]
        for pair in old:
            del self._records[pair]


def _pair(one: str, other: str) -> tuple[str, str]:
    return (one, other) if one < other else (other, one)
