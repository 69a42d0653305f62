"""watch: follows a run to its end."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Annotated

import typer

from .common.environment import Environment
from .common.exit_codes import Exit
from .common.options import ProfileOption, RunArgument, duration, run_to_read, with_options
from .view.watcher import Watching, watch_run

if TYPE_CHECKING:
    from treadle.client.client import Runs


WaitOption = Annotated[
    str | None,
    typer.Option(
        "--wait", metavar="DURATION", help="Maximum wait for the run to start, such as a run started by an event."
    ),
]
_LOOK = 0.2
"""Seconds between two lookups of a run that does not exist yet."""


@with_options
def watch(run: RunArgument, how: Watching, wait: WaitOption = None, profile: ProfileOption = None) -> None:
    """Watch a run to its end. Ctrl-C leaves it running; Ctrl-C twice cancels it."""
    env = Environment(profile)
    patience = duration(wait, "--wait") if wait is not None else 0.0

    async def work(runs: Runs) -> Exit:
        return await watch_run(env, runs, await _started(runs, run, patience), how)

    raise typer.Exit(int(env.with_runs(work)))


async def _started(runs: Runs, run: str, patience: float) -> str:
    """The named run, once it exists. Raises NoSuchRun after `patience` seconds."""
    from treadle.orchestrator.run_requests.requests import NoSuchRun

    end = time.monotonic() + patience
    while True:
        try:
            return await run_to_read(runs, run)
        except NoSuchRun:
            if time.monotonic() >= end:
                raise
        await asyncio.sleep(_LOOK)
