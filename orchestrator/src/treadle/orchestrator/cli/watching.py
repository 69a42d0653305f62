"""watch: a run to its end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from .common.environment import Environment
from .common.exits import Exit, reported
from .common.options import (
    CompactOption,
    ExitStatusOption,
    FailFastOption,
    IntervalOption,
    LogsOption,
    ProfileOption,
    RunArgument,
    TimeoutOption,
    WatchOutput,
)
from .view.watcher import INTERVAL, watch_run, watching

if TYPE_CHECKING:
    from ..client.client import Runs


def watch(
    run: RunArgument,
    compact: CompactOption = False,
    interval: IntervalOption = INTERVAL,
    timeout: TimeoutOption = None,
    fail_fast: FailFastOption = False,
    logs: LogsOption = False,
    output: WatchOutput = "text",
    exit_status: ExitStatusOption = True,
    profile: ProfileOption = None,
) -> None:
    """Watch a run to its end. Ctrl-C leaves it running; Ctrl-C twice cancels it."""
    with reported():
        env = Environment(profile)
        how = watching(compact, interval, timeout, fail_fast, logs, output, exit_status)

        async def work(runs: Runs) -> Exit:
            return await watch_run(env, runs, await runs.find(run), how)

        raise typer.Exit(int(env.with_runs(work)))
