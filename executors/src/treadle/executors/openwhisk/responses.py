"""Interprets replies of OpenWhisk's API. Pure: status and bytes in, an Answer or an error out.

Sources in apache/openwhisk: rest_api.md and actions.md ("Understanding the activation record", "Action execution").
Details that these omit come from Actions.scala (statuses of an invocation), ActivationResult.scala (the cause) and
ErrorResponse.scala (the messages).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any, NoReturn

import msgspec
from msgspec import Raw, Struct, field

from treadle.primitives.errors import StoreError, UsageError

from ..functions.invoker import Answer, Ended, NotRun, Throttled

_SUCCESS, _APPLICATION, _DEVELOPER, _PLATFORM = range(4)
"""`response.statusCode` of an activation record; its textual form differs between versions of the API."""

_SHOWN = 300
"""Maximum characters of an external text that an error quotes."""


class HttpResponse(Struct):
    statusCode: int = -1
    status: str = ""
    result: Raw = field(default_factory=lambda: Raw(b"{}"))

    def code(self) -> int:
        """Blocking replies have carried only the text, with spaces or with underscores."""
        words = ("success", "application error", "action developer error", "whisk internal error")
        known = dict(zip(words, range(4), strict=True))
        return self.statusCode if self.statusCode >= 0 else known.get(self.status.replace("_", " "), _PLATFORM)


class Annotation(Struct):
    key: str
    value: Any = None


class Activation(Struct):
    """The fields of an activation record that treadle reads."""

    activationId: str
    response: HttpResponse
    logs: list[str] = []
    annotations: list[Annotation] = []
    duration: int = 0
    """Milliseconds, including initialisation."""


class Pending(Struct, frozen=True):
    """The call was accepted and has not ended (HTTP 202). Its record will be available under this id."""

    activation: str = field(name="activationId")


class _Error(Struct):
    error: Any = ""


_activation = msgspec.json.Decoder(Activation)
_pending = msgspec.json.Decoder(Pending)
_error = msgspec.json.Decoder(_Error)
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError)


def read_reply(status: int, body: bytes, headers: Mapping[str, str], action: str) -> Activation | Pending:
    """Interpret the reply to POST .../actions/NAME?blocking=true. Returns the record of a successful or failed call.

    Raises Throttled for both kinds of 429; NotRun when the call was not started; UsageError when the deployment must be
    corrected; StoreError when it is unknown whether the call runs.
    """
    if status == 202:
        return _taken(body)
    if (record := read_record(body)) is not None:
        return record
    said = f"{status}: {error_of(body)}"
    match status:
        case 429:
            if "last minute" in said:
                raise Throttled(said, _seconds_to_next_minute(headers))
            raise Throttled(said, at_once=True)  # ErrorResponse.scala, `tooManyConcurrentRequests`
        case 401 | 403:
            raise UsageError(f"OpenWhisk refuses the key ({said})", "Mend the secret with the namespace's key.")
        case 404:
            raise UsageError(f"there is no action {action} ({said})", "Run `treadle deploy openwhisk`.")
        case 400 | 413:
            raise UsageError(
                f"OpenWhisk refuses the call of {action} ({said})", "Compare its limits with the profile's."
            )
        case 503:  # LoadBalancerException: the activation could not be forwarded (Actions.scala)
            raise NotRun(
                f"OpenWhisk cannot take calls ({said})", "It may recover; see its controller's log.", retryable=True
            )
        case _:
            raise lost(said)


def _taken(body: bytes) -> Pending:
    try:
        return _pending.decode(body)
    except _UNREADABLE:
        raise lost(f"202: {error_of(body)}") from None


def answer_of(record: Activation) -> Answer:
    """How the call ended. Raises StoreError when OpenWhisk failed: the action may have started (actions.md)."""
    code = record.response.code()
    notes = {annotation.key: annotation.value for annotation in record.annotations}
    waited, billed = _seconds_of(notes.get("waitTime")), record.duration / 1000
    cold = "initTime" in notes
    if code == _SUCCESS:
        return Answer("answered", bytes(record.response.result), cold=cold, waited=waited, billed=billed)
    said = error_of(bytes(record.response.result))
    if code == _PLATFORM:
        raise lost(f"activation {record.activationId}: {said}")
    return Answer(_ended(said), how=said, log=text_of(record.logs), cold=cold, waited=waited, billed=billed)


def _seconds_of(milliseconds: Any) -> float:
    return milliseconds / 1000 if isinstance(milliseconds, int | float) else 0.0


def lost(said: str) -> StoreError:
    """The error for a call of unknown state: it may be running."""
    return StoreError(f"OpenWhisk lost a call ({said})", "What it did is looked up in the store.", retryable=True)


def _ended(said: str) -> Ended:
    """Classify by the messages of ErrorResponse.scala: `timedoutActivation`, `memoryExhausted`. Others mean a lost
    container."""
    if "exceeded its time limits" in said:
        return "timed out"
    return "out of memory" if "exhausted its memory" in said else "crashed"


def read_record(body: bytes) -> Activation | None:
    """The record in a reply, or None. A failed call has a record with status 502 or 500; other errors have none."""
    try:
        return _activation.decode(body)
    except _UNREADABLE:
        return None


def error_of(body: bytes) -> str:
    """The field `error`, which may hold any JSON value, or the first characters of another body."""
    try:
        said = _error.decode(body).error
    except _UNREADABLE:
        said = body[:_SHOWN].decode(errors="replace")
    return (said if isinstance(said, str) else msgspec.json.encode(said).decode())[:_SHOWN]


def _seconds_to_next_minute(headers: Mapping[str, str]) -> float:
    """The limit of calls per minute resets with the minute of the server's clock (RateThrottler.scala)."""
    try:
        return 60.0 - parsedate_to_datetime(headers["date"]).second
    except (KeyError, ValueError):
        return 0.0


_LINE = re.compile(r"\S+\s+std(?:out|err): ?(.*)", re.DOTALL)


def text_of(lines: list[str]) -> bytes:
    """The printed output: lines of a log are `TIMESTAMP STREAM: LINE` (actions.md)."""
    printed = (found[1] if (found := _LINE.fullmatch(line)) else line for line in lines)
    return "".join(f"{line}\n" for line in printed).encode()


def pause(waited: float) -> float:
    """Seconds until the next request for a record: a tenth of the time waited so far, between 0.05 and 2."""
    return min(2.0, max(0.05, waited / 10))


def refuse(status: int, body: bytes, what: str) -> NoReturn:
    """Raise for an unsuccessful request other than a call: StoreError when the problem may be temporary, else
    UsageError."""
    said = f"{what}: {status}: {error_of(body)}"
    if status in (408, 429) or status >= 500:
        raise StoreError(f"OpenWhisk does not do it now ({said})", "Try again later.", retryable=True)
    hint = "Check the endpoint, the namespace and its key."
    if status == 400 and "runtime" in said and "not supported" in said:
        hint = "Run treadle on a Python of these, or have the installation's manifest of runtimes list this one."
    raise UsageError(f"OpenWhisk refuses ({said})", hint)
