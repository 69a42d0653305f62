"""The effects of a trigger's loop: starts and watches on an event loop, dead letters through a producer."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from treadle.primitives.asyncio_tasks import spawn
from treadle.primitives.errors import TreadleError, UsageError

from ..start_requests import Starter, end_of
from .batch import EventsOf
from .dead_letters import Graveyard
from .machine_events import Bury, EffectDone, EffectFailed, Happening, RunEnded, Start, StartRefused
from .matching import Lineage

_log = logging.getLogger("treadle.triggers")


class ThreadHands:
    """Called by the loop's thread; `tell` receives the answers. `close` ends the running work."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        starter: Starter,
        events: EventsOf,
        lineage: Callable[[], Lineage],
        tell: Callable[[Happening], None],
        graveyard: Graveyard,
    ) -> None:
        self._loop, self._starter, self._events, self._lineage = loop, starter, events, lineage
        self._tell, self._graveyard = tell, graveyard
        self._watching: set[asyncio.Task[None]] = set()

    def start(self, order: Start) -> None:
        self._spawn(self._start(order))

    def watch(self, run: str) -> None:
        self._spawn(self._watch(run))

    def bury(self, order: Bury) -> None:
        self._graveyard.bury(order)

    def breathe(self) -> None:
        self._graveyard.poll()

    def close(self) -> None:
        """Wait for nothing more. A start in progress may or may not happen, and is requested again later."""
        self._loop.call_soon_threadsafe(lambda: [task.cancel() for task in self._watching])

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        def begin() -> None:
            task = spawn(work)
            self._watching.add(task)
            task.add_done_callback(self._watching.discard)

        self._loop.call_soon_threadsafe(begin)

    async def _start(self, order: Start) -> None:
        try:
            version = self._lineage().version(order.batch.version)
            wanted = await asyncio.to_thread(version.order_for, order.batch, self._events)
            started = await self._starter.start(wanted)
        except UsageError as error:
            self._tell(StartRefused(order.ticket, error.message))
        except TreadleError as error:
            self._tell(EffectFailed(order.ticket, str(error)))
        except Exception as defect:  # noqa: BLE001  # an internal defect must not lose an event: retry
            _log.exception("the start of %s", order.batch.run)
            self._tell(EffectFailed(order.ticket, f"{type(defect).__name__}: {defect}"))
        else:
            self._tell(EffectDone(order.ticket, started.memo, started.new))

    async def _watch(self, run: str) -> None:
        await end_of(self._starter, run)
        self._tell(RunEnded(run))
