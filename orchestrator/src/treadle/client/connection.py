"""A client's connection to the runs of an environment, opened when it is first used."""

from __future__ import annotations

import asyncio
from contextlib import AbstractContextManager
from datetime import timedelta
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from .environment import ClientEnvironment

if TYPE_CHECKING:
    from treadle.orchestrator.run_requests.run_views import State

    from .client import Runs
    from .submission import Prepared


class ClientConnection:
    """Keeps the embedded server and driver from ending as idle while it is open. For one event loop."""

    def __init__(self, profile: str | None = None, home: str | PathLike[str] | None = None) -> None:
        """`profile` and `home` as of `AsyncClient`."""
        self.environment = ClientEnvironment(profile, None if home is None else Path(home))
        self._opening = asyncio.Lock()
        self._attached: AbstractContextManager[None] | None = None
        self._runs: Runs | None = None

    async def runs(self) -> Runs:
        """The verbs on Temporal and the store. Connects at the first call. Raises Unreachable."""
        async with self._opening:
            if self._runs is None:
                attached = self.environment.attached()
                await asyncio.to_thread(attached.__enter__)
                self._attached = attached
                self._runs = await self.environment.open_runs()
            return self._runs

    async def start(
        self,
        prepared: Prepared,
        if_exists: Literal["fail", "use", "terminate"] = "fail",
        delay: timedelta | None = None,
    ) -> None:
        """Start a run, and a driver on the embedded default. Raises RunConflict, Unreachable."""
        runs = await self.runs()
        await asyncio.to_thread(self.environment.ensure_driver)
        await runs.submit(prepared, if_exists=if_exists, start_delay=delay)

    async def have_driver(self, run: str) -> State:
        """The state of the run. If it is open, a driver is ensured on the embedded default."""
        from .resumption import have_driver

        view = await (await self.runs()).view(run)
        if view.open:
            await asyncio.to_thread(have_driver, self.environment, view, lambda _: None)
        return view.state

    def close(self) -> None:
        """Let the embedded server and driver end when they are idle. It may be used again. Blocking."""
        attached, self._attached, self._runs = self._attached, None, None
        if attached is not None:
            attached.__exit__(None, None, None)
