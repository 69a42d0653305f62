"""trigger list, show, pause, unpause: deployed triggers and their state."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from treadle.primitives.errors import TreadleError, UsageError

from .common import formatting
from .common.completion import complete_deployed, complete_trigger
from .common.environment import Environment
from .common.exit_codes import advise, complain, say, say_json
from .common.options import ProfileOption, ReasonOption, TextOrJson, Verbs
from .trigger_output import HEAD, TriggerLine, count, counted, line, row, state

if TYPE_CHECKING:
    from temporalio.client import Client

    from treadle.triggers.registry.deployment import Deployment
    from treadle.triggers.schedules.reconcile import ScheduleView
    from treadle.triggers.trigger_runner import TriggerStatus

trigger = typer.Typer(
    cls=Verbs,
    help="Deployed triggers: view, pause, test, and backfill missed times.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
TargetArgument = Annotated[
    str, typer.Argument(help="For example orders.live.", metavar="WORKFLOW.TRIGGER", autocompletion=complete_trigger)
]
TriggersArgument = Annotated[
    str,
    typer.Argument(
        help="A trigger; a workflow alone selects all its triggers.",
        metavar="WORKFLOW[.TRIGGER]",
        autocompletion=complete_trigger,
    ),
]


# -- list and show --------------------------------------------------------------------------------------------------


@trigger.command("list")
def list_(
    workflow: Annotated[
        str | None,
        typer.Argument(help="Only triggers of this workflow.", metavar="WORKFLOW", autocompletion=complete_deployed),
    ] = None,
    output: TextOrJson = "text",
    profile: ProfileOption = None,
) -> None:
    """List the triggers of deployed workflows and their state. Needs neither Temporal nor a broker."""
    env = Environment(profile)
    from .deploy import advise_restart

    deployments = [env.registry.deployment(workflow)] if workflow else env.registry.deployments()
    statuses = _statuses(env)
    lines = [_line(env, one, name, statuses) for one in deployments for name in sorted(one.spec.triggers)]
    if output == "json":
        say_json(lines)
    elif lines:
        typer.echo("\n".join(formatting.columns([HEAD, *map(row, lines)])))
        if any(one.state == "unserved" for one in lines):
            advise("unserved: no process looks for its events. Start one: treadle triggers")
    else:
        advise("no trigger is deployed. Deploy a workflow that has some: treadle deploy FILE")
    advise_restart(env)


def _statuses(env: Environment) -> dict[str, list[TriggerStatus]]:
    """The current and past reports of services, by `workflow.trigger`."""
    from treadle.triggers.status_store import every_status

    found: dict[str, list[TriggerStatus]] = {}
    for statuses in every_status(env.store, env.key).values():
        for one in statuses:
            found.setdefault(f"{one.workflow}.{one.trigger}", []).append(one)
    return found


def _line(env: Environment, deployment: Deployment, name: str, statuses: dict[str, list[TriggerStatus]]) -> TriggerLine:
    return line(env, deployment, name, statuses.get(f"{deployment.workflow}.{name}", []))


@trigger.command()
def show(
    target: Annotated[
        str,
        typer.Argument(
            help="A trigger; a workflow alone shows its versions.",
            metavar="WORKFLOW[.TRIGGER]",
            autocompletion=complete_trigger,
        ),
    ],
    output: TextOrJson = "text",
    profile: ProfileOption = None,
) -> None:
    """Show one trigger: its settings, its state, its start offsets; for a schedule its next times."""
    env = Environment(profile)
    if "." not in target:
        _show_versions(env, target, output)
        return
    deployment, name = found(env, target)
    found_line = _line(env, deployment, name, _statuses(env))
    schedule = _schedule(env, deployment.workflow, name) if found_line.type == "schedule" else None
    about = _about(env, deployment, name, found_line, schedule)
    if output == "json":
        say_json(about)
    else:
        _print_trigger(about, found_line)


def _show_versions(env: Environment, workflow: str, output: str) -> None:
    history = env.registry.history(workflow)
    if not history:
        env.registry.deployment(workflow)  # raises that there is none
    if output == "json":
        say_json([_version(one) for one in history])
        return
    rows = [["version", "deployed", "triggers", "from"]]
    for one in history:
        triggers = "undeployed" if one.removed else ", ".join(sorted(one.spec.triggers)) or "none"
        rows.append([one.name, formatting.moment(one.time), triggers, one.base])
    typer.echo("\n".join(formatting.columns(rows)))


def _version(one: Deployment) -> dict[str, Any]:
    triggers = [] if one.removed else sorted(one.spec.triggers)
    about = {"version": one.version, "deployed": formatting.stamp(one.time), "removed": one.removed}
    return {**about, "triggers": triggers, "base": one.base}


def _about(
    env: Environment, deployment: Deployment, name: str, found_line: TriggerLine, schedule: ScheduleView | None
) -> dict[str, Any]:
    pause = env.registry.paused(deployment.workflow).get(name)
    return {
        **msgspec.to_builtins(found_line),
        "deployed": formatting.stamp(deployment.time),
        "paused": {"since": formatting.stamp(pause.since), "reason": pause.reason} if pause else None,
        "begins": (deployment.begins or {}).get(name, ()),
        "schedule": schedule,
        "settings": deployment.document["triggers"][name],
    }


def _schedule(env: Environment, workflow: str, name: str) -> ScheduleView | None:
    """Temporal's view of a schedule. If Temporal is unreachable, it prints the error and returns None, so that the rest
    is shown."""
    from treadle.triggers.schedules.reconcile import Schedules

    async def work(client: Client) -> ScheduleView:
        return await Schedules(client, env.queue, env.key).view(workflow, name)

    try:
        return env.with_client(work)
    except TreadleError as error:
        advise(f"treadle: {error}")
        return None


def _print_trigger(about: dict[str, Any], found_line: TriggerLine) -> None:
    import yaml

    rows = [
        ["trigger", f"{about['trigger']}, version {about['version']}, deployed {_local(about['deployed'])}"],
        ["listens to", about["about"]],
        ["state", state(found_line)],
    ]
    if about["paused"]:
        reason = f": {about['paused']['reason']}" if about["paused"]["reason"] else ""
        rows.append(["paused", f"since {_local(about['paused']['since'])}{reason}"])
    rows += [["error", about["error"]]] if about["error"] else []
    for title, counts in _COUNTS.items():
        known = [f"{count(found_line, key)} {said}" for key, said in counts.items() if key in counted(found_line.type)]
        rows += [[title, ", ".join(known)]] if known else []
    rows += [["begins", f"{one.topic}/{one.partition} at {one.offset}"] for one in about["begins"]]
    if schedule := about["schedule"]:
        rows += [["next", formatting.moment(one)] for one in schedule.next[:3]]
        rows += [["last", f"{formatting.moment(when)} {what}"] for when, what in schedule.recent[-3:]]
        counts = {"skipped": schedule.skipped, "missed": schedule.missed}
        missed = [f"{count} {said}" for said, count in counts.items() if count]
        rows += [["ticks", ", ".join(missed)]] if missed else []
    settings = yaml.safe_dump(about["settings"], sort_keys=False, allow_unicode=True).splitlines()
    lines = [f"{name:11} {text}" for name, text in rows]
    say("\n".join([*lines, "settings", *(f"  {line}" for line in settings)]))


_COUNTS = {
    "now": {"active": "open", "lag": "waiting"},
    "so far": {
        "received": "received",
        "started": "started",
        "repeated": "delivered again",
        "filtered": "passed over",
        "dead": "dead letters",
    },
}


# -- pause and unpause ----------------------------------------------------------------------------------------------


@trigger.command()
def pause(target: TriggersArgument, reason: ReasonOption = "", profile: ProfileOption = None) -> None:
    """Pause triggers until `unpause`: events wait in their topic, ticks of schedules are skipped."""
    _rest(Environment(profile), target, reason, paused=True)


@trigger.command()
def unpause(target: TriggersArgument, profile: ProfileOption = None) -> None:
    """Continue paused triggers."""
    _rest(Environment(profile), target, "", paused=False)


_SAID = {
    (True, True): "paused",
    (True, False): "was paused already",
    (False, True): "goes on",
    (False, False): "was not paused",
}


def _rest(env: Environment, target: str, reason: str, *, paused: bool) -> None:
    from .deploy import reconcile

    workflow, _, name = target.partition(".")
    deployment = found(env, target)[0] if name else env.registry.deployment(workflow)
    names = [name] if name else sorted(deployment.spec.triggers)
    for each in names:
        done = env.registry.pause(workflow, each, reason) if paused else env.registry.unpause(workflow, each)
        complain(f"{workflow}.{each} {_SAID[paused, done]}")
    if any(deployment.spec.triggers[each].type == "schedule" for each in names):
        reconcile(env)


# -- helpers -------------------------------------------------------------------------------------------------------


def found(env: Environment, target: str) -> tuple[Deployment, str]:
    """The current version, and the trigger's name. Raises UsageError, NoSuchDeployment."""
    from treadle.triggers.registry.registry import NoSuchDeployment

    workflow, dot, name = target.partition(".")
    if not dot or not name:
        raise UsageError(f"{target!r} names no trigger", "Write WORKFLOW.TRIGGER, such as orders.live.")
    deployment = env.registry.deployment(workflow)
    if name not in deployment.spec.triggers:
        known = ", ".join(f"{workflow}.{each}" for each in sorted(deployment.spec.triggers))
        raise NoSuchDeployment(f"{deployment.name} has no trigger {name!r}", f"It has: {known or 'none'}.")
    return deployment, name


def _local(text: str) -> str:
    return formatting.moment(datetime.fromisoformat(text))
