"""Checks at deployment whether the runs of a trigger may access the addresses that are known by then."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any

from treadle.dsl.triggers import ObjectTrigger, ScheduleTrigger
from treadle.orchestrator.run_store.run_files import Submission
from treadle.orchestrator.run_store.uri_policy import Forbidden, check_fixed
from treadle.primitives.errors import UsageError
from treadle.primitives.events.decode import event_time
from treadle.primitives.stores.store import ObjectInfo

from .event_mapping import Rules, accepted
from .objects.listing_diff import event_of
from .registry.deployment import Deployment
from .run_ids import label

SAMPLE = "sample"
"""Last part of the ids of sample runs, which never start; also the name of an object that does not exist."""


def check_reachable(deployment: Deployment, allow: Sequence[str] | None, profile: str, now: datetime) -> None:
    """Raises UsageError for a trigger all of whose runs would be refused. The hint shows the missing line of the
    profile.

    Checked are an object below the prefix of a trigger with `poll`, a time of a schedule, and for all triggers the
    addresses written in the stages.
    """
    for name in sorted(deployment.spec.triggers):
        try:
            _check(deployment, name, allow, now)
        except Forbidden as error:
            text = f"{label(deployment.workflow, name)} could start no run: it would touch {error.uri!r}"
            raise UsageError(text, _line(deployment, allow, profile, _folder(deployment, name, error.uri))) from error


def _check(deployment: Deployment, name: str, allow: Sequence[str] | None, now: datetime) -> None:
    run = f"{label(deployment.workflow, name)}.{SAMPLE}"
    check_fixed(allow, Submission(run, deployment.run_spec, {}, "", {}, deployment.base))
    for inputs in _inputs(deployment, name, now):
        try:
            accepted(deployment, name, run, inputs, allow)
        except Forbidden as error:
            if error.uri:
                raise
        except UsageError:
            continue  # it depends on values that a sample does not have


def _inputs(deployment: Deployment, name: str, now: datetime) -> Iterator[dict[str, Any]]:
    """The inputs of a sample, if the trigger has one."""
    trigger, rules = deployment.spec.triggers[name], Rules(deployment, name)
    with suppress(UsageError):
        if isinstance(trigger, ScheduleTrigger):
            yield rules.inputs(None, now)
        elif isinstance(trigger, ObjectTrigger) and trigger.poll is not None:
            event = event_of(trigger.poll.uri, ObjectInfo(SAMPLE, 1, "1", now.timestamp()))
            yield rules.inputs(event, event_time(event))


def _folder(deployment: Deployment, name: str, uri: str) -> str:
    """The prefix to allow: the polled prefix, or the folder of the address."""
    trigger = deployment.spec.triggers[name]
    if isinstance(trigger, ObjectTrigger) and trigger.poll is not None and uri.endswith(SAMPLE):
        return trigger.poll.uri
    return f"{uri.rpartition('/')[0]}/"


def _line(deployment: Deployment, allow: Sequence[str] | None, profile: str, prefix: str) -> str:
    known = [deployment.base] if allow is None else list(allow)
    listed = ", ".join(f'"{one}"' for one in [*known, prefix])
    hint = "If it is meant, allow it in profiles.toml, and start treadle triggers again:"
    return f"{hint}\n  [{profile}]\n  allow = [{listed}]"
