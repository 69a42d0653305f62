"""Futures among the arguments of calls."""

from __future__ import annotations

from collections.abc import Callable

from treadle.orchestrator.run_store.call_log import Need
from treadle.primitives.errors import UsageError

from .futures import CallOwner, Future, Futures


class ArgumentFutures:
    """Names the futures among arguments, and collects the results that they need."""

    def __init__(self, link: CallOwner, share: Callable[[object], str] | None = None) -> None:
        """`share`: the key of a value that is sent apart from the calls; empty for any other object."""
        self._link, self._share = link, share
        self._numbers: dict[Need, int] = {}

    @property
    def needs(self) -> list[Need]:
        return list(self._numbers)

    def name(self, found: object) -> object:
        """The name of a future or of a shared value. None for another object. Raises UsageError for a future of another
        session."""
        if type(found) is not Future and type(found) is not Futures:
            key = self._share(found) if self._share else ""
            return ("one", self._number(key, 0), 0) if key else None
        if found.link is not self._link:
            raise UsageError("a future of another session is an argument", "Pass its result.")
        if type(found) is Future:
            return "one", self._number(found.call.key, found.call.partition), found.call.position
        return "all", tuple(self._number(found.key, partition) for partition in found.partitions)

    def _number(self, key: str, partition: int) -> int:
        return self._numbers.setdefault((key, partition), len(self._numbers))
