"""Calls that the provider refuses because too many are running, and idle members that leave to make room for them."""

from __future__ import annotations

from collections.abc import Callable


class Crowding:
    """Shared by all callers of one executor."""

    def __init__(self) -> None:
        self._refused: set[str] = set()
        self.make_room: Callable[[int], None] | None = None
        """Ends idle members so that the given number of calls can be made. None: no members stay between calls."""

    def refused(self, call: str) -> None:
        """Record a refused call. The caller will try it again."""
        self._refused.add(call)
        if self.make_room is not None:
            self.make_room(len(self._refused))

    def over(self, call: str) -> None:
        """The call was accepted or given up, or is about to be retried. Idempotent."""
        self._refused.discard(call)
