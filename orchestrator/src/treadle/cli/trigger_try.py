"""trigger test, fire, backfill, seek: the effect of a trigger, and runs started without an event."""

from __future__ import annotations

import contextlib
import json
import secrets
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from time import sleep
from time import time as now
from typing import TYPE_CHECKING, Annotated, Literal, TypeVar

import typer

from treadle.primitives.errors import UsageError

from .common.environment import Environment, need
from .common.exit_codes import Exit, advise, complain, say, say_json
from .common.options import ProfileOption, TextOrJson, WatchOption, pair, with_options
from .trigger import TargetArgument, found, trigger
from .view.watcher import Watching, watch_run

if TYPE_CHECKING:
    from temporalio.client import Client

    from treadle.triggers.dry_run import SampleEvent, Trial
    from treadle.triggers.kafka.matching import Lineage
    from treadle.triggers.registry.deployment import Deployment
    from treadle.triggers.start_requests import StartOrder

T = TypeVar("T")


@dataclass(frozen=True)
class Asked:
    """A sample event, or a time of a schedule."""

    event: Annotated[
        Path | None,
        typer.Option(
            "--event", "-e", metavar="FILE", help="File with a sample event as its producer sends it; - reads stdin."
        ),
    ] = None
    time: Annotated[
        str | None,
        typer.Option("--time", metavar="WHEN", help="Time of a schedule, in its timezone: 2026-01-31T02:00."),
    ] = None
    header: Annotated[
        list[str] | None, typer.Option("--header", "-H", metavar="NAME=VALUE", help="Header of the sample; repeatable.")
    ] = None
    key: Annotated[str | None, typer.Option("--key", metavar="TEXT", help="Kafka key of the sample.")] = None


# -- test ----------------------------------------------------------------------------------------------------------


@trigger.command("test")
@with_options
def try_(
    target: TargetArgument,
    asked: Asked,
    file: Annotated[
        Path | None,
        typer.Option(
            "--file", "-f", metavar="FILE", help="Use the trigger in this workflow file instead of the deployed one."
        ),
    ] = None,
    output: TextOrJson = "text",
    profile: ProfileOption = None,
) -> None:
    """Test a trigger with a sample event or time: filter, mapped inputs, run id. Starts nothing, needs no broker."""
    env = Environment(profile)
    deployment, name = _drafted(env, file, target) if file else found(env, target)
    trials = _tried(env, deployment, name, asked)
    if output == "json":
        say_json(trials)
    else:
        say("\n\n".join(_trial_text(deployment, name, trial) for trial in trials))
    complain("nothing was started")
    refused = any(trial.verdict == "dead letter" for trial in trials)
    raise typer.Exit(int(Exit.USAGE if refused else Exit.SUCCESS))


def _tried(env: Environment, deployment: Deployment, name: str, asked: Asked) -> list[Trial]:
    from treadle.triggers.dry_run import try_event, try_times

    if (asked.event is None) == (asked.time is None):
        raise UsageError("give a sample or a time", "--event FILE for events; --time 2026-01-31T02:00 for schedules.")
    if asked.event is None:
        return try_times(deployment, name, _times(deployment, name, str(asked.time)), env.profile.allow)
    return try_event(deployment, name, _sample(asked.event, asked), env.profile.allow)


def _trial_text(deployment: Deployment, name: str, trial: Trial) -> str:
    settings = deployment.document["triggers"][name]
    rows = [["trigger", f"{trial.trigger}, version {trial.version}"]]
    if trial.event is not None:
        rows.append(["event", f"{trial.event['type']} {trial.event['id']} of {trial.event['source']}"])
    if "filter" in settings and trial.verdict != "dead letter":
        rows.append(["filter", f"{'true' if trial.verdict == 'starts' else 'false'}: {settings['filter']}"])
    rows.append(["verdict", f"{trial.verdict}{': ' if trial.reason else ''}{trial.reason}"])
    if trial.inputs is not None:
        shown = json.dumps(trial.inputs, indent=2, ensure_ascii=False).splitlines()
        rows += [["inputs" if index == 0 else "", line] for index, line in enumerate(shown)]
        rows.append(["run", trial.run])
    return "\n".join(f"{head:8} {text}" for head, text in rows)


