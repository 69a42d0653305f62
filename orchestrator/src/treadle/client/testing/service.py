"""For tests: a home with its own Temporal server, and a driver that serves it inside this process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from temporalio.client import Client, WorkflowHistory

from treadle.dsl.model import Spec
from treadle.orchestrator import embedded
from treadle.orchestrator.dispatcher.driver_context.run_context import DriverContext
from treadle.orchestrator.environment.home import Home
from treadle.orchestrator.environment.profile import load_profile
from treadle.orchestrator.temporal.activities import plan_site
from treadle.orchestrator.temporal.connect import connect
from treadle.orchestrator.temporal.driver import Driver, open_announcer, open_site
from treadle.orchestrator.temporal.temporal_runs import TemporalRuns

from ..client import Runs
from ..submission import prepare


@dataclass
class Service:
    """The parts of a running service that a test needs."""

    client: Client
    site: DriverContext
    runs: Runs

    async def submit(self, spec: Mapping[str, Any], run: str, base: Path, root: Path, runs: Runs | None = None) -> None:
        """Start a run. Relative URIs start from `base`; the functions' modules are below `root`.

        `runs` replaces the runs that the driver serves.
        """
        prepared = prepare(
            Spec.model_validate(spec, by_alias=True, by_name=False),
            {},
            run=run,
            base=base,
            roots=[root],
            captured={},
            site=plan_site(self.site),
        )
        await (runs or self.runs).submit(prepared)

    async def history(self, run: str) -> WorkflowHistory:
        """The history of the run's latest resumption."""
        return await self.client.get_workflow_handle(run).fetch_history()


@asynccontextmanager
async def service(home: Home, slots: int = 2) -> AsyncIterator[Service]:
    """A service for the duration of the block; the server ends with it."""
    profile = load_profile(home)
    try:
        await asyncio.to_thread(embedded.attach, home)
        await asyncio.to_thread(embedded.ensure_server, home)
        client, site = await asyncio.gather(connect(profile, home), open_site(home, profile, slots))
        async with Driver(client, site, profile, announcer=open_announcer(home, profile)):
            yield Service(client, site, Runs(TemporalRuns(client), site.store, site.key, profile.queue))
    finally:
        await asyncio.to_thread(embedded.down, home)
