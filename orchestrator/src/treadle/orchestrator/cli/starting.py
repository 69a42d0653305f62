"""run, submit: from a file to a run under way."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import typer

from treadle.primitives.errors import StoreError, UsageError

from .common.environment import Environment
from .common.exits import Exit, complain, reported
from .common.options import (
    CompactOption,
    DelayOption,
    DryRunOption,
    ExecutorOption,
    ExitStatusOption,
    FailFastOption,
    FileOrNameArgument,
    IdOption,
    IfExistsOption,
    InputOption,
    InputsOption,
    IntervalOption,
    LogsOption,
    ProfileOption,
    TimeoutOption,
    WatchOutput,
    duration,
)
from .view.watcher import INTERVAL, Watching, watch_run, watching

if TYPE_CHECKING:
    from treadle.dsl.document.document import Document

    from ..client.client import Runs
    from ..client.submission import Prepared
    from ..planner import Site
    from ..planner.places import Refused

IfExists = Literal["fail", "use", "terminate"]


def prepare_file(
    env: Environment,
    file: Path,
    pairs: list[str] | None = None,
    inputs: Path | None = None,
    run: str | None = None,
    executor: str | None = None,
    site: Site | None = None,
) -> Prepared:
    """Everything checked and planned, nothing started. Raises InvalidDocument, InvalidInputs, UsageError.

    `site`: in place of what the profile has.
    """
    from treadle.dsl.validation.inputs import resolve_inputs

    from ..client.submission import new_run_id, prepare
    from ..planner.places import Refused
    from .common.documents import load_checked, read_inputs

    loaded = load_checked(file)
    spec = loaded.spec
    site = site or env.plan_site()
    if executor:
        if executor not in site.executors:
            raise UsageError(
                f"there is no executor {executor!r} here", f"The profile has: {', '.join(site.executors)}."
            )
        spec = spec.model_copy(update={"defaults": spec.defaults.model_copy(update={"executor": executor})})
    try:
        return prepare(
            spec,
            resolve_inputs(spec, read_inputs(pairs or [], inputs)),
            run=checked_id(run) if run else new_run_id(spec.name),
            base=loaded.base,
            roots=[loaded.base],
            captured=loaded.captured,
            site=site,
        )
    except Refused as error:
        raise positioned(error, loaded.document) from error


def prepare_deployed(
    env: Environment, name: str, pairs: list[str] | None, inputs: Path | None, run: str | None, executor: str | None
) -> Prepared:
    """A run of a deployed workflow: its code comes from the registry, nothing is imported here.

    Raises NoSuchDeployment, InvalidInputs, UsageError.
    """
    from msgspec.structs import replace

    from ..client.submission import new_run_id, on_executor, planned
    from ..triggers.registry.registry import NoSuchDeployment, parse_name
    from .common.documents import read_inputs

    try:
        deployment = env.registry.deployment(*parse_name(name))
    except NoSuchDeployment as error:
        if meant := _with_ending(Path(name)):
            raise NoSuchDeployment(error.message, f"For the file {meant} write its ending too.") from error
        raise
    chosen = checked_id(run) if run else new_run_id(deployment.workflow)
    submission = on_executor(deployment.submission(chosen, read_inputs(pairs or [], inputs)), executor)
    submission = replace(submission, shared=env.registry.shared(deployment))
    return planned(submission, env.registry.bundle(deployment), env.plan_site())


def _with_ending(text: Path) -> str:
    """The file that was perhaps meant, without its ending; else nothing."""
    found = [each for ending in (".yaml", ".yml", ".py") if (each := text.with_name(text.name + ending)).is_file()]
    return str(found[0]) if found else ""


def _is_name(text: Path) -> bool:
    """Whether `submit` is given a deployed workflow and not a file: a file has an ending, or is there."""
    import re

    return bool(re.fullmatch(r"[a-z][A-Za-z0-9_]*(@.*)?", str(text))) and not text.exists()


def positioned(error: Refused, document: Document) -> UsageError:
    """The refusal with the place in the document that is its reason, as editors and terminals make links of."""
    for whole in error.paths:
        there, path = _file_of(document, whole)
        if path in there.places:
            span = there.span(path, key=True)
            return UsageError(f"{there.file}:{span.line}:{span.col}: {error.message}", error.hint)
    return error


def _file_of(document: Document, path: tuple[str, ...]) -> tuple[Document, tuple[str, ...]]:
    """The document, of those that belong together, that has the place, and the path in there."""
    if path[2:3] == ("uses",) and path[1] in document.children:
        return _file_of(document.children[path[1]], path[3:])
    return document, path


def checked_id(run: str) -> str:
    """The id, when it can be one. Raises UsageError."""
    from ..client.submission import RUN_ID

    if not RUN_ID.fullmatch(run):
        raise UsageError(f"--id {run!r} cannot be a run id", "Use letters, digits, `.`, `_` and `-`; at most 200.")
    return run


async def start(
    env: Environment, runs: Runs, prepared: Prepared, if_exists: IfExists, delay: timedelta | None = None
) -> str:
    """Start the run; its id."""
    if delay is None:
        await asyncio.to_thread(check_places, prepared)
    started = await runs.submit(prepared, if_exists=if_exists, start_delay=delay)
    run = prepared.submission.run
    if not started:
        complain(f"run {run} was there already")
    if not env.profile.embedded and not await runs.drivers():
        complain(f"no driver serves the queue {env.profile.queue} now; the run waits for one: treadle worker")
    return run


def check_places(prepared: Prepared) -> None:
    """Raises UsageError when an output is another run's: not only once the stage has its turn. Blocking."""
    from ..dispatcher.tasks.outputs import check

    with suppress(StoreError):  # this machine does not reach the place, and need not
        check(prepared.plan.graph, prepared.submission.run)


