"""run, submit: start a run from a file."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from .common.environment import Environment
from .common.exit_codes import Exit, advise, complain
from .common.options import (
    DryRunOption,
    ExecutorOption,
    FileOrNameArgument,
    InputOption,
    InputsOption,
    ProfileOption,
    duration,
    read_inputs,
    with_options,
)
from .view.plan_text import show_plan
from .view.watcher import Watching, watch_run

if TYPE_CHECKING:
    from treadle.client.client import Runs
    from treadle.client.submission import Prepared
    from treadle.orchestrator.planner import RunLocation


@dataclass(frozen=True)
class Given:
    """The options that describe a new run."""

    input: InputOption = None
    inputs: InputsOption = None
    id: Annotated[str | None, typer.Option("--id", metavar="RUN", help="Run id; default: generated.")] = None
    executor: ExecutorOption = None

    def values(self) -> dict[str, Any]:
        """The values of the workflow's inputs. Raises UsageError."""
        return read_inputs(self.input, self.inputs)

    def run(self, workflow: str) -> str:
        """The run id. Raises UsageError for an invalid one."""
        from treadle.client.submission import run_id

        return run_id(self.id, workflow, "--id")


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


def prepare_file(env: Environment, file: Path, given: Given, site: RunLocation | None = None) -> Prepared:
    """Check and plan without starting. Raises InvalidDocument, InvalidInputs, UsageError.

    `site` replaces the resources of the profile.
    """
    from treadle.client.documents import load_checked
    from treadle.client.preparation import prepare_document

    loaded = load_checked(file)
    return prepare_document(env, loaded, given.values(), given.run(loaded.spec.name), given.executor, site)


def prepare_deployed(env: Environment, name: str, given: Given) -> Prepared:
    """Prepare a run of a deployed workflow: its code comes from the registry, nothing is imported here.

    Raises NoSuchDeployment, InvalidInputs, UsageError.
    """
    from msgspec.structs import replace

    from treadle.client.submission import on_executor, planned
    from treadle.triggers.registry.registry import NoSuchDeployment, parse_name

    try:
        deployment = env.registry.deployment(*parse_name(name))
    except NoSuchDeployment as error:
        if meant := _with_ending(Path(name)):
            raise NoSuchDeployment(error.message, f"For the file {meant} write its ending too.") from error
        raise
    submission = deployment.submission(given.run(deployment.workflow), given.values())
    submission = on_executor(submission, given.executor)
    submission = replace(submission, shared=env.registry.shared(deployment))
    return planned(submission, env.registry.bundle(deployment), env.plan_site())


def _with_ending(text: Path) -> str:
    """The file with this name plus an ending, if there is one; otherwise an empty text."""
    found = [each for ending in (".yaml", ".yml", ".py") if (each := text.with_name(text.name + ending)).is_file()]
    return str(found[0]) if found else ""


def _is_name(text: Path) -> bool:
    """Whether the argument names a deployed workflow: a file has an ending, or exists."""
    import re

    return bool(re.fullmatch(r"[a-z][A-Za-z0-9_]*(@.*)?", str(text))) and not text.exists()


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
    prepared = prepare_deployed(env, str(file), given) if _is_name(file) else prepare_file(env, file, given)
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
