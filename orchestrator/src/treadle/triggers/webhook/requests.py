"""Maps a request to starts. Pure: headers and body in, starts or the problem to answer out.

It checks in this order: the signature, the content type, the content, the filter. In a signed request it uses only data
that the signature covers. It ignores GitHub's delivery id, which would let a captured body start a second run, and its
event type, which would let the body pass another filter. It rejects CloudEvents attributes in headers.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Mapping
from datetime import datetime
from typing import Any
from urllib.parse import unquote

from treadle.dsl.triggers import ObjectTrigger, WebhookTrigger
from treadle.primitives.errors import TreadleError
from treadle.primitives.events import Event
from treadle.primitives.events.decode import Undecodable, binary, event_time, parse_json, rfc3339, structured
from treadle.primitives.events.signatures import (
    Signed,
    Unsigned,
    body_id,
    verify_bearer,
    verify_github,
    verify_standard,
)

from ..event_mapping import Rules, Unfit
from ..objects.notifications import new_objects
from ..run_ids import event_run, hashed_run
from ..start_requests import StartOrder

TYPE = "dev.treadle.webhook.v1"
"""`type` of requests without a signed type."""
GITHUB = "com.github.webhook"
_STRUCTURED = "application/cloudevents+json"


class RequestProblem(TreadleError):
    """The request is answered with an error; `status` shows whether the sender or the service must act."""

    def __init__(self, status: int, message: str, hint: str = "", *, retry_after: int | None = None) -> None:
        super().__init__(message, hint)
        self.status, self.retry_after = status, retry_after


class Hook(Rules):
    """The rules of a trigger that accepts requests."""

    trigger: WebhookTrigger | ObjectTrigger

    @property
    def secret(self) -> str | None:
        """Name of the secret for signatures of callers."""
        if isinstance(self.trigger, WebhookTrigger):
            return self.trigger.secret
        return self.trigger.webhook.secret if self.trigger.webhook else None

    @property
    def max_body(self) -> int:
        """Bytes."""
        return self.trigger.max_body if isinstance(self.trigger, WebhookTrigger) else 2**20


def check_secret(hook: Hook, secret: str | None) -> None:
    """Raises UsageError for a secret that is not usable for signatures."""
    with contextlib.suppress(Unsigned):
        _verified(hook, {}, b"", secret, 0.0)


def read(hook: Hook, headers: Mapping[str, str], body: bytes, secret: str | None, now: float) -> list[StartOrder]:
    """The runs for a request; none: its events are filtered out. Raises RequestProblem, and the errors of
    `check_secret`.

    `headers`: names in lower case. `secret`: the text of the hook's secret.
    """
    try:
        signed = _verified(hook, headers, body, secret, now)
    except Unsigned as error:
        raise RequestProblem(401, error.message, error.hint) from None
    try:
        events = _events(hook, headers, body, signed, now)
    except Undecodable as error:
        raise RequestProblem(400, error.message) from None
    try:
        found = [(event, event_time(event)) for event in events]
        wanted = [(event, when) for event, when in found if hook.matches(event, when)]
        return [hook.order(_run(hook, event, when, body, signed, headers), event, when) for event, when in wanted]
    except Unfit as error:
        raise RequestProblem(422, error.message, error.hint) from None


def _verified(hook: Hook, headers: Mapping[str, str], body: bytes, secret: str | None, now: float) -> Signed | None:
    """None: the hook has no secret."""
    if secret is None:
        return None
    if isinstance(hook.trigger, ObjectTrigger):
        return verify_bearer(secret, headers)
    if hook.trigger.scheme == "github":
        return verify_github(secret, headers, body)
    return verify_standard(secret, headers, body, now)


# -- content --------------------------------------------------------------------------------------------------------


def _events(hook: Hook, headers: Mapping[str, str], body: bytes, signed: Signed | None, now: float) -> list[Event]:
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if isinstance(hook.trigger, ObjectTrigger):
        _need_json(kind)
        return new_objects(parse_json(body))
    if hook.trigger.format == "cloudevents":
        return [_cloudevent(kind, headers, body, signed)]
    _need_json(kind)
    return [_plain(hook, parse_json(body), body, signed, now)]


def _cloudevent(kind: str, headers: Mapping[str, str], body: bytes, signed: Signed | None) -> Event:
    """https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/bindings/http-protocol-binding.md"""
    if kind == _STRUCTURED:
        return structured(body)
    if kind.startswith("application/cloudevents"):
        raise RequestProblem(415, f"CloudEvents as {kind} are not read", f"Send {_STRUCTURED}, one event at a time.")
    if "ce-specversion" not in headers:
        raise RequestProblem(415, "it is no CloudEvent: neither its content-type nor ce- headers say so")
    if signed is not None:
        raise RequestProblem(400, "the signature does not cover ce- headers", f"Send {_STRUCTURED}.")
    attributes = {name[3:]: unquote(value) for name, value in headers.items() if name.startswith("ce-")}
    return binary(attributes, headers.get("content-type"), body)


def _plain(hook: Hook, data: Any, body: bytes, signed: Signed | None, now: float) -> Event:
    kind = data.get("type") if isinstance(data, Mapping) else None
    assert isinstance(hook.trigger, WebhookTrigger)
    github = hook.trigger.secret is not None and hook.trigger.scheme == "github"
    return Event(
        (signed.id if signed and signed.id else body_id(body)),
        f"/hooks/{hook.workflow}/{hook.name}",
        GITHUB if github else kind if isinstance(kind, str) and kind else TYPE,
        time=rfc3339(signed.time if signed and signed.time else now),
        datacontenttype="application/json",
        data=data,
    )


def _need_json(kind: str) -> None:
    if kind != "application/json" and not (kind.startswith("application/") and kind.endswith("+json")):
        raise RequestProblem(415, f"the content-type is {kind or 'missing'}", "Send application/json.")


# -- run ids --------------------------------------------------------------------------------------------------------


def _run(
    hook: Hook, event: Event, when: datetime, body: bytes, signed: Signed | None, headers: Mapping[str, str]
) -> str:
    if isinstance(hook.trigger, ObjectTrigger):
        return event_run(hook.workflow, hook.name, event)
    match hook.trigger.dedupe:
        case "none":
            return hashed_run(hook.workflow, hook.name, "none", secrets.token_hex(16))
        case "body":
            return hashed_run(hook.workflow, hook.name, "body", body_id(body))
        case "id":
            return _run_by_id(hook, hook.trigger, event, body, signed, headers)
        case expression:
            return hashed_run(hook.workflow, hook.name, "value", hook.dedupe(expression, event, when))


def _run_by_id(
    hook: Hook, trigger: WebhookTrigger, event: Event, body: bytes, signed: Signed | None, headers: Mapping[str, str]
) -> str:
    """The run for an id that the signature covers; without signatures, for the id that the sender states."""
    if trigger.format == "cloudevents":
        return event_run(hook.workflow, hook.name, event)
    if signed is not None:
        return hashed_run(hook.workflow, hook.name, "id", signed.id or body_id(body))
    if said := headers.get("webhook-id"):
        return hashed_run(hook.workflow, hook.name, "id", said)
    raise RequestProblem(
        400, "the request has no id", "Send webhook-id, or deploy with `dedupe: body` or `dedupe: none`."
    )
