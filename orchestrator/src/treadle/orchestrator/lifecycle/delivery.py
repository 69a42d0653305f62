"""Sends events in order, retries for a while, and gives up, so that a run never waits for ever for a receiver.

Undelivered lifecycle events in the run's record: `untold/<hash of the id>` in its folder.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

import msgspec
from msgspec import Struct

from treadle.primitives.encoding.decoding import known
from treadle.primitives.errors import TreadleError
from treadle.primitives.events import Event

from ..run_store.run_files import RunFiles


def untold_of(files: RunFiles) -> list[Untold]:
    """The undelivered events, oldest first. Raises StoreError, CorruptError."""
    names = [f"untold/{info.name.rsplit('/', 1)[1]}" for info in files.store.list(_folder(files))]
    found = [msgspec.json.decode(files.load_bytes(name), type=known(Untold)) for name in names]
    return sorted(found, key=lambda one: one.event.time or "")


def settle(files: RunFiles, untold: Sequence[Untold], kept: Sequence[Event]) -> None:
    """Record the undelivered events, and remove the recorded ones that are delivered now. Raises StoreError."""
    lost = {one.event.id for one in untold}
    for one in untold:
        files.create_bytes(f"untold/{_name(one.event)}", msgspec.json.encode(one))
    files.store.delete(f"{_folder(files)}{_name(event)}" for event in kept if event.id not in lost)


def _folder(files: RunFiles) -> str:
    return f"{files.prefix}/untold/"


def _name(event: Event) -> str:
    return hashlib.sha256(event.id.encode()).hexdigest()[:32]


PAUSES = (0.2, 0.5, 1.0, 2.0, 4.0)
"""Seconds between tries of one event. Together with ANSWER for each try, an event takes at most 40 seconds."""
ANSWER = 5.0
"""Seconds that a topic or receiver has for one try."""
_log = logging.getLogger("treadle.lifecycle")


class Untellable(TreadleError):
    """The event was not accepted. The message is for the operator of the topic or the receiver."""

    def __init__(self, message: str, *, away: bool = True) -> None:
        super().__init__(message)
        self.away = away
        """True: the next try may succeed. False: this event will never be accepted."""


class Outlet(Protocol):
    """The destination of events."""

    async def send(self, event: Event) -> None:
        """Return once the event is stored durably. Takes at most ANSWER seconds. Raises Untellable."""
        ...

    async def close(self) -> None: ...


class Untold(Struct, frozen=True):
    """An event that was given up, with the reason."""

    event: Event
    reason: str


class Announcer:
    """Sends the events of one driver. Safe for any number of runs at once. The events of one call keep their order."""

    def __init__(self, outlet: Outlet, pause: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        self._outlet, self._pause = outlet, pause
        self._away = False
        """True: the last event was given up. Further events get one try each, until one succeeds."""

    async def tell(self, events: Sequence[Event]) -> list[Untold]:
        """Send the events. Returns the undelivered events: refused ones, and all events from the first that found no
        receiver."""
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
