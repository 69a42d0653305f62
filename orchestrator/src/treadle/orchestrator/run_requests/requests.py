"""The requests about runs, and their answers.

On the wire both are JSON, so that outputs keep every value that they may have in Temporal.
"""

from __future__ import annotations

import json
from typing import Any, ClassVar, Generic, Literal, Protocol, Self, TypeVar

import msgspec
from msgspec import Struct

from treadle.primitives.encoding.decoding import known
from treadle.primitives.errors import CorruptError, InternalError, TreadleError, UsageError
from treadle.primitives.sealing import purpose_key

from ..environment.connection_errors import Unreachable
from .run_views import RunEnd, RunView

WORKFLOW = "treadle.run"
"""The type of a run's workflow in Temporal."""
NAME = "_requests"
"""The name in the handshake with a driver, where other connections have a run. It is not a valid run id."""
A = TypeVar("A")


class NoSuchRun(TreadleError):
    """No run has that id."""

    @classmethod
    def named(cls, run: str) -> Self:
        return cls(f"there is no run {run}", "See: treadle list")


class RunRequest(Struct, Generic[A], frozen=True, tag_field="request"):
    """A request whose answer is an A."""

    answer: ClassVar[Any]
    """The type A."""
    repeatable: ClassVar[bool] = True
    """False: a client must not repeat the request after a lost connection."""
    patience: ClassVar[float | None] = 60.0
    """Seconds for the driver's answer. None: without limit."""


class ViewRun(RunRequest[RunView], frozen=True, tag="view"):
    """The run with its running nodes."""

    answer = RunView
    run: str


class FindRun(RunRequest[bool], frozen=True, tag="find"):
    """True if the run exists."""

    answer = bool
    run: str


class ReadMemo(RunRequest[dict[str, Any]], frozen=True, tag="memo"):
    """The data that the run was started with for listings."""

    answer = dict[str, Any]
    run: str


class RunPage(Struct, frozen=True):
    """A part of a listing."""

    runs: tuple[RunView, ...]
    """Without their running nodes."""
    next: bytes
    """Where the next part begins. Empty: this is the last part."""


class ListRuns(RunRequest[RunPage], frozen=True, tag="list"):
    """The executions that Temporal lists for a query."""

    answer = RunPage
    query: str
    size: int
    """Maximum of executions in the answer."""
    next: bytes = b""
    """`RunPage.next` of the part before."""


class AwaitEnd(RunRequest[RunEnd], frozen=True, tag="end"):
    """The end of the run, as soon as it has ended. Raises CorruptError for a result of another execution."""

    answer = RunEnd
    patience = None
    run: str


class CountDrivers(RunRequest[int], frozen=True, tag="drivers"):
    """Number of processes that polled the queue within the last minute, except those with the identity `but`."""

    answer = int
    queue: str
    but: str = ""


class StartRun(RunRequest[bool], frozen=True, tag="start"):
    """Start a run whose submission is in the store. False: a run with this id exists already."""

    answer = bool
    repeatable = False
    start: dict[str, Any]
    """The workflow's input (`messages.RunStart`)."""
    workflow: str
    """The name of the workflow in its document."""
    queue: str
    memo: dict[str, Any]
    trigger: str = ""
    after: Literal["any", "failed", "none"] = "any"
    """The earlier run with this id that this one may follow: any that has ended, one without success, or none."""
    delay: float = 0.0
    """Seconds until the run begins."""


class CancelRun(RunRequest[None], frozen=True, tag="cancel"):
    """Ask the run to stop; a driver must carry it out."""

    answer = None
    run: str
    reason: str


class TerminateRun(RunRequest[None], frozen=True, tag="terminate"):
    """End the run at once, without a driver."""

    answer = None
    run: str
    reason: str


class SteerRun(RunRequest[None], frozen=True, tag="steer"):
    """Pause, unpause or limit. Raises UsageError when the run rejects the request, Unreachable when no driver
    answers."""

    answer = None
    run: str
    action: Literal["pause", "unpause", "limit"]
    stage: str = ""
    concurrency: int = 0


AnyRequest = (
    ViewRun | FindRun | ReadMemo | ListRuns | AwaitEnd | CountDrivers | StartRun | CancelRun | TerminateRun | SteerRun
)


class RunService(Protocol):
    """Answers requests: in this process, or in the driver."""

    async def ask(self, request: RunRequest[A]) -> A:
        """Raises NoSuchRun, Unreachable, and the errors that the request's class names."""


class RunAnswer(Struct, frozen=True, omit_defaults=True):
    """The answer to a request, or the error that it raised."""

    value: Any = None
    error: str = ""
    """The name of the error's class. Empty: there was no error."""
    message: str = ""
    hint: str = ""


ERRORS = {kind.__name__: kind for kind in (CorruptError, InternalError, NoSuchRun, Unreachable, UsageError)}
"""The errors that keep their class on the way. Every other one becomes an InternalError."""


def socket_key(deployment_key: bytes) -> bytes:
    """The key of the handshake with a driver."""
    return purpose_key(deployment_key, b"treadle requests")


def encoded(value: Struct) -> bytes:
    """The JSON form of a request or answer."""
    return json.dumps(msgspec.to_builtins(value), separators=(",", ":")).encode()


def decoded(kind: Any, data: bytes) -> Any:
    """A request or answer. Only for bytes of an authentic connection. Raises InternalError."""
    try:
        return msgspec.convert(json.loads(data), known(kind))
    except (ValueError, RecursionError) as error:
        raise InternalError(f"a message of the driver's socket is invalid: {error}") from error


def value_of(request: RunRequest[A], answer: RunAnswer) -> A:
    """The value of an answer. Raises its error."""
    if answer.error:
        raise ERRORS.get(answer.error, InternalError)(answer.message, answer.hint)
    value: A = msgspec.convert(answer.value, request.answer)
    return value
