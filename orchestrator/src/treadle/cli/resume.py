"""resume: continues a run from its committed partitions."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from treadle.primitives.errors import UsageError
from treadle.primitives.run_paths import parent_run, stage_of

from .common import formatting
from .common.completion import complete_stage
from .common.environment import Environment
from .common.exit_codes import Exit, advise, complain
from .common.new_run import Given, prepare_file
from .common.options import InputOption, InputsOption, ProfileOption, WholeRunArgument, run_to_change, with_options
from .run import say_when_alone
from .view.watcher import Watching, print_outputs, watch_run

if TYPE_CHECKING:
    from treadle.client.client import Runs
    from treadle.client.progress import StageView
    from treadle.client.submission import Prepared
    from treadle.orchestrator.dispatcher.orders import Assumption
    from treadle.orchestrator.run_requests.run_views import RunView

AssumeOption = Annotated[
    Literal["done", "retry"] | None,
    typer.Option(help="Treat attempts of `idempotent: false` stages with unknown outcome as done, or retry them."),
]


@dataclass(frozen=True)
class ResumeOptions:
    """The part of a run that is resumed, and the checks before it."""

    assume: AssumeOption = None
    file: Annotated[
        Path | None,
        typer.Option("--file", "-f", metavar="FILE", help="Fail unless this workflow and its code are the run's own."),
    ] = None
    input: InputOption = None
    inputs: InputsOption = None
    begin: Annotated[
        str,
        typer.Option(
            "--from",
            envvar="TREADLE_RESUME_FROM",
            metavar="STAGE",
            autocompletion=complete_stage,
            help="Run this stage and all later ones again; keep the rest. `load/read`: stage of a sub-workflow.",
        ),
    ] = ""
    only_failed: Annotated[bool, typer.Option("--only-failed", help="Resume failed stages only.")] = False
    explain: Annotated[
        bool, typer.Option("--explain", help="Show the stages that are kept and that run again; do nothing.")
    ] = False
    detach: Annotated[bool, typer.Option("--detach", help="Do not watch.")] = False


@with_options
def resume(run: WholeRunArgument, asked: ResumeOptions, how: Watching, profile: ProfileOption = None) -> None:
    """Resume a run that failed, was cancelled or timed out, or whose driver is dead. Committed partitions are kept.

    A run always resumes with the workflow and the code it was submitted with; changed files affect new runs only.
    """
    from treadle.client.resumption import mend

    env = Environment(profile)

    async def work(runs: Runs) -> Exit:
        name = await run_to_change(runs, run)
        for damaged in [] if asked.explain else await mend(env, runs, name):
            complain(f"{damaged} is damaged; the run makes it again")
        now = await _given(env, runs, name, asked)
        only = await _failed(env, runs, name) if asked.only_failed else []
        if asked.explain:
            return await _explain(env, runs, name, now, asked.begin, only)
        if now is not None:
            await _check_same(env, runs, name, now)
        if asked.begin:
            await _take_back(env, runs, name, asked.begin)
        code = await _resume(env, runs, name, asked.assume or "", None if asked.detach else how, only)
        return await _as_asked(runs, name, code) if only and not asked.detach else code

    raise typer.Exit(int(env.with_runs(work)))


async def _resume(
    env: Environment, runs: Runs, run: str, assume: Assumption, how: Watching | None, only: Sequence[str] = ()
) -> Exit:
    from treadle.client.resumption import have_driver

    view = await runs.view(run)  # read before a driver exists, which may finish the run at once
    if view.state == "succeeded":
        complain(f"run {run} has succeeded already; there is nothing to go on with")
        print_outputs((await runs.end(run)).outputs)
        return Exit.SUCCESS
    alone = env.settings.embedded and not env.driver_lives(view.queue)
    queue = await asyncio.to_thread(have_driver, env, view, advise)
    if await runs.resume(run, assume=assume, only=only, queue=queue):
        complain(
            f"run {run} goes on (resumption {view.resumption + 1}) with the workflow and code it was submitted with"
        )
    else:
        if assume:
            raise UsageError(f"run {run} is {view.state}", "--assume is for a run that has ended.")
        advise(_open_words(run, view, alone))
    await say_when_alone(env, runs)
    return await watch_run(env, runs, run, how) if how else Exit.SUCCESS


async def _take_back(env: Environment, runs: Runs, run: str, stage: str) -> None:
    """Discard the run's results of a stage and of later stages. Raises UsageError."""
    from treadle.orchestrator.plan.plan import Plan
    from treadle.orchestrator.reuse.stage_rerun import take_back

    view = await _ended(runs, run, "--from", stage)
    files = env.files(run)
    plan = await asyncio.to_thread(files.load, Plan, "plan")
    nodes = await asyncio.to_thread(take_back, files, plan, stage, view.resumption + 1, env.files)
    complain(f"runs again: {', '.join(nodes)}")


async def _failed(env: Environment, runs: Runs, run: str) -> list[str]:
    """The nodes that failed permanently. Raises UsageError."""
    from treadle.client.progress import Painter

    view = await _ended(runs, run, "--only-failed")
    stages = Painter(env.files(run), env.files).stages(view, await runs.end(run))
    found = [stage.node for stage in stages if stage.state == "failed"]
    if not found:
        raise UsageError(f"no stage of run {run} has failed", f"Go on with all: treadle resume {run}")
    return found


