"""Tells events in order, tries again for a while, and gives up: a run never waits for a listener for ever."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from msgspec import Struct

from treadle.primitives.errors import TreadleError
from treadle.primitives.events import Event

PAUSES = (0.2, 0.5, 1.0, 2.0, 4.0)
"""Seconds between tries of one event; with what a try may take (ANSWER), an event costs at most 40 seconds."""
ANSWER = 5.0
"""Seconds that a topic or receiver has for one try."""
_log = logging.getLogger("treadle.lifecycle")


class Untellable(TreadleError):
    """The event was not taken: whoever keeps the topic or the receiver must look."""

    def __init__(self, message: str, *, away: bool = True) -> None:
        super().__init__(message)
        self.away = away
        """The next try may do better; False: this event will never be taken."""


class Outlet(Protocol):
    """Where events go."""

    async def send(self, event: Event) -> None:
        """Return once it is there, durably. Takes at most ANSWER seconds. Raises Untellable."""
        ...

    async def close(self) -> None: ...


class Untold(Struct, frozen=True):
    """An event that was given up, and why."""

    event: Event
    reason: str


class Announcer:
    """One for each driver. Safe for any number of runs at once; the events of one call are told in order."""

    def __init__(self, outlet: Outlet, pause: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        self._outlet, self._pause = outlet, pause
        self._away = False
        """The last event told was given up: what comes gets one try, until one succeeds."""

    async def tell(self, events: Sequence[Event]) -> list[Untold]:
        """Returns what was given up: an event that is refused, or all from the first that nobody took."""
        untold: list[Untold] = []
        for index, event in enumerate(events):
            try:
                await self._insist(event)
            except Untellable as error:
                _log.warning("event %s is not told: %s", event.id, error.message)
                if error.away:
                    return [*untold, *(Untold(one, error.message) for one in events[index:])]
                untold.append(Untold(event, error.message))
        return untold

    async def close(self) -> None:
        await self._outlet.close()

    async def _insist(self, event: Event) -> None:
        for pause in (*PAUSES, None):
            try:
                await self._outlet.send(event)
            except Untellable as error:
                if not error.away:
                    raise
                if pause is None or self._away:
                    self._away = True
                    raise
                await self._pause(pause)
            else:
                self._away = False
                return
