"""Requests of a trigger and their answers: at most one run per id, however often and from wherever it is requested."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Protocol

from msgspec import Struct

from treadle.primitives.errors import TreadleError

_log = logging.getLogger("treadle.triggers")
AGAIN = 2.0
"""Seconds until the next try to wait for the end of a run."""


class StartOrder(Struct, frozen=True):
    """A request for one run, for one event or one batch."""

    run: str
    """Its id, which depends on the event's identity alone."""
    workflow: str
    version: int
    """Version of the deployment whose trigger decided."""
    trigger: str
    inputs: dict[str, Any]
    """Mapped, not yet checked against the workflow's declared inputs."""
    memo: dict[str, Any] = {}
    """Small facts for a later owner of the trigger: for a batch its `end` and `count`."""


class RunStarted(Struct, frozen=True):
    """The run exists, durably."""

    run: str
    new: bool
    """False: an earlier start of this id was accepted."""
    memo: dict[str, Any] = {}
    """Memo of the accepted start."""


class Starter(Protocol):
    """Starts runs of deployed workflows."""

    async def start(self, order: StartOrder) -> RunStarted:
        """Raises Unreachable (retry forever) and UsageError (these inputs can never be accepted: a dead letter)."""
        ...

    async def active(self, workflow: str, trigger: str) -> int:
        """Number of the trigger's open runs. It may lag. Raises Unreachable."""
        ...

    async def wait(self, run: str) -> None:
        """Return when the run has ended, successfully or not. Raises Unreachable."""
        ...


async def end_of(starter: Starter, run: str) -> None:
    """Return when the run has ended. Raises no errors: the caller holds a place of `maxActive` until then."""
    while True:
        try:
            return await starter.wait(run)
        except TreadleError as error:
            _log.info("%s", error)
        except Exception:  # noqa: BLE001  # a defect must not hold the place forever
            _log.exception("the end of %s", run)
        await asyncio.sleep(AGAIN)