# -- fire, backfill and seek ----------------------------------------------------------------------------------------


@trigger.command()
@with_options
def fire(target: TargetArgument, asked: Asked, watch: WatchOption = False, profile: ProfileOption = None) -> None:
    """Start the run of a sample event or of a schedule's time, and print its id. Ignores pauses and limits."""
    from treadle.triggers.dry_run import fired

    env = Environment(profile)
    deployment, name = found(env, target)
    trials = _tried(env, deployment, name, asked)
    refused = [trial for trial in trials if trial.verdict != "starts"]
    if refused:
        raise UsageError(
            f"{target} starts nothing: {refused[0].reason or 'the filter passes the event over'}",
            f"Look at it: treadle trigger test {target} ...",
        )
    orders = [fired(deployment, name, trial, now(), secrets.token_hex(3)) for trial in trials]
    env.ensure_driver()

    async def work(client: Client) -> Exit:
        chosen = orders if asked.time is None else [await _taken(env, client, deployment, name, asked.time, orders)]
        return await _start(env, client, chosen, watch)

    raise typer.Exit(int(env.with_client(work)))


async def _taken(
    env: Environment, client: Client, deployment: Deployment, name: str, text: str, orders: list[StartOrder]
) -> StartOrder:
    """The order of the instant at which the schedule fires. For a local time that occurs twice the server decides.

    Raises UsageError.
    """
    from zoneinfo import ZoneInfo

    from treadle.triggers.schedules.reconcile import Schedules
    from treadle.triggers.schedules.tick_runs import is_repeated, schedule_of, tick_run

    settings = schedule_of(deployment, name)
    times = _times(deployment, name, text)
    if settings.cron is not None and is_repeated(times[0], ZoneInfo(settings.timezone)):
        schedules = Schedules(client, env.queue, env.key)
        await schedules.reconcile(env.registry)
        times = await schedules.taken(deployment.workflow, name, times)
    runs = {tick_run(deployment.workflow, name, one): one for one in times}
    left = [order for order in orders if order.run in runs]
    if len(left) == 1:
        return left[0]
    if not left:
        raise UsageError(f"the schedule takes the other {text}: clocks repeat it", "Leave the offset out of --time.")
    choice = " or ".join(runs[order.run].isoformat() for order in left)
    raise UsageError(
        f"clocks repeat {text}, and the schedule takes it both times", f"Give one of them: --time {choice}"
    )


async def _start(env: Environment, client: Client, orders: list[StartOrder], watch: bool) -> Exit:
    starter = await env.starter(client)
    for order in orders:
        started = await starter.start(order)
        if not started.new:
            complain(f"run {started.run} was there already")
        typer.echo(started.run)
    return await watch_run(env, env.runs_of(client), orders[-1].run, Watching()) if watch else Exit.SUCCESS


@trigger.command()
def backfill(
    target: TargetArgument,
    begin: Annotated[str, typer.Option("--from", metavar="WHEN", help="First time, in the schedule's timezone.")],
    end: Annotated[str, typer.Option("--to", metavar="WHEN", help="Last time or day, included.")],
    overlap: Annotated[
        Literal["skip", "bufferOne", "bufferAll", "cancelOther", "terminateOther", "allowAll"],
        typer.Option("--overlap", help="bufferAll: one after the other; allowAll: all at once."),
    ] = "bufferAll",
    profile: ProfileOption = None,
) -> None:
    """Start the runs of a schedule for all times of a range. A time that has a run gets no second one."""
    from treadle.triggers.schedules.reconcile import Schedules

    env = Environment(profile)
    deployment, name = found(env, target)
    first, last = _times(deployment, name, begin)[0], _times(deployment, name, end, last=True)[-1]
    if last.timestamp() < first.timestamp():
        raise UsageError("--to is before --from", "Turn them around.")
    env.ensure_driver()

    async def work(client: Client) -> None:
        schedules = Schedules(client, env.queue, env.key)
        await schedules.reconcile(env.registry)
        await schedules.backfill(deployment.workflow, name, first, last, overlap)

    env.with_client(work)
    complain(f"asked for {target} from {first.isoformat()} to {last.isoformat()}")
    advise(f"  treadle list --trigger {target}")


