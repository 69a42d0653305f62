"""What one version of a trigger makes of an event: passed over, or the inputs of a run. Pure and deterministic."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar

from msgspec.structs import asdict, replace

from treadle.dsl.expressions import Expr, ExpressionError, evaluate, parse
from treadle.dsl.moments import moment
from treadle.dsl.templates import render
from treadle.dsl.triggers import EventTrigger, Trigger
from treadle.primitives.errors import UsageError
from treadle.primitives.events import Event

from ..allowed import check_allowed, check_ranges
from ..runfiles import Submission
from .registry.deployment import Deployment
from .starting import StartOrder

T = TypeVar("T")
_SHOWN = 500
"""Characters of a reason; a schema's error may quote all of the data."""


class Unfit(UsageError):
    """The event can start no run, and never will: a dead letter with this reason, unless the trigger is changed."""


class Rules:
    """`filter`, `schema` and `with` of one version of a trigger, read once.

    Expressions see `event` (`id`, `source`, `type`, `subject`, `time`, `datacontenttype`, `data`, `extensions`) and
    `trigger` (`name`, `time`, and in `with` `events`). Raises UsageError for expressions or a schema that cannot be.
    """

    trigger: Trigger

    def __init__(self, deployment: Deployment, name: str) -> None:
        self.workflow, self.version, self.name = deployment.workflow, deployment.version, name
        self.trigger = deployment.spec.triggers[name]
        events = self.trigger if isinstance(self.trigger, EventTrigger) else None
        self._filter = parse(events.filter) if events and events.filter else None
        self._check = _checker(events.schema_) if events and events.schema_ is not None else None

    def matches(self, event: Event, when: datetime) -> bool:
        """False: passed over. Raises Unfit when the filter cannot be answered, or the schema does not hold."""
        env = {"event": event_env(event), "trigger": self._about(when)}
        if not _guarded("filter", lambda: _true(self._filter, env)):
            return False
        _guarded("schema", lambda: self._check and self._check(env["event"]["data"]))
        return True

    def inputs(self, event: Event | None, when: datetime, events: Any = None) -> dict[str, Any]:
        """`with`, filled in; `events` is what `trigger.events` is worth. Raises Unfit."""
        env: dict[str, Any] = {"trigger": self._about(when) | {"events": events}}
        if event is not None:
            env["event"] = event_env(event)
        return _guarded("with", lambda: render(dict(self.trigger.with_), env))

    def order(self, run: str, event: Event | None, when: datetime, events: Any = None, **memo: Any) -> StartOrder:
        """The start of a run with these inputs. Raises Unfit."""
        return StartOrder(run, self.workflow, self.version, self.name, self.inputs(event, when, events), memo)

    def dedupe(self, expression: str, event: Event, when: datetime) -> str | int:
        """What tells events apart, by an expression. Raises Unfit, also for what is neither text nor a whole number."""
        env = {"event": event_env(event), "trigger": self._about(when)}
        value = _guarded("dedupe", lambda: evaluate(parse(expression), env))
        if not isinstance(value, str | int) or isinstance(value, bool) or value == "":
            raise Unfit(f"dedupe: it is {value!r}"[:200] + ", neither text nor a whole number")
        return value

    def _about(self, when: datetime) -> dict[str, Any]:
        return {"name": self.name, "time": moment(when)}


def accepted(
    deployment: Deployment, trigger: str, run: str, inputs: Mapping[str, Any], allow: Sequence[str] | None
) -> Submission:
    """What a triggered run is made of, with the prefixes that it may touch; `inputs` are mapped by `with`.

    Raises InvalidInputs for values that the workflow does not accept, Forbidden for addresses outside of `allow`.
    """
    submission = deployment.submission(run, inputs)
    check_ranges(submission, deployment.spec.triggers[trigger].with_)
    return replace(submission, allow=check_allowed(allow, submission))


def event_env(event: Event) -> dict[str, Any]:
    """The event as expressions see it: data that is bytes as text, or null where it is no UTF-8."""
    env = asdict(event)
    if isinstance(event.data, bytes):
        try:
            env["data"] = event.data.decode()
        except UnicodeDecodeError:
            env["data"] = None
    return env


def _true(condition: Expr | None, env: Mapping[str, Any]) -> bool:
    value = condition is None or evaluate(condition, env)
    if not isinstance(value, bool):
        raise Unfit(f"it is {value!r}"[:_SHOWN] + ", neither true nor false")
    return value


def _guarded(what: str, work: Callable[[], T]) -> T:
    try:
        return work()
    except (ExpressionError, Unfit) as error:
        raise Unfit(f"{what}: {error.message}", error.hint) from None
    except RecursionError:
        raise Unfit(f"{what}: the event is nested too deeply") from None
    except OverflowError as error:
        raise Unfit(f"{what}: a number is too large: {error}") from None


def _checker(schema: Mapping[str, Any]) -> Callable[[Any], None]:
    """A check of data against JSON Schema 2020-12; references to other places are not followed."""
    try:
        from jsonschema import Draft202012Validator, SchemaError
        from jsonschema.exceptions import best_match
        from referencing import Registry
        from referencing.exceptions import Unresolvable
    except ModuleNotFoundError as error:
        raise UsageError(
            f"`schema` of a trigger needs {error.name}", "pip install 'treadle-orchestrator[triggers]'"
        ) from error
    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        raise UsageError(f"`schema` of a trigger: {error.message}"[:_SHOWN], "Mend the schema.") from None
    validator = Draft202012Validator(schema, registry=Registry())

    def check(data: Any) -> None:
        try:
            error = best_match(validator.iter_errors(data))
        except Unresolvable as missing:
            raise Unfit(f"{missing} is not part of the schema") from None
        if error is not None:
            raise Unfit(f"{error.json_path}: {error.message}"[:_SHOWN])

    return check
