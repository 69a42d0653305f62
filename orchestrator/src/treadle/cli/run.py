"""run, submit: start a run from a file."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from .common.environment import Environment
from .common.exit_codes import Exit, advise, complain
from .common.new_run import Given, is_deployed, prepare_deployed, prepare_file
from .common.options import DryRunOption, FileOrNameArgument, ProfileOption, duration, with_options
from .view.plan_text import show_plan
from .view.watcher import Watching, watch_run

if TYPE_CHECKING:
    from treadle.client.client import Runs
    from treadle.client.submission import Prepared


@dataclass(frozen=True)
class Starting:
    """How a new run starts. Raises UsageError for an invalid delay."""

    if_exists: Annotated[
        Literal["fail", "use", "terminate"],
        typer.Option("--if-exists", envvar="TREADLE_IF_EXISTS", help="Action if the id exists already."),
    ] = "fail"
    start_delay: Annotated[
        str | None, typer.Option("--start-delay", metavar="DURATION", help="Delay of the start, such as 10m.")
    ] = None
    dry_run: DryRunOption = False

    def __post_init__(self) -> None:
        _ = self.delay

    @property
    def delay(self) -> timedelta | None:
        return timedelta(seconds=duration(self.start_delay, "--start-delay")) if self.start_delay else None


async def start(env: Environment, runs: Runs, prepared: Prepared, begin: Starting) -> str:
    """Start the run; return its id."""
    from treadle.client.preparation import check_places

    if begin.delay is None:
        await asyncio.to_thread(check_places, prepared)
    started = await runs.submit(prepared, if_exists=begin.if_exists, start_delay=begin.delay)
    run = prepared.submission.run
    if not started:
        complain(f"run {run} was there already")
    await say_when_alone(env, runs)
    return run


async def say_when_alone(env: Environment, runs: Runs) -> None:
    """Print a hint if no driver serves the queue. The embedded default has a driver at this point."""
    if not env.settings.embedded and not await runs.drivers():
        advise(f"no driver serves the queue {env.settings.queue} now; the run waits for one: treadle worker")


def show_dry_run(prepared: Prepared) -> None:
    """Print the plan to stderr, because scripts expect a run id on stdout. Raises UsageError."""
    from treadle.client.preparation import check_places

    check_places(prepared)
    show_plan(prepared.plan, stderr=True)
    complain(f"would start run {prepared.submission.run}; nothing was started")


@with_options
def submit(file: FileOrNameArgument, given: Given, begin: Starting, profile: ProfileOption = None) -> None:
    """Start a run and print its id."""
    _start(Environment(profile), file, given, begin)


@with_options
def run(file: FileOrNameArgument, given: Given, begin: Starting, how: Watching, profile: ProfileOption = None) -> None:
    """Start a run and watch it to its end. Ctrl-C leaves it running; Ctrl-C twice cancels it."""
    _start(Environment(profile), file, given, begin, how)


def _start(env: Environment, file: Path, given: Given, begin: Starting, how: Watching | None = None) -> None:
    prepared = prepare_deployed(env, str(file), given) if is_deployed(file) else prepare_file(env, file, given)
    if begin.dry_run:
        show_dry_run(prepared)
        return
    env.ensure_driver()

    async def work(runs: Runs) -> Exit:
        name = await start(env, runs, prepared, begin)
        if how is None:
            typer.echo(name)
            await asyncio.to_thread(env.keep_requests, name)
            return Exit.SUCCESS
        complain(f"run {name}")
        return await watch_run(env, runs, name, how)

    try:
        code = env.with_runs(work)
    except KeyboardInterrupt:
        advise(f"run {prepared.submission.run} may have begun; see: treadle show {prepared.submission.run}")
        raise
    raise typer.Exit(int(code))
