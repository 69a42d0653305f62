"""show and list: the state and results of a run, and the list of runs."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
import typer

from treadle.primitives.errors import UsageError

from .common import formatting
from .common.completion import complete_run, complete_trigger
from .common.environment import Environment
from .common.exit_codes import advise, say, say_json
from .common.hints import advice
from .common.options import ProfileOption, RunArgument, TextOrJson, duration, pair, run_to_read, with_options
from .view.watcher import driver_command

if TYPE_CHECKING:
    from treadle.client.client import Runs
    from treadle.client.progress import StageView
    from treadle.orchestrator.run_requests.run_views import RunEnd, RunView
    from treadle.orchestrator.run_store.run_files import RunFiles

STATUSES = ("running", "succeeded", "failed", "cancelled", "terminated", "timed-out")


def show(
    run: RunArgument,
    output: Annotated[
        Literal["text", "wide", "json", "yaml"],
        typer.Option("--output", "-o", envvar="TREADLE_OUTPUT", help="Output format; wide adds reasons and places."),
    ] = "text",
    cost: Annotated[bool, typer.Option("--cost", help="Also show usage and cost by segment.")] = False,
    profile: ProfileOption = None,
) -> None:
    """Show the state of a run: its stages, its failures, and the locations of its outputs. Needs no driver."""
    env = Environment(profile)

    async def work(runs: Runs) -> dict[str, Any]:
        return await describe(env, runs, await run_to_read(runs, run), cost=cost)

    about = env.with_runs(work)
    if output == "json":
        say_json(about)
    elif output == "yaml":
        import yaml

        typer.echo(yaml.safe_dump(msgspec.to_builtins(about), sort_keys=False, allow_unicode=True), nl=False)
    else:
        _print_run(about, env, wide=output == "wide")


async def describe(env: Environment, runs: Runs, run: str, *, cost: bool = False) -> dict[str, Any]:
    """The full data of `show`. The keys are stable; `cost` is null unless requested."""
    from treadle.client.attempt_logs import LogFollower, grouped
    from treadle.client.run_status import StatusReader

    from .view.costs import spent_by
    from .view.run_inputs import inputs_of

    reader = StatusReader(env, runs, run)
    status = await reader.read()
    drivers = await env.drivers(runs, status.view.queue)
    errors = grouped(LogFollower(env.files(run)).new())
    plan = reader.painter.plan
    spent = await spent_by(env, runs, run) if cost and plan else None
    return {
        **_about(status.view, status.end),
        "inputs": await asyncio.to_thread(inputs_of, env.files(run)),
        "drivers": drivers,
        "stages": status.stages,
        "written": dict(plan.graph.outputs if plan else {}),
        "errors": errors,
        "untold": await asyncio.to_thread(_untold, env.files(run)),
        "cost": spent,
    }


def _about(view: RunView, end: RunEnd | None) -> dict[str, Any]:
    return {
        "run": view.run,
        "workflow": view.workflow,
        "labels": view.labels,
        "state": view.state,
        "resumption": view.resumption,
        "started": formatting.stamp(view.started),
        "due": formatting.stamp(view.due),
        "closed": formatting.stamp(view.closed),
        "historyEvents": view.history_events,
        "outputs": end.outputs if end else None,
        "failure": end.failure if end else None,
    }


def _untold(files: RunFiles) -> list[dict[str, Any]]:
    """Lifecycle events that were not delivered, oldest first."""
    from treadle.orchestrator.lifecycle.delivery import untold_of

    found = untold_of(files)
    return [{"id": one.event.id, "type": one.event.type, "time": one.event.time, "reason": one.reason} for one in found]


def _print_run(about: dict[str, Any], env: Environment, *, wide: bool) -> None:
    from .view.costs import spent_lines

    lines = [
        *_head(about, env),
        *_input_lines(about["inputs"]),
        *_stage_lines(about["stages"], wide),
        *_error_lines(about, wide),
    ]
    lines += _untold_lines(about["untold"], wide)
    if about["written"]:
        lines += ["", *(f"{stage} writes to {uri}" for stage, uri in about["written"].items())]
    if about["outputs"]:
        lines += ["", "outputs", json.dumps(about["outputs"], indent=2, ensure_ascii=False)]
    if about["cost"]:
        lines += spent_lines(about["cost"])
    say("\n".join(lines))


def _input_lines(inputs: dict[str, Any]) -> list[str]:
    from .view.run_inputs import brief

    shown = [f"{name} = {brief(value)}" for name, value in inputs.items() if value is not None]
    return [f"{'inputs' if index == 0 else '':8}  {line}" for index, line in enumerate(shown)]


def _stage_lines(stages: list[StageView], wide: bool) -> list[str]:
    from .view.watch_output import counts, exchange, label, troubles, volume

    if not stages:
        return []
    rows = [["stage", "state", "partitions", "data", "", *(("blocks", "node") if wide else ())]]
    for stage in stages:
        more = (exchange(stage), stage.node) if wide else ()
        rows.append([label(stage), stage.state, counts(stage), volume(stage), troubles(stage), *more])
    return ["", *formatting.columns(rows)]


def _error_lines(about: dict[str, Any], wide: bool) -> list[str]:
    from treadle.client.attempt_logs import group_lines

    if not about["errors"]:
        return []
    shown = [line for group in about["errors"] for line in list(group_lines(group))[: None if wide else 2]]
    return ["", "errors" if wide else advice(f"errors (with tracebacks: treadle logs {about['run']})"), *shown]


def _untold_lines(untold: list[dict[str, Any]], wide: bool) -> list[str]:
    """All undelivered events, or their number for each reason."""
    if not untold:
        return []
    if wide:
        return ["", "lifecycle events that nobody took", *(f"  {one['type']}  {one['reason']}" for one in untold)]
    reasons = Counter(one["reason"] for one in untold)
    return ["", *(f"{formatting.counted(n, 'lifecycle event')} untold: {reason}" for reason, n in reasons.items())]


def _head(about: dict[str, Any], env: Environment) -> list[str]:
    started = datetime.fromisoformat(about["started"])
    closed = datetime.fromisoformat(about["closed"]) if about["closed"] else None
    took = (closed or datetime.now(UTC)) - started
    again = f", resumption {about['resumption']}" if about["resumption"] > 1 else ""
    failure = about["failure"]
    why = f": {failure.failure}: {failure.message}" if failure else ""
    lines = [f"run       {about['run']}", f"workflow  {about['workflow']}", f"state     {about['state']}{why}"]
    lines.append(f"started   {formatting.moment(started)} ({formatting.span(took.total_seconds())}{again})")
    if about["labels"]:
        lines.insert(2, f"labels    {', '.join(f'{key}={value}' for key, value in about['labels'].items())}")
    if about["due"]:
        lines[-1] = f"starts    {formatting.moment(datetime.fromisoformat(about['due']))}"
    if about["state"] in ("running", "paused") and not about["drivers"]:
        lines.append(advice(f"driver    none is alive; start one: {driver_command(env, about['run'])}"))
    return lines


@dataclass(frozen=True)
class RunFilter:
    """The options that choose runs."""

    status: Annotated[
        list[str] | None,
        typer.Option("--status", metavar="|".join(STATUSES), help="Only runs with this status; repeatable."),
    ] = None
    since: Annotated[
        str | None,
        typer.Option(
            "--since", metavar="WHEN", help="Only runs started since then: an age (2h) or a date (2026-01-31)."
        ),
    ] = None
    trigger: Annotated[
        str | None,
        typer.Option(
            "--trigger",
            metavar="WORKFLOW.TRIGGER",
            help="Only runs that this trigger started.",
            autocompletion=complete_trigger,
        ),
    ] = None
    children: Annotated[
        str | None,
        typer.Option(
            "--children",
            metavar="RUN",
            help="Only the direct and indirect child runs of this run.",
            autocompletion=complete_run,
        ),
    ] = None
    label: Annotated[
        list[str] | None, typer.Option("--label", metavar="KEY=VALUE", help="Only runs with this label; repeatable.")
    ] = None

    def query(self) -> dict[str, Any]:
        """The arguments of `Runs.list_runs`. Raises UsageError."""
        if self.children and self.trigger:
            raise UsageError("--children and --trigger look for different runs", "Leave one of them away.")
        return {
            "states": tuple(map(_status, self.status or ())),
            "since": _moment(self.since) if self.since else None,
            "labels": dict(pair(each, "--label") for each in self.label or ()),
            "prefix": _prefix(self.trigger) if self.trigger else "",
        }


@with_options
def list_(
    wanted: RunFilter,
    limit: Annotated[int, typer.Option("--limit", min=1, metavar="N", help="Maximum runs to show.")] = 50,
    output: TextOrJson = "text",
    profile: ProfileOption = None,
) -> None:
    """List runs, newest first."""
    env, query = Environment(profile), wanted.query()

    async def work(runs: Runs) -> list[RunView]:
        if wanted.children:
            query["prefix"] = f"{await run_to_read(runs, wanted.children)}/"
        return [view async for view in runs.list_runs(limit + 1, **query)]

    found = env.with_runs(work)
    if len(found) > limit:
        found.pop()
        advise(f"there are more runs than these {limit:,}: --limit N")
    if output == "json":
        say_json([_listed(view) for view in found])
    elif found:
        _print_list(found)
    else:
        advise("no such run" if any(vars(wanted).values()) else "there is no run yet. Start one: treadle run FILE")


def _listed(view: RunView) -> dict[str, Any]:
    return {key: value for key, value in _about(view, None).items() if key not in ("outputs", "failure")}


def _print_list(found: list[RunView]) -> None:
    rows = [["run", "workflow", "state", "started", "took"]]
    now = datetime.now(UTC)
    for view in found:
        state = "delayed" if view.due else view.state
        took = "" if view.due else formatting.span(((view.closed or now) - view.started).total_seconds())
        rows.append([view.run, view.workflow, state, formatting.moment(view.due or view.started), took])
    typer.echo("\n".join(formatting.columns(rows)))


def _prefix(trigger: str) -> str:
    """The prefix of the ids of the trigger's runs. Raises UsageError."""
    import re

    from treadle.triggers.run_ids import run_prefix

    workflow, _, name = trigger.partition(".")
    if not re.fullmatch(r"[a-z]\w*", workflow, re.ASCII) or not re.fullmatch(r"[a-z]\w*", name, re.ASCII):
        raise UsageError(f"--trigger {trigger}: that names no trigger", "Write WORKFLOW.TRIGGER, such as orders.live.")
    return run_prefix(workflow, name)


def _status(name: str) -> str:
    if name not in STATUSES:
        raise UsageError(f"--status {name}: there is no such status", f"There are: {', '.join(STATUSES)}.")
    return name.replace("-", " ")


def _moment(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text).astimezone()
    except ValueError:
        pass
    try:
        return datetime.now(UTC) - timedelta(seconds=duration(text, "--since"))
    except UsageError:
        raise UsageError(f"--since {text}: neither a duration nor a date", "Write 2h, 7d, or 2026-01-31.") from None
