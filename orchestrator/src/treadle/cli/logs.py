"""logs and result: the output of attempts, and the outputs of a run."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from treadle.primitives.errors import UsageError

from .common.completion import complete_stage
from .common.environment import Environment
from .common.exit_codes import Exit, advise, complain, say
from .common.options import ProfileOption, RunArgument, StageOption, TextOrJson, run_to_read
from .view.watcher import code_of_state, print_outputs, reason

if TYPE_CHECKING:
    from treadle.client.client import Runs
    from treadle.orchestrator.dispatcher.ledger.attempt_records import AttemptRecord
    from treadle.orchestrator.run_requests.run_views import RunView

FOLLOW = 0.5
"""Seconds between two reads."""


def logs(
    run: RunArgument,
    stage: StageOption = None,
    partition: Annotated[
        int | None, typer.Option("--partition", "-p", min=0, metavar="N", help="Only this partition.")
    ] = None,
    attempt: Annotated[
        int | None, typer.Option("--attempt", "-a", min=1, metavar="N", help="Only this attempt.")
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Continue until the end of the run.")] = False,
    output: TextOrJson = "text",
    profile: ProfileOption = None,
) -> None:
    """Print the errors of attempts, grouped, then their output. Needs no driver."""
    from treadle.client.attempt_logs import reader

    env = Environment(profile)

    async def work(runs: Runs) -> None:
        name = await run_to_read(runs, run)
        await runs.submission(name)
        read = reader(env.files(name), stage, partition, attempt)
        if follow:
            await _follow(runs, name, read, output)
        else:
            some = stage is not None or partition is not None or attempt is not None
            _print_logs(read(), output, " of those asked for" if some else "")

    env.with_runs(work)


def _print_logs(records: list[AttemptRecord], output: str, among: str) -> None:
    """`among`: a description of the requested records, if not all."""
    from treadle.client.attempt_logs import group_lines, grouped, lines_of

    if output == "json":
        for record in records:
            typer.echo(msgspec.json.encode(record))
        return
    groups = grouped(records)
    for group in groups:
        say("\n".join(group_lines(group)) + "\n")
    printed = [line for record in records if record.log.removesuffix(record.traceback) for line in lines_of(record)]
    for line in printed:
        say(line)
    if not groups and not printed:
        complain(f"no attempt{among} failed or printed anything")


async def _follow(runs: Runs, run: str, read: Callable[[], list[AttemptRecord]], output: str) -> None:
    import asyncio

    from treadle.client.attempt_logs import lines_of

    while True:
        is_open = (await runs.view(run)).open
        for record in await asyncio.to_thread(read):
            if output == "json":
                typer.echo(msgspec.json.encode(record))
                continue
            for line in lines_of(record):
                say(line)
        if not is_open:
            return
        await asyncio.sleep(FOLLOW)


def result(
    run: RunArgument,
    stage: Annotated[
        str | None,
        typer.Option(
            "--stage",
            "-s",
            metavar="STAGE",
            help="Print the records of this stage instead.",
            autocompletion=complete_stage,
        ),
    ] = None,
    limit: Annotated[
        int | None, typer.Option("--limit", min=1, metavar="N", help="Maximum records of --stage.")
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for the end of the run.")] = False,
    at: Annotated[
        str | None,
        typer.Option(
            "--at",
            metavar="N",
            help="A checkpoint of a gang that is running (`last`, or its number): the states of its members.",
        ),
    ] = None,
    shared: Annotated[
        str | None,
        typer.Option(
            "--object", metavar="NAME", help="Print the value of this shared object after the last complete stage."
        ),
    ] = None,
    profile: ProfileOption = None,
) -> None:
    """Print the outputs of a run as JSON; with --stage the records of a stage, as JSON lines."""
    env = Environment(profile)
    if shared is not None and (stage or limit or at):
        raise UsageError("--object stands alone: an object is not the data of a stage", "Leave out the other options.")
    for option, what in ((limit, "--limit counts records"), (at, "--at names a checkpoint")):
        if option is not None and stage is None:
            raise UsageError(f"{what} of a stage", "Name it: --stage S.")
    number = _checkpoint_number(at)

    async def work(runs: Runs) -> Exit:
        name = await run_to_read(runs, run)
        view = await runs.view(name)
        if wait and view.open:
            await runs.end(name)
            view = await runs.view(name)
        if shared is not None:
            _print_object(env, name, shared)
            return Exit.SUCCESS
        if stage is not None and at is not None:
            _print_states(env, name, stage, number)
            return Exit.SUCCESS
        if stage is not None:
            _print_records(env, name, stage, limit, view)
            return Exit.SUCCESS
        return await _print_result(runs, name, view)

    raise typer.Exit(int(env.with_runs(work)))


async def _print_result(runs: Runs, run: str, view: RunView) -> Exit:
    if view.open:
        raise UsageError(f"run {run} is still {view.state}", "Wait for it: --wait.")
    end = await runs.end(run)
    if end.state == "succeeded":
        print_outputs(end.outputs)
        if not end.outputs:
            complain("the workflow declares no outputs; --stage S shows the data of a stage")
    else:
        complain(f"run {run} {end.state}{reason(end)}")
        advise(f"  See: treadle show {run}")
    return code_of_state(end.state)


def _print_records(env: Environment, run: str, stage: str, limit: int | None, view: RunView) -> None:
    from treadle.client.stage_data import Incomplete

    from .view.datasets import records

    try:
        _print_lines(islice(records(env, run, stage), limit))
    except Incomplete as error:
        hint = "Wait for it: --wait." if view.open else f"See: treadle show {run}"
        raise UsageError(error.message, hint) from None


def _print_states(env: Environment, run: str, stage: str, number: int | None) -> None:
    from .view.datasets import states

    number, lines = states(env, run, stage, number)
    complain(f"checkpoint {number} of {stage}")
    _print_lines(lines)


def _print_object(env: Environment, run: str, name: str) -> None:
    from .view.datasets import object_value

    after, line = object_value(env, run, name)
    complain(f"{name} {'at first' if after == '0' else f'after {after}'}")
    _print_lines([line])


def _print_lines(lines: Iterable[Iterator[str]]) -> None:
    for pieces in lines:
        sys.stdout.writelines(pieces)
        sys.stdout.write("\n")


def _checkpoint_number(at: str | None) -> int | None:
    """The number of a checkpoint; None: the last one."""
    if at is None or at == "last":
        return None
    if not at.isdecimal():
        raise UsageError(f"{at!r} is no checkpoint", "Write --at last, or its number: 1, 2, ...")
    return int(at)