@trigger.command()
def seek(
    target: TargetArgument,
    to: Annotated[
        str,
        typer.Option(
            "--to", metavar="earliest|latest|TIME|OFFSET", help="New position; a time such as 2026-01-31T02:00+01:00."
        ),
    ],
    output: TextOrJson = "text",
    profile: ProfileOption = None,
) -> None:
    """Set the read position of a Kafka trigger, in all partitions. A service that runs it releases it meanwhile. Events
    that have a run get no second one."""
    need("confluent_kafka")
    from treadle.triggers.kafka.matching import lineage
    from treadle.triggers.kafka.offsets import KafkaPositions, StoredMarks, group_of

    env = Environment(profile)
    deployment, name = found(env, target)
    at = lineage(env.registry.history(deployment.workflow), name)
    if at is None:
        raise UsageError(f"{target} reads no Kafka topic", "Of schedules: treadle trigger backfill.")
    group = group_of(env.key, deployment.workflow, name, at.born)
    marks = StoredMarks(env.store, env.key, group)
    wanted = _position(to)
    places = _handed_over(env, at, lambda: KafkaPositions(env.home, env.profile).seek(at, group, marks, wanted))
    if output == "json":
        say_json(places)
    else:
        typer.echo("\n".join(f"{one.topic}/{one.partition} at {one.offset}" for one in places))


HANDOVER = 60.0
"""Seconds that services have to leave a consumer group. A broker waits for a member that may return."""


def _handed_over(env: Environment, at: Lineage, work: Callable[[], T]) -> T:
    """Return the result of `work` once no service is in the trigger's consumer group. Raises Occupied after
    HANDOVER."""
    from treadle.triggers.kafka.confluent_cluster import Occupied

    with contextlib.suppress(Occupied):
        return work()
    complain("a service runs the trigger: waiting until it hands it over")
    with env.registry.set_aside(at.workflow, at.name):
        deadline = now() + HANDOVER
        while True:
            try:
                return work()
            except Occupied:
                if now() > deadline:
                    raise
            sleep(1.0)


def _position(text: str) -> int | datetime | Literal["earliest", "latest"]:
    if text in ("earliest", "latest"):
        return "earliest" if text == "earliest" else "latest"
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        return datetime.fromisoformat(text).astimezone()
    except (ValueError, OverflowError):
        raise UsageError(f"--to {text!r} is no position", "Write earliest, latest, an offset or a time.") from None


# -- helpers -------------------------------------------------------------------------------------------------------


def _drafted(env: Environment, file: Path, target: str) -> tuple[Deployment, str]:
    from .deploy import candidate

    name = target.rpartition(".")[2]
    return env.registry.draft(candidate(env, file)), name


def _times(deployment: Deployment, name: str, text: str, *, last: bool = False) -> list[datetime]:
    """The instants of a schedule's time, in its timezone unless the text has an offset. A date means its first second,
    or with `last` its last second.

    A local time that occurs twice gives two instants. Raises UsageError.
    """
    from zoneinfo import ZoneInfo

    from treadle.triggers.schedules.tick_runs import instants, schedule_of

    try:
        when = datetime.fromisoformat(text)
        if last and _is_day(text):
            when = when.replace(hour=23, minute=59, second=59)
        return instants(when, ZoneInfo(schedule_of(deployment, name).timezone))
    except (ValueError, OverflowError):
        raise UsageError(f"{text!r} is no time", "Write 2026-01-31T02:00, or with an offset: ...+01:00.") from None


def _is_day(text: str) -> bool:
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True


def _sample(file: Path, asked: Asked) -> SampleEvent:
    """The event of `--event`. Raises UsageError."""
    from treadle.triggers.dry_run import SampleEvent

    pairs = [pair(header, "--header") for header in asked.header or ()]
    try:
        body = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
    except OSError as error:
        raise UsageError(f"--event {file}: {error.strerror}", "Check the name.") from error
    key = None if asked.key is None else asked.key.encode()
    return SampleEvent(body, key, tuple((name, value.encode()) for name, value in pairs))
