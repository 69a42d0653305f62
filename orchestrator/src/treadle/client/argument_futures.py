"""Futures among the arguments of calls."""

from __future__ import annotations

from treadle.orchestrator.run_store.call_log import Need
from treadle.primitives.errors import UsageError

from .futures import CallOwner, Future, Futures


class ArgumentFutures:
    """Names the futures among arguments, and collects the results that they need."""

    def __init__(self, link: CallOwner) -> None:
        self._link = link
        self._numbers: dict[Need, int] = {}

    @property
    def needs(self) -> list[Need]:
        return list(self._numbers)

    def name(self, found: object) -> object:
        """The name of a future. None for another object. Raises UsageError for a future of another session."""
        if not isinstance(found, Future | Futures):
            return None
        if found.link is not self._link:
            raise UsageError("a future of another session is an argument", "Pass its result.")
        if isinstance(found, Future):
            return "one", self._number(found.call.key, found.call.partition), found.call.position
        return "all", tuple(self._number(found.key, partition) for partition in found.partitions)

    def _number(self, key: str, partition: int) -> int:
        return self._numbers.setdefault((key, partition), len(self._numbers))
