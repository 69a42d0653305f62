"""Prepares an existing run to go on: repairs its objects and ensures a driver."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from treadle.primitives.run_paths import parent_run

if TYPE_CHECKING:
    from treadle.orchestrator.run_requests.run_views import RunView

    from .client import Runs
    from .environment import ClientEnvironment


async def mend(env: ClientEnvironment, runs: Runs, run: str) -> list[str]:
    """Replace damaged objects of an ended run if they can be derived from others; return their names."""
    from treadle.orchestrator.reuse.repair import mend

    view = await runs.view(run)
    if view.open or view.state == "succeeded" or parent_run(run):
        return []
    await runs.submission(run)
    return await asyncio.to_thread(lambda: list(mend(env.files(run), env.files)))


def have_driver(env: ClientEnvironment, view: RunView, note: Callable[[str], None]) -> str:
    """Ensure a driver for the run's environment; return the queue on which the run continues. Raises EnvironmentGone.

    `note` receives a sentence when that is not the environment of this process.
    """
    from treadle.orchestrator.embedded.python_environments import EnvironmentGone, other_environment

    if not env.settings.embedded:
        return ""
    try:
        other = other_environment(env.home, view.queue)
    except EnvironmentGone as gone:
        if view.open:
            raise
        note(f"{gone.message}. It goes on in this one")
        env.ensure_driver()
        return env.queue
    env.ensure_driver(view.queue)
    if other is None:
        return env.queue
    note(f"run {view.run} goes on in the environment that started it: {other}")
    return view.queue
