"""trigger list, show, pause, unpause: what is deployed, how it does, and whether it rests."""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer
from msgspec import Struct

from treadle.primitives.errors import TreadleError, UsageError

from .common import words
from .common.environment import Environment
from .common.exits import complain, reported, say
from .common.options import ProfileOption, ReasonOption, TextOrJson, Verbs

if TYPE_CHECKING:
    from temporalio.client import Client

    from ..triggers.registry.deployment import Deployment
    from ..triggers.running import TriggerStatus
    from ..triggers.schedules.reconcile import ScheduleView

trigger = typer.Typer(
    cls=Verbs,
    help="Deployed triggers: look, rest, try, and fill what was missed.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
TargetArgument = Annotated[str, typer.Argument(help="Such as orders.live.", metavar="WORKFLOW.TRIGGER")]


class Line(Struct, frozen=True):
    """A trigger in a listing. The keys are stable."""

    trigger: str
    """`orders.live`"""
    type: str
    version: int
    about: str
    """What it listens to."""
    state: str
    """`paused`; as the service says (`running`, `waiting`, `failed`, ...); `unserved`: no service says anything."""
    started: int | None = None
    dead: int | None = None
    active: int | None = None
    lag: int | None = None
    error: str = ""


# -- look ----------------------------------------------------------------------------------------------------------


@trigger.command("list")
def list_(
    workflow: Annotated[str | None, typer.Argument(help="Only of this workflow.", metavar="WORKFLOW")] = None,
    output: TextOrJson = "text",
    profile: ProfileOption = None,
) -> None:
    """Triggers of deployed workflows, and how they do. Needs neither Temporal nor a broker."""
    with reported():
        env = Environment(profile)
        deployments = [env.registry.deployment(workflow)] if workflow else env.registry.deployments()
        lines = [line for one in deployments for line in _listed(env, one)]
        if output == "json":
            typer.echo(json.dumps(msgspec.to_builtins(lines), indent=2, ensure_ascii=False))
        elif lines:
            typer.echo("\n".join(words.columns([_HEAD, *map(_row, lines)])))
            if any(line.state == "unserved" for line in lines):
                complain("unserved: no process looks for its events. Start one: treadle triggers")
        else:
            complain("no trigger is deployed. Deploy a workflow that has some: treadle deploy FILE")


_HEAD = ["trigger", "type", "version", "state", "started", "active", "waiting", "dead", "listens to", "last error"]


def _row(line: Line) -> list[str]:
    counts = ["" if one is None else f"{one:,}" for one in (line.started, line.active, line.lag, line.dead)]
    error = line.error.partition("\n")[0]
    return [line.trigger, line.type, str(line.version), line.state, *counts, line.about, error]


def _listed(env: Environment, deployment: Deployment) -> list[Line]:
    from ..triggers.registry.changes import listens_to

    paused = env.registry.paused(deployment.workflow)
    statuses = _statuses(env)
    return [
        _line(deployment, name, listens_to(deployment.workflow, name, one), one.type, name in paused, statuses)
        for name, one in sorted(deployment.spec.triggers.items())
    ]


def _statuses(env: Environment) -> dict[str, TriggerStatus]:
    """What services say now, by `workflow.trigger`."""
    from ..triggers.service import read_statuses

    merged: dict[str, TriggerStatus] = {}
    said = [one for statuses in read_statuses(env.store, env.key).values() for one in statuses]
    for one in sorted(said, key=lambda status: status.time):
        target = f"{one.workflow}.{one.trigger}"
        merged[target] = _together(merged[target], one) if target in merged else one
    return merged


def _together(one: TriggerStatus, other: TriggerStatus) -> TriggerStatus:
    """Two services share the trigger: each reads partitions of its own; both count all open runs."""
    from msgspec.structs import replace

    return replace(
        other,
        started=one.started + other.started,
        dead=one.dead + other.dead,
        lag=None if one.lag is None or other.lag is None else one.lag + other.lag,
        active=max((count for count in (one.active, other.active) if count is not None), default=None),
        error=other.error or one.error,
    )


def _line(
    deployment: Deployment, name: str, about: str, type: str, paused: bool, statuses: dict[str, TriggerStatus]
) -> Line:
    target = f"{deployment.workflow}.{name}"
    status = statuses.get(target)
    unserved = "scheduled" if type == "schedule" else "unserved"
    state = "paused" if paused else status.state if status else unserved
    if status is None:
        return Line(target, type, deployment.version, about, state)
    counts = (status.started, status.dead, status.active, status.lag, status.error)
    return Line(target, type, deployment.version, about, state, *counts)


@trigger.command()
def show(
    target: Annotated[str, typer.Argument(help="A workflow means its versions.", metavar="WORKFLOW[.TRIGGER]")],
    output: TextOrJson = "text",
    profile: ProfileOption = None,
) -> None:
    """One trigger: its settings, how it does, where it begins; of a schedule its next times."""
    with reported():
        env = Environment(profile)
        if "." not in target:
            _show_versions(env, target, output)
            return
        deployment, name = found(env, target)
        (line,) = [one for one in _listed(env, deployment) if one.trigger == f"{deployment.workflow}.{name}"]
        schedule = _schedule(env, deployment.workflow, name) if line.type == "schedule" else None
        about = _about(env, deployment, name, line, schedule)
        if output == "json":
            typer.echo(json.dumps(about, indent=2, ensure_ascii=False))
        else:
            _print_trigger(about)


def _show_versions(env: Environment, workflow: str, output: str) -> None:
    history = env.registry.history(workflow)
    if not history:
        env.registry.deployment(workflow)  # says that there is none
    about = [
        {
            "version": one.version,
            "deployed": _stamp(one.time),
            "removed": one.removed,
            "triggers": [] if one.removed else sorted(one.spec.triggers),
            "base": one.base,
        }
        for one in history
    ]
    if output == "json":
        typer.echo(json.dumps(about, indent=2, ensure_ascii=False))
        return
    rows = [["version", "deployed", "triggers", "from"]]
    for each, one in zip(about, history, strict=True):
        triggers = "undeployed" if one.removed else ", ".join(sorted(one.spec.triggers)) or "none"
        rows.append([one.name, _local(str(each["deployed"])), triggers, one.base])
    typer.echo("\n".join(words.columns(rows)))


def _about(
    env: Environment, deployment: Deployment, name: str, line: Line, schedule: ScheduleView | None
) -> dict[str, Any]:
    pause = env.registry.paused(deployment.workflow).get(name)
    begins = (deployment.begins or {}).get(name, ())
    return {
        **msgspec.to_builtins(line),
        "deployed": _stamp(deployment.time),
        "paused": {"since": _stamp(pause.since), "reason": pause.reason} if pause else None,
        "begins": msgspec.to_builtins(begins),
        "schedule": msgspec.to_builtins(schedule) if schedule else None,
        "settings": deployment.document["triggers"][name],
    }


def _schedule(env: Environment, workflow: str, name: str) -> ScheduleView | None:
    """Temporal's view; None, with a word why, when it cannot be asked: the rest is worth showing."""
    from ..triggers.schedules.reconcile import Schedules

    async def work(client: Client) -> ScheduleView:
        return await Schedules(client, env.profile.queue, env.key).view(workflow, name)

    try:
        return env.with_client(work)
    except TreadleError as error:
        complain(f"treadle: {error}")
        return None


def _print_trigger(about: dict[str, Any]) -> None:
    import yaml

    rows = [
        ["trigger", f"{about['trigger']}, version {about['version']}, deployed {_local(about['deployed'])}"],
        ["listens to", about["about"]],
        ["state", about["state"]],
    ]
    if about["paused"]:
        reason = f": {about['paused']['reason']}" if about["paused"]["reason"] else ""
        rows.append(["paused", f"since {_local(about['paused']['since'])}{reason}"])
    counted = [f"{about[key]:,} {said}" for key, said in _COUNTS.items() if about[key] is not None]
    rows += [["so far", ", ".join(counted)]] if counted else []
    rows += [["last error", about["error"]]] if about["error"] else []
    rows += [["begins", f"{one['topic']}/{one['partition']} at {one['offset']}"] for one in about["begins"]]
    if about["schedule"]:
        rows += [["next", _local(one)] for one in about["schedule"]["next"][:3]]
        rows += [["last", f"{_local(when)} {what}"] for when, what in about["schedule"]["recent"][-3:]]
        missed = [f"{about['schedule'][key]} {key}" for key in ("skipped", "missed") if about["schedule"][key]]
        rows += [["ticks", ", ".join(missed)]] if missed else []
    settings = yaml.safe_dump(about["settings"], sort_keys=False, allow_unicode=True).splitlines()
    lines = [f"{name:11} {text}" for name, text in rows]
    say("\n".join([*lines, "settings", *(f"  {line}" for line in settings)]))


_COUNTS = {"started": "started", "active": "open", "lag": "waiting", "dead": "dead letters"}


# -- rest ----------------------------------------------------------------------------------------------------------


@trigger.command()
def pause(
    target: Annotated[str, typer.Argument(help="A workflow means all of its triggers.", metavar="WORKFLOW[.TRIGGER]")],
    reason: ReasonOption = "",
    profile: ProfileOption = None,
) -> None:
    """Start nothing until `unpause`: events wait in their topic, ticks of schedules are left out."""
    with reported():
        _rest(Environment(profile), target, reason, paused=True)


@trigger.command()
def unpause(
    target: Annotated[str, typer.Argument(help="A workflow means all of its triggers.", metavar="WORKFLOW[.TRIGGER]")],
    profile: ProfileOption = None,
) -> None:
    """Go on where `pause` stopped."""
    with reported():
        _rest(Environment(profile), target, "", paused=False)


_SAID = {
    (True, True): "paused",
    (True, False): "was paused already",
    (False, True): "goes on",
    (False, False): "was not paused",
}


def _rest(env: Environment, target: str, reason: str, *, paused: bool) -> None:
    from .deploying import reconcile

    workflow, _, name = target.partition(".")
    deployment = found(env, target)[0] if name else env.registry.deployment(workflow)
    names = [name] if name else sorted(deployment.spec.triggers)
    for each in names:
        done = env.registry.pause(workflow, each, reason) if paused else env.registry.unpause(workflow, each)
        said = _SAID[paused, done]
        complain(f"{workflow}.{each} {said}")
    if any(deployment.spec.triggers[each].type == "schedule" for each in names):
        reconcile(env)


# -- parts ---------------------------------------------------------------------------------------------------------


def found(env: Environment, target: str) -> tuple[Deployment, str]:
    """The version that counts, and the trigger's name. Raises UsageError, NoSuchDeployment."""
    from ..triggers.registry.registry import NoSuchDeployment

    workflow, dot, name = target.partition(".")
    if not dot or not name:
        raise UsageError(f"{target!r} names no trigger", "Write WORKFLOW.TRIGGER, such as orders.live.")
    deployment = env.registry.deployment(workflow)
    if name not in deployment.spec.triggers:
        known = ", ".join(f"{workflow}.{each}" for each in sorted(deployment.spec.triggers))
        raise NoSuchDeployment(f"{deployment.name} has no trigger {name!r}", f"It has: {known or 'none'}.")
    return deployment, name


def _stamp(seconds: float) -> str | None:
    from datetime import UTC

    return words.stamp(datetime.fromtimestamp(seconds, UTC))


def _local(text: str) -> str:
    return words.moment(datetime.fromisoformat(text))
