"""worker: a long-running driver process."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from .environment import Environment
from .exits import reported
from .options import ProfileOption


def worker(
    queue: Annotated[str | None, typer.Option(envvar="TREADLE_QUEUE", help="Temporal task queue.")] = None,
    max_tasks: Annotated[
        int | None, typer.Option(envvar="TREADLE_MAX_TASKS", min=1, help="Tasks at a time; default: the cores.")
    ] = None,
    profile: ProfileOption = None,
) -> None:
    """Interpret runs and run their tasks until told to stop."""
    from ..driver import serve

    with reported():
        env = Environment(profile)
        asyncio.run(serve(env.home, env.profile, queue, max_tasks))
