"""What a trigger asks for, and what it hears: at most one run per id, whoever asks and however often."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Protocol

from msgspec import Struct

from treadle.primitives.errors import TreadleError

_log = logging.getLogger("treadle.triggers")
AGAIN = 2.0
"""Seconds until a run is watched again whose end could not be awaited."""


class StartOrder(Struct, frozen=True):
    """One run, wanted for one event or one batch of them."""

    run: str
    """Its id: a function of the event's identity alone."""
    workflow: str
    version: int
    """Of the deployment whose trigger decided."""
    trigger: str
    inputs: dict[str, Any]
    """Mapped, not yet checked against the workflow's declared inputs."""
    memo: dict[str, Any] = {}
    """Small facts a later owner of the trigger needs: of a batch its `end` and `count`."""


class Started(Struct, frozen=True):
    """The run exists, durably."""

    run: str
    new: bool
    """False: an earlier start of this id counts."""
    memo: dict[str, Any] = {}
    """Of the start that counts."""


class Starter(Protocol):
    """Starts runs of deployed workflows."""

    async def start(self, order: StartOrder) -> Started:
        """Raises Unreachable (try again for ever) and UsageError (these inputs will never do: a dead letter)."""
        ...

    async def active(self, workflow: str, trigger: str) -> int:
        """Runs of the trigger that are open. A hint: it may lag. Raises Unreachable."""
        ...

    async def wait(self, run: str) -> None:
        """Return when the run is over, however it ended. Raises Unreachable."""
        ...


async def end_of(starter: Starter, run: str) -> None:
    """Return when the run is over. Raises nothing: who waits holds a place of `maxActive` until then."""
    while True:
        try:
            return await starter.wait(run)
        except TreadleError as error:
            _log.info("%s", error)
        except Exception:  # noqa: BLE001  # a defect must not hold the place for ever
            _log.exception("the end of %s", run)
        await asyncio.sleep(AGAIN)
