"""watch: a run to its end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from .common.environment import Environment
from .common.exits import Exit
from .common.named import run_to_read
from .common.options import ProfileOption, RunArgument, with_options
from .view.watcher import Watching, watch_run

if TYPE_CHECKING:
    from ..client.client import Runs


@with_options
def watch(run: RunArgument, how: Watching, profile: ProfileOption = None) -> None:
    """Watch a run to its end. Ctrl-C leaves it running; Ctrl-C twice cancels it."""
    env = Environment(profile)

    async def work(runs: Runs) -> Exit:
        return await watch_run(env, runs, await run_to_read(runs, run), how)

    raise typer.Exit(int(env.with_runs(work)))
