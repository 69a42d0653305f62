"""The driver: a Temporal worker that interprets runs and dispatches their tasks."""

from __future__ import annotations

import argparse
import asyncio
import gc
import signal
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Self

from temporalio.client import Client
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from treadle.primitives import sealing
from treadle.primitives.asyncio_tasks import spawn
from treadle.primitives.stores.shared_memory import HostFolder
from treadle.primitives.stores.store import Store
from treadle.primitives.wire.unauthenticated import raise_descriptor_limit

from ..dispatcher.blocks.host_blocks import Hosts
from ..dispatcher.blocks.orphans import claim
from ..dispatcher.driver_context.run_context import DriverContext, Lender, Lending
from ..dispatcher.driver_context.slot_pool import Pools
from ..dispatcher.lending.slot_lender import SlotLender
from ..embedded.driver_lease import DriverLease
from ..embedded.driver_process import code_fingerprint
from ..embedded.python_environments import queue_of, register, task_queue, worker_identity
from ..environment.home import Home
from ..environment.profile import Profile, load_profile
from ..executor_registry.registry import LOCAL, open_places
from ..lifecycle.delivery import Announcer
from ..lifecycle.emitter import Telling
from ..lifecycle.sinks import open_outlet
from ..protocol.messages import GROUPS
from ..run_requests.driver_server import DriverServer
from ..telemetry.instruments import Telemetry
from . import capacity
from .activities import Activities
from .connect import connect
from .driver_parts import DriverParts, driver_parts
from .shm_gc import sweep, sweep_at_end
from .takeover import bury
from .temporal_runs import TemporalRuns
from .workflow import RunWorkflow

STICKY_TIMEOUT = timedelta(seconds=1)
"""Time that the server waits for a dead driver to take its workflow tasks. After that, another driver may."""
_PROMPTLY: Any = {
    "default_heartbeat_throttle_interval": timedelta(seconds=1),
    "max_heartbeat_throttle_interval": timedelta(seconds=1),
    "graceful_shutdown_timeout": timedelta(seconds=1),
}
"""Settings of a worker: the delay of heartbeats, and the time for activities to end at its shutdown."""


async def open_site(home: Home, profile: Profile, slots: int | None = None) -> DriverContext:
    """The driver's context: the store, the key, and the slots of the profile's executors. The default executor is
    started."""
    key = sealing.load_or_create_key(home.key)
    store = await asyncio.to_thread(Store.open, profile.store_url(home))
    pools = Pools(open_places(home, profile, slots))
    await pools.ready(profile.executor)
    hosts = await asyncio.to_thread(_serve_blocks, home, profile, store, key)
    telemetry = Telemetry()
    telemetry.watch_slots(lambda: [(name, pool.busy, len(pool.slots)) for name, pool in pools.open()])
    site = DriverContext(
        store,
        key,
        home.host_root,
        pools,
        one_host=profile.embedded,
        hosts=hosts,
        default=profile.executor,
        telemetry=telemetry,
    )
    if site.host is not None:
        await asyncio.to_thread(claim, site.host, home.path)
    return site


def _serve_blocks(home: Home, profile: Profile, store: Store, key: bytes) -> Hosts | None:
    """Serve this host's blocks to workers of other hosts, if the profile has `peers`."""
    if profile.embedded or profile.peers is None:
        return None
    hosts = Hosts(store, key, HostFolder(home.host_root), profile.peers)
    hosts.measure()
    return hosts


def open_announcer(home: Home, profile: Profile) -> Announcer | None:
    """The sender of lifecycle events. None: the profile has no `lifecycle`. Raises UsageError for impossible
    settings."""
    if profile.lifecycle is None:
        return None
    return Announcer(open_outlet(profile.lifecycle, profile, home))


