"""worker, triggers and dev: long-running processes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from treadle.primitives.asyncio_tasks import spawn

from .common.environment import Environment, need
from .common.exit_codes import advise, complain, say_json
from .common.options import LogLevelOption, LogOption, ProfileOption, TextOrJson, Verbs

if TYPE_CHECKING:
    from temporalio.client import Client

    from treadle.orchestrator.embedded import DriverState, EmbeddedStatus, PythonEnvironment

    Drivers = Sequence[tuple[PythonEnvironment, DriverState]]


def worker(
    queue: Annotated[
        str | None, typer.Option(envvar="TREADLE_QUEUE", metavar="NAME", help="Temporal task queue.")
    ] = None,
    max_tasks: Annotated[
        int | None,
        typer.Option(
            envvar="TREADLE_MAX_TASKS", min=1, metavar="N", help="Maximum concurrent tasks. Default: number of cores."
        ),
    ] = None,
    metrics: Annotated[
        str | None,
        typer.Option(
            envvar="TREADLE_METRICS", metavar="HOST:PORT", help="Address at which to serve metrics for Prometheus."
        ),
    ] = None,
    log: LogOption = "text",
    log_level: LogLevelOption = "warning",
    profile: ProfileOption = None,
) -> None:
    """Serve runs and their tasks until stopped."""
    from treadle.orchestrator.telemetry.logs import set_up
    from treadle.orchestrator.telemetry.metrics_server import metrics_page
    from treadle.orchestrator.temporal.driver import serve

    with contextlib.ExitStack() as stack:
        set_up(log, log_level)
        env = Environment(profile)
        if env.profile.embedded:
            from treadle.orchestrator import embedded

            embedded.attach(env.home)
        page = f"; metrics at {stack.enter_context(metrics_page(metrics))}" if metrics else ""
        complain(f"serving the queue {queue or env.queue}{page}; end with Ctrl-C")
        asyncio.run(serve(env.home, env.profile, queue, max_tasks))


def triggers(
    metrics: Annotated[
        str | None,
        typer.Option("--metrics", metavar="HOST:PORT", help="Address at which to serve metrics for Prometheus."),
    ] = None,
    log: LogOption = "text",
    log_level: LogLevelOption = "info",
    profile: ProfileOption = None,
) -> None:
    """Start runs for events of deployed workflows until stopped. Several services may run; they notice deployments."""
    from treadle.orchestrator.telemetry.logs import set_up
    from treadle.orchestrator.telemetry.metrics_server import metrics_page
    from treadle.triggers.service import instance

    set_up(log, log_level)
    need("confluent_kafka", "starlette", "uvicorn", "jsonschema")
    env = Environment(profile)
    if env.profile.embedded:
        from treadle.orchestrator import embedded

        embedded.attach(env.home)
    env.ensure_driver()
    with instance(env.home) as name, contextlib.ExitStack() as stack:
        page = f"; metrics at {stack.enter_context(metrics_page(metrics))}" if metrics else ""
        advise(f"serving triggers as {name}{page}; end with Ctrl-C. See: treadle trigger list")
        env.with_client(lambda client: _serve_triggers(env, client, name, measured=metrics is not None))
    complain("ended")


async def _serve_triggers(env: Environment, client: Client, name: str, *, measured: bool) -> None:
    """Serve until SIGTERM or SIGINT, then shut down in order. `measured`: metrics are served."""
    from treadle.orchestrator.reuse.cache_entries import Entries
    from treadle.primitives.wire.unauthenticated import raise_descriptor_limit
    from treadle.triggers.profile_reload import ServiceProfiles
    from treadle.triggers.retention import Retention
    from treadle.triggers.schedules.reconcile import Schedules
    from treadle.triggers.schedules.runner import keep_swept
    from treadle.triggers.service import TriggerService
    from treadle.triggers.trigger_runner import TriggerSite

    raise_descriptor_limit()
    starter = await env.starter(client)
    service = TriggerService(
        TriggerSite(env.home, env.profile, client, env.store, env.key, env.registry, starter, name)
    )
    if measured:
        from treadle.triggers.metrics import watch_triggers

        watch_triggers(service.statuses)
    told = ServiceProfiles(env.store, env.key).keep_told(name, env.profile)
    schedules = Schedules(client, env.queue, env.key)
    works = [service.run(), keep_swept(schedules, env.registry), _keep_driver(env), told]
    retention = env.profile.triggers.retention
    if retention != "never":
        works.append(Retention(client, env.runs_of(client), Entries(env.store, env.key), retention).keep())
    await _until_signal(works)


async def _until_signal(works: Sequence[Coroutine[Any, Any, None]]) -> None:
    """Do all the works until they end; SIGTERM and SIGINT cancel them. Raises the first error."""
    import signal

    serving = [spawn(work) for work in works]
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, lambda: [one.cancel() for one in serving])
    for ended in await asyncio.gather(*serving, return_exceptions=True):
        if isinstance(ended, Exception):
            raise ended


async def _keep_driver(env: Environment) -> None:
    """Replace a lost driver of the embedded default, which the started runs need."""
    from treadle.primitives.errors import TreadleError

    while True:
        await asyncio.sleep(_LOOK)
        if env.profile.embedded and not env.driver_lives():
            try:
                await asyncio.to_thread(env.ensure_driver)
            except TreadleError as error:
                advise(f"treadle: {error}")


_LOOK = 10.0
"""Seconds between two checks of the driver."""


dev = typer.Typer(
    cls=Verbs,
    help="The embedded default: a Temporal server and a driver on this machine, shared by all your commands.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@dev.command()
def up(
    detach: Annotated[bool, typer.Option("--detach", help="Return at once; the processes end when idle.")] = False,
    profile: ProfileOption = None,
) -> None:
    """Start server, driver and web UI, and keep them until Ctrl-C. Open runs continue at the next start."""
    env = Environment(profile)
    _need_embedded(env)
    _print_status(_up(env))
    if detach:
        return
    complain("Ctrl-C ends them; open runs go on at the next start.")
    _until_interrupted()
    from treadle.orchestrator import embedded

    embedded.down(env.home)
    complain("ended")


@dev.command()
def down() -> None:
    """End the driver and the server. Committed work is safe; open runs continue at the next start."""
    from treadle.orchestrator import embedded

    ended = embedded.down(Environment().home)
    names = [name for name, was in (("driver", ended.driver), ("server", ended.server)) if was]
    complain(f"ended: {' and '.join(names)}" if names else "nothing was running")


@dev.command()
def status(output: TextOrJson = "text") -> None:
    """Show the running processes; start none."""
    from treadle.orchestrator import embedded

    home = Environment().home
    found, drivers = embedded.status(home), embedded.living_drivers(home)
    if output == "json":
        say_json(_as_json(found, drivers))
    else:
        _print_status(found)
        _print_others(found, drivers)


def _need_embedded(env: Environment) -> None:
    from treadle.primitives.errors import UsageError

    if not env.profile.embedded:
        raise UsageError("the settings name a Temporal of their own", "Start drivers for it with: treadle worker")


def _up(env: Environment) -> EmbeddedStatus:
    """Start with the web UI. A running server without it is replaced; its runs continue."""
    from treadle.orchestrator import embedded

    server = embedded.running_server(env.home)
    if server is not None and server.ui is None:
        complain("the server runs without its web UI: starting it again")
        embedded.down(env.home)
    return embedded.up(env.home, env.profile, ui=True)


def _until_interrupted() -> None:
    import signal

    signals = {signal.SIGINT, signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    signal.sigwait(signals)


def _print_others(found: EmbeddedStatus, drivers: Drivers) -> None:
    for environment, driver in drivers:
        if found.driver is None or driver.pid != found.driver.pid:
            typer.echo(f"driver  process {driver.pid}, of the environment {environment}")


def _as_json(found: EmbeddedStatus, drivers: Drivers) -> dict[str, Any]:
    server, driver = found.server, found.driver
    return {
        "server": {"address": server.address, "namespace": server.namespace, "pid": server.pid, "ui": server.ui}
        if server
        else None,
        "driver": {"pid": driver.pid, "ready": driver.ready, "version": driver.version} if driver else None,
        "drivers": [
            {"pid": one.pid, "ready": one.ready, "version": one.version, "environment": environment.prefix}
            for environment, one in drivers
        ],
    }


def _print_status(found: EmbeddedStatus) -> None:
    server, driver = found.server, found.driver
    about = f"{server.address}, namespace {server.namespace}, process {server.pid}" if server else "none"
    typer.echo(f"server  {about}")
    typer.echo(f"driver  process {driver.pid}{'' if driver.ready else ', starting'}" if driver else "driver  none")
    if server and server.ui:
        typer.echo(f"web UI  {server.ui}")
