"""cancel, terminate, pause, unpause, limit: commands for a running run."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from treadle.primitives.errors import UsageError

from .common import formatting
from .common.completion import complete_stage
from .common.environment import Environment
from .common.exit_codes import advise, complain
from .common.options import ProfileOption, ReasonOption, WholeRunArgument, YesOption, run_to_change

if TYPE_CHECKING:
    from treadle.client.client import Runs
    from treadle.orchestrator.run_requests.run_views import RunView

Ask = Callable[["Runs", "RunView"], Awaitable[None]]


def cancel(
    run: WholeRunArgument, reason: ReasonOption = "", yes: YesOption = False, profile: ProfileOption = None
) -> None:
    """Stop a run gracefully: attempts end, committed work stays. `treadle resume` continues it."""
    env = Environment(profile)

    async def ask(runs: Runs, view: RunView) -> None:
        _confirm(f"cancel run {view.run}?", yes)
        await asyncio.to_thread(env.ensure_driver, view.queue)
        await runs.cancel(view.run, reason)
        advise(f"run {view.run} is asked to stop; see: treadle watch {view.run}")

    _steer(env, run, ask)


def terminate(
    run: WholeRunArgument, reason: ReasonOption = "", yes: YesOption = False, profile: ProfileOption = None
) -> None:
    """End a run at once, without a driver. `treadle resume` continues it."""
    env = Environment(profile)

    async def ask(runs: Runs, view: RunView) -> None:
        _confirm(f"terminate run {view.run}?", yes)
        await runs.terminate(view.run, reason)
        complain(f"run {view.run} is terminated")

    _steer(env, run, ask)


def pause(run: WholeRunArgument, profile: ProfileOption = None) -> None:
    """Pause a run: start no more attempts; running ones may end. `treadle unpause` continues it."""
    _update(run, profile, "is paused; go on with: treadle unpause {run}", "pause")


def unpause(run: WholeRunArgument, profile: ProfileOption = None) -> None:
    """Continue a paused run."""
    _update(run, profile, "goes on; see: treadle watch {run}", "unpause")


def limit(
    run: WholeRunArgument,
    stage: Annotated[str, typer.Argument(help="A stage of the run.", metavar="STAGE", autocompletion=complete_stage)],
    tasks: Annotated[int, typer.Argument(min=1, help="Maximum concurrent tasks of the stage.", metavar="N")],
    profile: ProfileOption = None,
) -> None:
    """Limit the concurrent tasks of a stage from now on."""
    said = f"runs at most {formatting.counted(tasks, 'task')} of {stage} at once"
    _update(run, profile, said, "limit", stage, tasks)


def _update(
    run: str,
    profile: str | None,
    said: str,
    action: Literal["pause", "unpause", "limit"],
    stage: str = "",
    concurrency: int = 0,
) -> None:
    env = Environment(profile)

    async def ask(runs: Runs, view: RunView) -> None:
        await asyncio.to_thread(env.ensure_driver, view.queue)
        await runs.steer(view.run, action, stage, concurrency)
        advise(f"run {view.run} {said.format(run=view.run)}")

    _steer(env, run, ask)


def _steer(env: Environment, run: str, ask: Ask) -> None:
    """Apply `ask` to an open run. Raises UsageError if the run is over."""

    async def work(runs: Runs) -> None:
        name = await run_to_change(runs, run)
        view = await runs.view(name)
        if not view.open:
            raise UsageError(f"run {name} is over: it {_ended(view.state)}", f"See: treadle show {name}")
        await ask(runs, view)

    env.with_runs(work)


def _ended(state: str) -> str:
    return state if state in ("succeeded", "failed", "timed out") else f"was {state}"


def _confirm(question: str, yes: bool) -> None:
    """Ask for confirmation on a terminal. Raises UsageError if the user declines."""
    if yes or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return
    if not typer.confirm(question, err=True):
        raise UsageError("nothing was done")
