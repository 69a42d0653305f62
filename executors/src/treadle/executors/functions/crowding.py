"""Calls that the provider refuses since too many are under way, and the idle members that leave for them."""

from __future__ import annotations

from collections.abc import Callable


class Crowding:
    """Shared by all that makes calls of one executor."""

    def __init__(self) -> None:
        self._refused: set[str] = set()
        self.make_room: Callable[[int], None] | None = None
        """End what is idle, so that so many calls can be made. None: nothing stays between calls."""

    def refused(self, call: str) -> None:
        """The call will be made again."""
        self._refused.add(call)
        if self.make_room is not None:
            self.make_room(len(self._refused))

    def over(self, call: str) -> None:
        """It is made again, or is not wanted any more. Idempotent."""
        self._refused.discard(call)
