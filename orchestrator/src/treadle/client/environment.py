"""The home, profile, store, key and connection that clients and commands work with."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from treadle.orchestrator.environment.home import Home, room_for_blocks
from treadle.primitives.errors import UsageError

if TYPE_CHECKING:
    from temporalio.client import Client

    from treadle.executors.interface import Capabilities
    from treadle.orchestrator.environment.profile import Profile
    from treadle.orchestrator.environment.profile_table import CommandSettings
    from treadle.orchestrator.planner import RunLocation
    from treadle.orchestrator.run_requests.requests import RunRequest, RunService
    from treadle.orchestrator.run_store.run_files import RunFiles
    from treadle.primitives.stores.store import Store

    from .client import Runs

A = TypeVar("A")
T = TypeVar("T")
_MANY = 100_000
"""Maximum number of runs searched for an open one."""
_attached: Counter[Path] = Counter()
"""Home -> contexts of this process that use its embedded server."""


class ClientEnvironment:
    """One home and one profile. Its parts are created on first use."""

    def __init__(self, profile: str | None = None, home: Path | None = None) -> None:
        self.home = Home(home)
        self._profile = profile
        self._driver = ""
        """The address of the driver that this object has ensured."""

    @cached_property
    def profile(self) -> Profile:
        from treadle.orchestrator.environment.profile import load_profile

        profile = load_profile(self.home, self._profile)
        profile.use_region()
        return profile

    @cached_property
    def settings(self) -> CommandSettings:
        """Settings of the profile. On the embedded default it is not loaded for them, as its checks import pydantic."""
        from treadle.orchestrator.environment.profile_table import default_settings

        return default_settings(self.home, self._profile) or self.profile.for_commands(self.home)

    @cached_property
    def store(self) -> Store:
        from treadle.primitives.stores.store import Store

        return Store.open(self.settings.store)

    @cached_property
    def key(self) -> bytes:
        from treadle.primitives.sealing import load_or_create_key

        return load_or_create_key(self.home.key)

    def files(self, run: str) -> RunFiles:
        from treadle.orchestrator.run_store.run_files import RunFiles
        from treadle.primitives.sealing import run_key

        return RunFiles(self.store, run, run_key(self.key, run))

    def keep_requests(self, run: str) -> None:
        """Add this command's store requests to the run's count. Errors of the store are ignored. Blocking."""
        from treadle.orchestrator.run_store.run_files import keep_requests
        from treadle.primitives.errors import StoreError

        with suppress(StoreError):
            keep_requests(self.files(run.partition("/")[0]))

    def plan_site(self) -> RunLocation:
        """The resources of the embedded driver or of a worker with this profile. The number of workers is not
        queried."""
        from treadle.orchestrator.executor_registry.registry import Abilities, open_places
        from treadle.orchestrator.planner import RunLocation

        profile = self.profile
        can = Abilities(open_places(self.home, profile))
        room = room_for_blocks(self.home.host_root)
        alone = profile.embedded
        peers = not alone and profile.peers is not None
        return RunLocation(can, room, self.store.url, alone, drivers=int(alone), peers=peers, default=profile.executor)

    def capabilities(self, executor: str) -> Capabilities:
        """The capabilities of an executor. Raises UsageError for an executor that the profile does not have."""
        can = self.plan_site().executors
        if executor not in can:
            text = f"there is no executor {executor!r}"
            raise UsageError(text, f"The profile has: {', '.join(can)}.")
        return can[executor]

    @property
    def queue(self) -> str:
        """The Temporal task queue of runs that are started here."""
        from treadle.orchestrator.embedded.python_environments import task_queue

        return task_queue(self.home, self.settings)

    def ensure_driver(self, queue: str = "") -> None:
        """For the embedded default: start a server and a driver if none serves runs.

        `queue` is that of a run, whose environment may differ from the environment of this process. A driver with
        another profile is ended, if no command and no run needs it. Raises OtherProfile if one does, EnvironmentGone.
        """
        if not self.settings.embedded:
            return
        from treadle.orchestrator import embedded
        from treadle.orchestrator.embedded.python_environments import name_in, other_environment

        queue = queue or self.queue
        other = other_environment(self.home, queue)
        try:
            status = embedded.up(self.home, self.profile, environment=other)
        except embedded.OtherProfile:
            if self._is_used(queue):
                raise
            embedded.end_driver(self.home, name_in(queue))
            status = embedded.up(self.home, self.profile, environment=other)
        if other is None and status.driver is not None:
            self._driver = status.driver.address

    def _is_used(self, queue: str) -> bool:
        """Whether another command is running, or a run of the queue is open."""
        from treadle.orchestrator import embedded
        from treadle.orchestrator.embedded.detached_process import try_lock

        embedded.release(self.home)
        alone = try_lock(self.home.clients)
        if alone is not None:
            os.close(alone)
        embedded.attach(self.home)
        return alone is None or self.with_runs(lambda runs: _any_open(runs, queue))

    async def open_runs(self) -> Runs:
        """The runs of this environment. A running driver answers for Temporal if it can. Raises Unreachable."""
        from .client import Runs

        service = self._answering_driver() or self._no_runs_yet() or await self._temporal()
        return Runs(service, self.store, self.key, self.queue)

    def runs_of(self, client: Client) -> Runs:
        """The runs of this environment, over a connection to Temporal."""
        from treadle.orchestrator.temporal.temporal_runs import TemporalRuns

        from .client import Runs

        return Runs(TemporalRuns(client), self.store, self.key, self.queue)

    def _answering_driver(self) -> RunService | None:
        if not self.settings.embedded:
            return None
        from treadle.orchestrator import embedded
        from treadle.orchestrator.embedded.driver_process import answering_driver
        from treadle.orchestrator.run_requests.driver_client import DriverRuns

        alive = embedded.running_server(self.home) is not None  # else the direct way starts the server
        address = self._driver or answering_driver(self.home) if alive else ""
        return DriverRuns(address, self.key, lambda: self._temporal(start=False)) if address else None

    def _no_runs_yet(self) -> RunService | None:
        from treadle.orchestrator.embedded.server import was_started

        new = self.settings.embedded and not was_started(self.home)
        return _NoRunsYet(self.home, self._temporal) if new else None

    async def _temporal(self, *, start: bool = True) -> RunService:
        from treadle.orchestrator.temporal.temporal_runs import TemporalRuns

        return TemporalRuns(await self.connect(start=start))

    def with_runs(self, work: Callable[[Runs], Awaitable[T]]) -> T:
        """Call `work` with the runs of this environment."""

        async def opened() -> T:
            return await work(await self.open_runs())

        return self._run(opened())

    def with_client(self, work: Callable[[Client], Awaitable[T]]) -> T:
        """Connect and do `work`."""

        async def connected() -> T:
            return await work(await self.connect())

        return self._run(connected())

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        import asyncio  # late: commands that need no connection import this module too

        with self.attached():
            return asyncio.run(work)

    async def connect(self, *, start: bool = True) -> Client:
        """Connect to Temporal. On the embedded default, `start` starts the server if necessary. Raises Unreachable."""
        from treadle.orchestrator.temporal.connect import connect

        silence_core()
        return await connect(self.profile, self.home, start=start)

    @contextmanager
    def attached(self) -> Iterator[None]:
        """Keep the embedded server and driver from ending as idle. Blocking.

        A server that was started inside the context, and that no driver and no other process needs, ends with the last
        context of its home in this process.
        """
        if not self.settings.embedded:
            yield
            return
        from treadle.orchestrator import embedded

        embedded.attach(self.home)
        started = embedded.running_server(self.home) is None
        _attached[self.home.path] += 1
        try:
            yield
        finally:
            _attached[self.home.path] -= 1
            if started and not _attached[self.home.path]:
                _end_server_unless_used(self.home)

    def driver_lives(self, queue: str = "") -> bool:
        """Whether a driver of the queue, by default of this environment, is alive in the embedded default. Starts
        nothing."""
        from treadle.orchestrator.embedded.driver_process import driver_alive
        from treadle.orchestrator.embedded.python_environments import name_in

        return driver_alive(self.home, name_in(queue or self.queue))

    async def drivers(self, runs: Runs, queue: str) -> int:
        """Number of drivers that could serve a run of the queue now."""
        if not self.settings.embedded:
            return await runs.drivers()
        from treadle.orchestrator.embedded.python_environments import name_in, worker_identity

        return 1 if self.driver_lives(queue) else await runs.drivers(but=worker_identity(name_in(queue)), queue=queue)


class _NoRunsYet:
    """The RunService of a home whose server has never been started: what concerns earlier runs needs none."""

    def __init__(self, home: Home, direct: Callable[[], Awaitable[RunService]]) -> None:
        self._home, self._direct = home, direct
        self._instead: RunService | None = None

    async def ask(self, request: RunRequest[A]) -> A:
        """See RunService.ask."""
        from treadle.orchestrator.embedded.server import was_started
        from treadle.orchestrator.run_requests import requests as r

        if not was_started(self._home):
            match request:
                case r.ListRuns():
                    return cast("A", r.RunPage((), b""))
                case r.FindRun():
                    return cast("A", False)
                case r.ViewRun() | r.ReadMemo() | r.AwaitEnd() | r.CancelRun() | r.TerminateRun() | r.SteerRun():
                    raise r.NoSuchRun.named(request.run)
        if self._instead is None:
            self._instead = await self._direct()
        return await self._instead.ask(request)


async def _any_open(runs: Runs, queue: str) -> bool:
    async for view in runs.list_runs(_MANY, states=("running", "paused")):
        if view.queue == queue:
            return True
    return False


def silence_core() -> None:
    """Silence the SDK's core, which logs its retries to stdout, where data belongs. The errors explain their cause."""
    from temporalio.runtime import Runtime, TelemetryConfig

    # Starting the embedded server may have set a default runtime already, which is not needed any more.
    Runtime.set_default(Runtime(telemetry=TelemetryConfig(logging=None)), error_if_already_set=False)


def _end_server_unless_used(home: Home) -> None:
    from treadle.orchestrator import embedded
    from treadle.orchestrator.embedded.detached_process import try_lock
    from treadle.orchestrator.embedded.driver_process import any_driver_alive

    embedded.release(home)
    alone = try_lock(home.clients)
    if alone is None:
        return
    try:
        if not any_driver_alive(home):
            embedded.end_server(home)
    finally:
        os.close(alone)