async def _ended(runs: Runs, run: str, option: str, stage: str = "") -> RunView:
    if parent_run(run):
        top, *stages = run.split("/")
        path = " " + "/".join([*map(stage_of, stages), stage]) if stage else ""
        hint = f"The run that it belongs to goes on with it: treadle resume {top} {option}{path}"
        raise UsageError(f"run {run} is a part of run {top}", hint)
    view = await runs.view(run)
    if view.open:
        raise UsageError(f"run {run} is {view.state}", f"{option} is for a run that has ended.")
    if view.state == "succeeded":
        hint = f"What it gave stays as it is. For another result start a new run: treadle rerun {run} --no-cache"
        raise UsageError(f"run {run} has succeeded already", hint)
    return view


async def _as_asked(runs: Runs, run: str, code: Exit) -> Exit:
    """The exit code: success if the run failed only because of stages that were excluded from it."""
    from treadle.orchestrator.protocol.messages import LEFT

    view = await runs.view(run)
    end = None if view.open else await runs.end(run)
    left = end is not None and end.failure is not None and end.failure.failure == LEFT
    return Exit.SUCCESS if left else code


def _open_words(run: str, view: RunView, alone: bool) -> str:
    if view.state == "paused":
        return f"run {run} is paused; go on with: treadle unpause {run}"
    return f"run {run} was without a driver; it goes on with a new one" if alone else f"run {run} is under way already"


async def _given(env: Environment, runs: Runs, run: str, asked: ResumeOptions) -> Prepared | None:
    """The submission that the run would have if it were submitted now; None: no file is given."""
    if asked.file is None:
        if asked.input or asked.inputs:
            raise UsageError("inputs of a run cannot change", "Start a new run; or compare by --file FILE.")
        return None
    known = await runs.submission(run)
    given = asked.input or [f"{name}={_text(value)}" for name, value in known.inputs.items() if value is not None]
    return prepare_file(env, asked.file, Given(given, asked.inputs, run))


async def _check_same(env: Environment, runs: Runs, run: str, now: Prepared) -> None:
    """Raises RunConflict that names the changes."""
    from treadle.client.client import RunConflict
    from treadle.orchestrator.run_store.run_files import same_workflow

    from .view.reuse_text import changes

    difference = same_workflow(await runs.submission(run), now.submission)
    if difference:
        first = next(iter(changes(env, run, now).values()), "")
        raise RunConflict(
            f"run {run} was submitted with other things: {difference} changed since{first and f' ({first})'}",
            "Without --file it goes on with its own workflow and code; for the changed ones start a new run.",
        )


def _text(value: object) -> str:
    import json

    return value if isinstance(value, str) else json.dumps(value)


async def _explain(
    env: Environment, runs: Runs, run: str, now: Prepared | None, begin: str, only: Sequence[str]
) -> Exit:
    """Print the nodes that are kept and that run again, and the changes since, in the given files or in the input
    files."""
    from treadle.client.progress import Painter

    from .view.reuse_text import changes
    from .view.watch_output import label

    view = await (_ended(runs, run, "--from", begin) if begin else runs.view(run))
    painter = Painter(env.files(run), env.files)
    end = None if view.open else await runs.end(run)
    stages = painter.stages(view, end)
    if not stages:
        typer.echo("nothing was done yet: everything runs")
    changed = await asyncio.to_thread(changes, env, run, now) if stages else {}
    again = await asyncio.to_thread(_again, env, run, begin) if begin else []
    for stage in stages:
        typer.echo(f"{label(stage)}: {_fate(stage, view, again, only)}")
        if stage.node in changed:
            typer.echo(f"  changed since: {changed[stage.node]}")
    if "" in changed:
        typer.echo(f"it could not be planned as it was: {changed['']}")
    if changed:
        advise("it goes on with what it was submitted with; a new run takes the changes: treadle run")
    return Exit.SUCCESS


def _again(env: Environment, run: str, stage: str) -> list[str]:
    """The paths of the nodes that `--from` would run again."""
    from treadle.orchestrator.plan.plan import Plan
    from treadle.orchestrator.reuse.stage_rerun import again

    files = env.files(run)
    return [one.path for one in again(files, files.load(Plan, "plan"), stage, env.files)]


def _fate(stage: StageView, view: RunView, again: Sequence[str], only: Sequence[str]) -> str:
    """`again`: the paths of nodes that run again; `only`: the nodes that may begin, empty: all."""
    inside = ", ".join(path.partition("/")[2] for path in again if path.startswith(f"{stage.node}/"))
    if only and stage.node not in only and stage.state in ("waiting", "stopped"):
        return "does not begin"
    if inside:
        return f"of it runs again: {inside}"
    return "runs again" if stage.node in again else _going_on(stage, view)


def _going_on(stage: StageView, view: RunView) -> str:
    from .view.watch_output import volume

    about = f" ({volume(stage)})" if volume(stage) else ""
    if stage.state == "done":
        return f"kept{about}"
    if stage.state == "skipped":
        return "was skipped; its condition is judged again"
    if stage.kind == "loop" and stage.iteration:
        return f"goes on after iteration {stage.iteration.rpartition(' ')[2].partition('/')[0]}"
    if stage.state == "running" and view.open:
        return f"runs now, {stage.committed} of {stage.partitions} committed"
    if stage.committed:
        rest = formatting.counted(stage.partitions - stage.committed, "partition")
        return f"{stage.committed} of {stage.partitions} partitions kept{about}, {rest} to run"
    return "runs" + (f", {formatting.counted(stage.partitions, 'partition')}" if stage.partitions else "")
