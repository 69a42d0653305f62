"""How one version of a trigger maps an event: filtered out, or the inputs of a run. Pure and deterministic."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from msgspec.structs import asdict, replace

from treadle.dsl.evaluation import Unfit as Unfit
from treadle.dsl.evaluation import evaluate_within_budget, jobs
from treadle.dsl.expressions import parse
from treadle.dsl.trigger_time import moment
from treadle.dsl.triggers import EventTrigger, Trigger
from treadle.orchestrator.run_store.run_files import Submission
from treadle.orchestrator.run_store.uri_policy import check_allowed, check_ranges
from treadle.primitives.events import Event

from .registry.deployment import Deployment
from .start_requests import StartOrder


class Rules:
    """`filter`, `schema` and `with` of one version of a trigger, parsed once.

    Expressions see `event` (the fields of Event) and `trigger` (`name`, `time`, and in `with` `events`). Their
    evaluation has a budget of processor time. A schema, or large data, is evaluated in another process
    (docs/decisions/0031).

    Raises UsageError for an invalid filter.
    """

    trigger: Trigger

    def __init__(self, deployment: Deployment, name: str) -> None:
        self.workflow, self.version, self.name = deployment.workflow, deployment.version, name
        self.trigger = deployment.spec.triggers[name]
        events = self.trigger if isinstance(self.trigger, EventTrigger) else None
        self._filter = events.filter if events else None
        if self._filter:
            parse(self._filter)
        schema = events.schema_ if events else None
        self._schema = None if schema is None else json.dumps(schema).encode()

    def matches(self, event: Event, when: datetime) -> bool:
        """Whether the event passes the filter. Raises Unfit when the filter cannot be evaluated, the data violates the
        schema, or the evaluation exceeds its budget; EvaluatorLost when it must be retried."""
        env = {"event": event_env(event), "trigger": self._about(when)}
        if self._filter and not evaluate_within_budget(jobs.holds, self._filter, env):
            return False
        if self._schema is not None:
            evaluate_within_budget(jobs.check, self._schema, env["event"]["data"], always=True)
        return True

    def inputs(self, event: Event | None, when: datetime, events: Any = None) -> dict[str, Any]:
        """The evaluated `with`; `events` is the value of `trigger.events`. Raises Unfit, EvaluatorLost."""
        env: dict[str, Any] = {"trigger": self._about(when) | {"events": events}}
        if event is not None:
            env["event"] = event_env(event)
        return evaluate_within_budget(jobs.fill, dict(self.trigger.with_), env)

    def order(self, run: str, event: Event | None, when: datetime, events: Any = None, **memo: Any) -> StartOrder:
        """The start of a run with these inputs. Raises Unfit."""
        return StartOrder(run, self.workflow, self.version, self.name, self.inputs(event, when, events), memo)

    def dedupe(self, expression: str, event: Event, when: datetime) -> str | int:
        """The identity of an event, by an expression. Raises Unfit, also for a value that is neither text nor a whole
        number, and EvaluatorLost."""
        env = {"event": event_env(event), "trigger": self._about(when)}
        return evaluate_within_budget(jobs.identity, expression, env)

    def _about(self, when: datetime) -> dict[str, Any]:
        return {"name": self.name, "time": moment(when)}


def accepted(
    deployment: Deployment, trigger: str, run: str, inputs: Mapping[str, Any], allow: Sequence[str] | None
) -> Submission:
    """The submission of a triggered run, with the prefixes that it may access; `inputs` are mapped by `with`.

    Raises InvalidInputs for values that the workflow does not accept, Forbidden for addresses outside of `allow`.
    """
    submission = deployment.submission(run, inputs)
    check_ranges(submission, deployment.spec.triggers[trigger].with_)
    return replace(submission, allow=check_allowed(allow, submission))


def event_env(event: Event) -> dict[str, Any]:
    """The event as expressions see it. Binary data becomes text, or null if it is not UTF-8."""
    env = asdict(event)
    if isinstance(event.data, bytes):
        try:
            env["data"] = event.data.decode()
        except UnicodeDecodeError:
            env["data"] = None
    return env
