"""run, submit: start a run from a file."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from treadle.primitives.errors import StoreError, UsageError

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
    with_options,
)
from .view.plan_text import show_plan
from .view.watcher import Watching, watch_run

if TYPE_CHECKING:
    from treadle.client.client import Runs
    from treadle.client.submission import Prepared
    from treadle.dsl.document.document import Document
    from treadle.orchestrator.planner import RunLocation
    from treadle.orchestrator.planner.placement import PlacementRefused


@dataclass(frozen=True)
class Given:
    """The options that describe a new run."""

    input: InputOption = None
    inputs: InputsOption = None
    id: Annotated[str | None, typer.Option("--id", metavar="RUN", help="Run id; default: generated.")] = None
    executor: ExecutorOption = None

    def values(self) -> dict[str, Any]:
        """The values of the workflow's inputs. Raises UsageError."""
        from .common.documents import read_inputs

        return read_inputs(self.input, self.inputs)

    def run(self, workflow: str) -> str:
        """The run id. Raises UsageError for an invalid one."""
        from treadle.client.submission import RUN_ID, new_run_id

        if not self.id:
            return new_run_id(workflow)
        if not RUN_ID.fullmatch(self.id):
            text = f"--id {self.id!r} cannot be a run id"
            raise UsageError(text, "Use letters, digits, `.`, `_` and `-`; at most 200.")
        return self.id


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
    from treadle.client.submission import prepare
    from treadle.dsl.validation.inputs import resolve_inputs
    from treadle.orchestrator.planner.placement import PlacementRefused

    from .common.documents import load_checked

    loaded = load_checked(file)
    spec = loaded.spec
    site = site or env.plan_site()
    if name := given.executor:
        if name not in site.executors:
            raise UsageError(f"there is no executor {name!r} here", f"The profile has: {', '.join(site.executors)}.")
        spec = spec.model_copy(update={"defaults": spec.defaults.model_copy(update={"executor": name})})
    try:
        return prepare(
            spec,
            resolve_inputs(spec, given.values()),
            run=given.run(spec.name),
            base=loaded.base,
            roots=[loaded.base],
            captured=loaded.captured,
            site=site,
        )
    except PlacementRefused as error:
        raise positioned(error, loaded.document) from error


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


def positioned(error: PlacementRefused, document: Document) -> UsageError:
    """The refusal with its place in the document, which editors and terminals show as a link."""
    for whole in error.paths:
        there, path = _file_of(document, whole)
        if path in there.places:
            span = there.span(path, key=True)
            return UsageError(f"{there.file}:{span.line}:{span.col}: {error.message}", error.hint)
    return error


def _file_of(document: Document, path: tuple[str, ...]) -> tuple[Document, tuple[str, ...]]:
    """The document, or its nested document, that contains the path; and the path in it."""
    if path[2:3] == ("uses",) and path[1] in document.children:
        return _file_of(document.children[path[1]], path[3:])
    return document, path


async def start(env: Environment, runs: Runs, prepared: Prepared, begin: Starting) -> str:
    """Start the run; return its id."""
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
    if not env.profile.embedded and not await runs.drivers():
        advise(f"no driver serves the queue {env.profile.queue} now; the run waits for one: treadle worker")


def check_places(prepared: Prepared) -> None:
    """Raises UsageError when an output location belongs to another run, before any stage starts. Blocking."""
    from treadle.orchestrator.dispatcher.tasks.outputs import check

    with suppress(StoreError):  # this machine cannot reach the location, and need not
        check(prepared.plan.graph, prepared.submission.run)


def show_dry_run(prepared: Prepared) -> None:
    """Print the plan to stderr, because scripts expect a run id on stdout. Raises UsageError."""
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