def show_dry_run(prepared: Prepared) -> None:
    """The plan on stderr, so that scripts may pass --dry-run where they expect a run id. Raises UsageError."""
    from .planning import show_plan

    check_places(prepared)
    show_plan(prepared.plan, stderr=True)
    complain(f"would start run {prepared.submission.run}; nothing was started")


def submit(
    file: FileOrNameArgument,
    input: InputOption = None,
    inputs: InputsOption = None,
    id: IdOption = None,
    if_exists: IfExistsOption = "fail",
    start_delay: DelayOption = None,
    executor: ExecutorOption = None,
    dry_run: DryRunOption = False,
    watch: bool = typer.Option(False, "--watch", help="Then watch it, as `treadle watch` does."),
    profile: ProfileOption = None,
) -> None:
    """Start a run and print its id."""
    with reported():
        _start(
            file, input, inputs, id, if_exists, start_delay, executor, dry_run, profile, Watching() if watch else None
        )


def run(
    file: FileOrNameArgument,
    input: InputOption = None,
    inputs: InputsOption = None,
    id: IdOption = None,
    if_exists: IfExistsOption = "fail",
    start_delay: DelayOption = None,
    executor: ExecutorOption = None,
    dry_run: DryRunOption = False,
    compact: CompactOption = False,
    interval: IntervalOption = INTERVAL,
    timeout: TimeoutOption = None,
    fail_fast: FailFastOption = False,
    logs: LogsOption = False,
    output: WatchOutput = "text",
    exit_status: ExitStatusOption = True,
    profile: ProfileOption = None,
) -> None:
    """Start a run and watch it to its end. Ctrl-C leaves it running; Ctrl-C twice cancels it."""
    with reported():
        how = watching(compact, interval, timeout, fail_fast, logs, output, exit_status)
        _start(file, input, inputs, id, if_exists, start_delay, executor, dry_run, profile, how, quiet=True)


def _start(
    file: Path,
    pairs: list[str] | None,
    inputs: Path | None,
    id: str | None,
    if_exists: IfExists,
    start_delay: str | None,
    executor: str | None,
    dry_run: bool,
    profile: str | None,
    how: Watching | None,
    quiet: bool = False,
) -> None:
    env = Environment(profile)
    delay = timedelta(seconds=duration(start_delay, "--start-delay")) if start_delay else None
    if _is_name(file):
        prepared = prepare_deployed(env, str(file), pairs, inputs, id, executor)
    else:
        prepared = prepare_file(env, file, pairs, inputs, id, executor)
    if dry_run:
        show_dry_run(prepared)
        return
    env.ensure_driver()

    async def work(runs: Runs) -> Exit:
        name = await start(env, runs, prepared, if_exists, delay)
        complain(f"run {name}") if quiet else typer.echo(name)
        return await watch_run(env, runs, name, how) if how else Exit.SUCCESS

    raise typer.Exit(int(env.with_runs(work)))
