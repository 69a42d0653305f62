"""deploy and undeploy: from files to workflows that events can start."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec import Struct

from treadle.primitives.errors import TreadleError, UsageError

from .common import formatting
from .common.completion import complete_deploy, complete_undeploy
from .common.environment import Environment, need
from .common.exit_codes import advise, complain, say_json
from .common.hints import advice
from .common.options import ProfileOption, TextOrJson

if TYPE_CHECKING:
    from temporalio.client import Client

    from treadle.client.documents import StartableDocument
    from treadle.triggers.registry.changes import TriggerChange
    from treadle.triggers.registry.deployment import Deployment, Position
    from treadle.triggers.registry.registry import DeploymentCandidate
    from treadle.triggers.schedules.desired_schedules import ScheduleChange


class DeployOutcome(Struct):
    """The changes that a deploy made, or would make, to one workflow."""

    workflow: str
    version: int
    did: str
    """`new`, `changed`, `unchanged` or `undeployed`."""
    triggers: list[TriggerChange]
    paused: list[str]
    """Paused triggers."""
    groups: list[str] = []
    """Kafka consumer groups of removed triggers, which no reader uses any more."""


def deploy(
    files: Annotated[
        list[Path],
        typer.Argument(help="Workflows: YAML files, or Python files.", metavar="FILE", autocompletion=complete_deploy),
    ],
    diff: Annotated[
        bool, typer.Option("--diff", help="Show the differences from the current version; change nothing.")
    ] = False,
    prune: Annotated[
        bool, typer.Option("--prune", help="Undeploy workflows from the same folders that no FILE contains.")
    ] = False,
    paused: Annotated[bool, typer.Option("--paused", help="Deploy new triggers as paused.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the changes; make none.")] = False,
    output: TextOrJson = "text",
    profile: ProfileOption = None,
) -> None:
    """Deploy workflows, so that events can start them. Stores code and triggers as a new version if anything
    changed."""
    env = Environment(profile)
    candidates = [candidate(env, file) for file in files]
    _check_names(candidates, files)
    for one in candidates:
        _check_reachable(env, env.registry.draft(one))
    if diff:
        _show_differences(env, candidates)
        dry_run = True
    known = {one.workflow: one for one in env.registry.deployments()}
    done = [_deploy(env, one, known, paused=paused, dry_run=dry_run) for one in candidates]
    if prune:
        done += [_undeploy(env, one, dry_run) for one in _orphans(known, candidates)]
    schedules = [] if dry_run or not _has_schedules(done) else reconcile(env)
    _print(done, schedules, output, dry_run=dry_run)
    advise_restart(env)


def undeploy(
    workflow: Annotated[
        str, typer.Argument(help="Name of a deployed workflow.", metavar="NAME", autocompletion=complete_undeploy)
    ],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the changes; make none.")] = False,
    output: TextOrJson = "text",
    profile: ProfileOption = None,
) -> None:
    """Undeploy a workflow, so that no event starts it. Its runs continue; its versions stay, for runs of them."""
    env = Environment(profile)
    done = [_undeploy(env, env.registry.deployment(workflow), dry_run)]
    schedules = [] if dry_run or not _has_schedules(done) else reconcile(env)
    _print(done, schedules, output, dry_run=dry_run)


# -- candidates for deployment --------------------------------------------------------------------------------------


def candidate(env: Environment, file: Path) -> DeploymentCandidate:
    from treadle.client.documents import load_checked
    from treadle.client.submission import package
    from treadle.dsl.diagnostics.formats import render
    from treadle.dsl.normalise import normalise
    from treadle.triggers.registry.registry import DeploymentCandidate

    loaded = load_checked(file)
    if loaded.warnings:
        complain(render(loaded.warnings, loaded.document.sources).rstrip("\n"))
    _check_executors(env, loaded)
    code = package(loaded.spec, [loaded.base], loaded.captured)
    base = str(loaded.base.absolute())
    return DeploymentCandidate(
        normalise(loaded.spec), code.functions, code.digest, code.bundle, base, env.profile.executor
    )


def _check_executors(env: Environment, loaded: StartableDocument) -> None:
    """Check that the named executors exist. Other checks depend on the inputs and happen when a run starts."""
    from treadle.client.preparation import positioned
    from treadle.orchestrator.executor_registry.registry import open_places
    from treadle.orchestrator.planner.placement import PlacementRefused
    from treadle.orchestrator.planner.subworkflows import check_named

    try:
        check_named(loaded.spec, open_places(env.home, env.profile))
    except PlacementRefused as error:
        raise positioned(error, loaded.document) from error


def _check_reachable(env: Environment, draft: Deployment) -> None:
    from datetime import UTC, datetime

    from treadle.triggers.address_check import check_reachable

    check_reachable(draft, env.profile.allow, env.profile.name or "PROFILE", datetime.now(UTC))


def _check_names(candidates: Sequence[DeploymentCandidate], files: Sequence[Path]) -> None:
    seen: dict[str, Path] = {}
    for one, file in zip(candidates, files, strict=True):
        name = one.document["name"]
        if name in seen:
            raise UsageError(f"{file} and {seen[name]} both hold the workflow {name!r}", "Give one another `name`.")
        seen[name] = file


def _show_differences(env: Environment, candidates: Sequence[DeploymentCandidate]) -> None:
    from treadle.triggers.registry.changes import differences

    for one in candidates:
        before = env.registry.find(str(one.document["name"]))
        for line in differences(before, env.registry.draft(one)):
            complain(line)


def _orphans(known: dict[str, Deployment], candidates: Sequence[DeploymentCandidate]) -> list[Deployment]:
    folders = {one.base for one in candidates}
    names = {one.document["name"] for one in candidates}
    return [one for one in known.values() if one.base in folders and one.workflow not in names]


# -- doing it ------------------------------------------------------------------------------------------------------


def _deploy(
    env: Environment, candidate: DeploymentCandidate, known: dict[str, Deployment], *, paused: bool, dry_run: bool
) -> DeployOutcome:
    from treadle.triggers.registry.changes import trigger_changes
    from treadle.triggers.registry.registry import alike

    before = known.get(str(candidate.document["name"]))
    draft = env.registry.draft(candidate)
    changes = trigger_changes(draft.workflow, before.spec.triggers if before else {}, draft.spec.triggers)
    resting = set(env.registry.paused(draft.workflow)) & draft.spec.triggers.keys()
    if paused:
        resting |= {one.trigger for one in changes if one.did == "new"}
    same = before is not None and alike(before, draft)
    did = "unchanged" if same else "changed" if before else "new"
    if dry_run:
        version = before.version if before and same else draft.version
        return DeployOutcome(draft.workflow, version, did, changes, sorted(resting))
    for trigger in resting:  # before the version exists, so that no event starts a run in between
        env.registry.pause(draft.workflow, trigger, "deployed with --paused")
    deployed = env.registry.deploy(candidate, lambda older: _begins(env, draft, older))
    for one in changes:  # after the version exists: until then the trigger is served
        if one.did == "removed":
            env.registry.unpause(draft.workflow, one.trigger)
    return DeployOutcome(draft.workflow, deployed.version, did, changes, sorted(resting), _groups(env, before, changes))


def _begins(env: Environment, draft: Deployment, before: Deployment | None) -> dict[str, tuple[Position, ...]]:
    """The start position of each trigger of a new version in its topics. Raises Unreachable, UsageError."""
    from treadle.triggers.kafka.offsets import KafkaPositions
    from treadle.triggers.kafka.reader_settings import reading_of

    if any(reading_of(one) for one in draft.spec.triggers.values()):
        need("confluent_kafka")
    positions = KafkaPositions(env.home, env.profile)
    for name in sorted(draft.spec.triggers):
        positions.check_rights(draft, name, env.key)
    return positions.begins(draft, before)


def _undeploy(env: Environment, deployment: Deployment, dry_run: bool) -> DeployOutcome:
    from treadle.triggers.registry.changes import trigger_changes

    changes = trigger_changes(deployment.workflow, deployment.spec.triggers, {})
    groups = _groups(env, deployment, changes)
    if not dry_run:
        env.registry.undeploy(deployment.workflow)
    return DeployOutcome(deployment.workflow, deployment.version, "undeployed", changes, [], groups)


def _groups(env: Environment, before: Deployment | None, changes: Sequence[TriggerChange]) -> list[str]:
    """The consumer groups of removed triggers of `before`."""
    from treadle.triggers.kafka.matching import lineage
    from treadle.triggers.kafka.offsets import group_of
    from treadle.triggers.kafka.reader_settings import reading_of

    removed = [one.trigger for one in changes if one.did == "removed"]
    if before is None or not any(reading_of(before.spec.triggers[name]) for name in removed):
        return []
    history = [one for one in env.registry.history(before.workflow) if one.version <= before.version]
    settled = [one for one in history if one.begins is not None]
    found = [at for name in removed if (at := lineage(settled, name)) is not None]
    return [group_of(env.key, at.workflow, at.name, at.born) for at in found]


def _has_schedules(done: Sequence[DeployOutcome]) -> bool:
    return any(trigger.type == "schedule" for one in done for trigger in one.triggers)


def reconcile(env: Environment) -> list[ScheduleChange]:
    """Make Temporal's Schedules match the deployed triggers. If Temporal is unreachable, the deployment remains in
    effect."""
    from treadle.triggers.schedules.reconcile import Schedules

    async def work(client: Client) -> list[ScheduleChange]:
        return await Schedules(client, env.queue, env.key).reconcile(env.registry)

    try:
        return env.with_client(work)
    except TreadleError as error:
        advise("The registry is changed. Schedules follow with the next deploy, or with treadle triggers:")
        raise error


def advise_restart(env: Environment) -> None:
    """Name the services that read the profile before it was changed."""
    import time

    from treadle.triggers.profile_reload import ServiceProfiles

    for name in ServiceProfiles(env.store, env.key).outdated(env.profile, time.time()):
        advise(f"the service {name} works with the profile as it was when it started. Restart it: treadle triggers")


# -- output ---------------------------------------------------------------------------------------------------------


def _print(done: Sequence[DeployOutcome], schedules: Sequence[ScheduleChange], output: str, *, dry_run: bool) -> None:
    if output == "json":
        say_json({"dryRun": dry_run, "workflows": done, "schedules": schedules})
        return
    for one in done:
        typer.echo("\n".join(_lines(one, dry_run=dry_run)))
    for change in schedules:
        typer.echo(f"Schedule {change.schedule} {change.did}")
    if dry_run:
        complain("nothing was changed")
        return
    if groups := [group for one in done for group in one.groups]:
        advise(
            "Kafka keeps the consumer groups of removed triggers until their offsets expire. To remove them once the "
            "services have left them:"
        )
        advise("\n".join(f"  kafka-consumer-groups.sh --bootstrap-server ... --delete --group {one}" for one in groups))
    if any(one.triggers and one.did in ("new", "changed") for one in done):
        advise("Events are served while this runs: treadle triggers")


def _lines(one: DeployOutcome, *, dry_run: bool) -> list[str]:
    said = {"new": "deployed", "changed": "deployed, changed", "unchanged": "unchanged", "undeployed": "undeployed"}
    head = f"{one.workflow}@{one.version} {'would be ' if dry_run and one.did != 'unchanged' else ''}{said[one.did]}"
    if not one.triggers:
        return [advice(f"{head}, without triggers: start it with treadle submit {one.workflow}")]
    rows = [
        [f"  {each.trigger}", each.type, each.about, ", ".join([each.did, *_resting(one, each)])]
        for each in one.triggers
    ]
    return [head, *formatting.columns([[""] * 4, *rows])[1:]]


def _resting(one: DeployOutcome, change: TriggerChange) -> list[str]:
    return ["paused"] if change.trigger in one.paused and change.did != "removed" else []