class Driver:
    """Serves one task queue until its context ends."""

    def __init__(
        self,
        client: Client,
        site: DriverContext,
        profile: Profile,
        queue: str | None = None,
        announcer: Announcer | None = None,
        identity: str | None = None,
    ) -> None:
        """`queue`: a queue other than the profile's. `announcer`: receives lifecycle events; closed with the driver.

        `identity`: the driver's name for the server. None: process and host.
        """
        self.activities = Activities(site, client, Telling(site, announcer))
        self._announcer, self._site, self._client = announcer, site, client
        self._sweeping: asyncio.Task[None] | None = None
        name = queue or profile.queue
        self._lender = SlotLender(site, profile.peers) if site.hosts is not None and profile.peers else None
        if self._lender is not None:
            address = self._lender.address
            site.lending = Lending(address, partial(capacity.lenders, client, name))
            identity = capacity.lender_identity(Lender(len(site.pools.executors[LOCAL].slots), address))
        parts = driver_parts(client, site, profile)
        # without a build of ours Temporal reads the code of every imported module, for 0.1 to 1.2 s
        common = {"identity": identity, "build_id": code_fingerprint(), **_PROMPTLY}
        self._workers = self._of_runs(name, parts, common), self._of_groups(name, common)

    def _of_runs(self, queue: str, parts: DriverParts, common: dict[str, Any]) -> Worker:
        return Worker(
            self._client,
            task_queue=queue,
            workflows=[RunWorkflow, *parts.workflows],
            activities=[
                self.activities.open_run,
                self.activities.run_node,
                self.activities.end_run,
                *parts.activities,
            ],
            workflow_runner=UnsandboxedWorkflowRunner(),
            max_concurrent_activities=500,
            max_cached_workflows=1000,
            disable_eager_activity_execution=not self._site.one_host,  # else the workflow's driver takes all segments
            sticky_queue_schedule_to_start_timeout=STICKY_TIMEOUT,
            **common,
        )

    def _of_groups(self, queue: str, common: dict[str, Any]) -> Worker:
        return Worker(
            self._client,
            task_queue=queue + GROUPS,
            activities=[self.activities.run_node],
            max_concurrent_activities=capacity.of_driver(self._site),
            max_concurrent_activity_task_polls=1,
            **common,
        )

    async def __aenter__(self) -> Self:
        for worker in self._workers:
            await worker.__aenter__()
        if self._site.host is not None:
            self._sweeping = spawn(sweep(self._site.host, self._client))
        return self

    async def __aexit__(self, *error: object) -> None:
        """Hand back the tasks, then stop every worker process."""
        if self._sweeping:
            self._sweeping.cancel()
        try:
            await asyncio.gather(*(worker.__aexit__(None, None, None) for worker in self._workers))
        finally:
            await self.activities.stop()
            if self._lender is not None:
                await self._lender.stop()
            await self._site.pools.stop()
            if self._site.host is not None:
                await sweep_at_end(self._site.host, self._client)
            if self._announcer is not None:
                await self._announcer.close()
            if self._site.hosts is not None:
                await asyncio.to_thread(self._site.hosts.close)


async def serve_embedded(home: Home) -> None:
    """The detached driver of this environment in a home.

    Returns when it is idle or receives a signal, or at once if there is another driver.
    """
    lease = await asyncio.to_thread(DriverLease.take, home)
    if lease is None:
        return
    with lease:
        raise_descriptor_limit()
        profile = load_profile(home)
        profile.use_region()
        announcer = open_announcer(home, profile)
        client, site = await asyncio.gather(_succeed(home, profile, lease.name), open_site(home, profile))
        queue = queue_of(profile.queue, lease.name)
        async with (
            Driver(client, site, profile, queue, announcer, worker_identity(lease.name)) as driver,
            DriverServer(TemporalRuns(client), site.key) as requests,
        ):
            lease.ready(requests.address)
            await lease.until_end(driver.activities.idle_seconds)


async def _succeed(home: Home, profile: Profile, name: str) -> Client:
    """Connect, and end the attempts of earlier drivers of this environment."""
    client = await connect(profile, home)
    if profile.embedded:
        await bury(client, worker_identity(name))
    return client


async def serve(home: Home, profile: Profile, queue: str | None = None, slots: int | None = None) -> None:
    """A driver for `treadle worker`: serves until SIGTERM or SIGINT."""
    raise_descriptor_limit()
    if profile.embedded:
        await asyncio.to_thread(register, home)
    announcer = open_announcer(home, profile)
    client, site = await asyncio.gather(connect(profile, home), open_site(home, profile, slots))
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    async with Driver(client, site, profile, queue or task_queue(home, profile.for_commands(home)), announcer):
        await ended.wait()


def main() -> None:
    parser = argparse.ArgumentParser(prog="treadle-driver")
    parser.add_argument("--embedded", action="store_true", required=True)
    parser.add_argument("--home", type=Path, required=True)
    home = Home(parser.parse_args().home)
    gc.freeze()  # modules stay: full passes of the collector skip them
    asyncio.run(serve_embedded(home))


if __name__ == "__main__":
    main()
