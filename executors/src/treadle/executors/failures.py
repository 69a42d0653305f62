"""Converts exceptions into the fields of a failure report, and these fields into text: one table of classes, one
traceback format."""

from __future__ import annotations

import os
import re
import traceback
from types import TracebackType
from typing import Any

from treadle import primitives
from treadle.primitives.channels.errors import GangEnded, MemberLost, ReduceFailed
from treadle.primitives.encoding.tabular import type_name
from treadle.primitives.errors import (
    CorruptError,
    DataError,
    FailureClass,
    MissingError,
    StoreError,
    TreadleError,
    UsageError,
)

from .redaction import Redactor

_OURS = (os.path.dirname(__file__), os.path.dirname(primitives.__file__))
_MESSAGE_LIMIT = 4096
"""Characters of a message; the traceback holds the full message."""


class StageFailed(BaseException):
    """User code of a stage failed; `__cause__` is the exception it raised.

    It is not an Exception: it may pass through the user function of a fused later stage, which must not catch it.
    """

    def __init__(
        self, stage: str, position: int | None, error: BaseException, retryable: bool, place: str = ""
    ) -> None:
        super().__init__(stage, position)
        self.stage = stage
        self.position = position
        """Index of the record in the stage's input. None: the failure concerns the whole partition."""
        self.error = error
        self.retryable = retryable
        self.place = place
        """File and line, or key, of the record; empty: not known."""


class InputFailed(BaseException):
    """The partition's input could not be read. It is not an Exception, for the same reason as StageFailed."""

    def __init__(self, error: TreadleError | MemoryError, lost: tuple[str, ...] = ()) -> None:
        super().__init__(lost)
        self.error = error
        self.lost = lost
        """Names of the corrupt or missing blocks."""


def is_loss(error: BaseException) -> bool:
    """Whether the block is lost and must be recomputed."""
    return isinstance(error, CorruptError | MissingError)


FROM_ANOTHER_MEMBER = (GangEnded, MemberLost, ReduceFailed)
"""Errors that a channel raises because another member failed."""
_TABLE: tuple[tuple[type[BaseException], FailureClass, bool], ...] = (
    (MemoryError, FailureClass.OUT_OF_MEMORY, True),
    (CorruptError, FailureClass.CORRUPT, True),
    (MissingError, FailureClass.UNREACHABLE, True),
    (DataError, FailureClass.USER_ERROR, True),
    (UsageError, FailureClass.USER_ERROR, False),
    (BaseException, FailureClass.INTERNAL, True),
)


def classify(error: BaseException) -> tuple[FailureClass, str, bool]:
    """Return (class, how it was determined, whether another attempt may help) for the error that ended an attempt.

    An exception of any type from user code is wrapped in StageFailed and is a user error. Two cases differ:
    MemoryError, and errors that only report the failure of another gang member. An unwrapped error comes from treadle
    or from a library that treadle calls.
    """
    if isinstance(error, StageFailed) and isinstance(error.error, FROM_ANOTHER_MEMBER):
        return FailureClass.WORKER_LOST, "another member of the gang failed", True
    if isinstance(error, StageFailed):
        memory = isinstance(error.error, MemoryError)
        failure = FailureClass.OUT_OF_MEMORY if memory else FailureClass.USER_ERROR
        return failure, f"exception {type_name(error.error)}", memory or error.retryable
    if isinstance(error, InputFailed):
        return classify(error.error)
    how = f"exception {type_name(error)}"
    if isinstance(error, StoreError):
        return FailureClass.THROTTLED if error.throttled else FailureClass.UNREACHABLE, how, error.retryable
    return next((failure, how, retryable) for kind, failure, retryable in _TABLE if isinstance(error, kind))


def error_text(error: str, message: str, place: str = "") -> str:
    """A readable error from its stored parts: `orders.csv, line 17: ValueError: no number`. For treadle's own errors
    the message alone is complete."""
    if place and not message.startswith(place):
        return f"{place}: {error_text(error, message)}"
    if not error or (message and error.startswith("treadle.")):
        return message
    return f"{error}: {message}" if message else error


def full_traceback(error: BaseException) -> str:
    """The traceback as Python prints it, causes included, without treadle's own frames above the user's."""
    return _encodable("".join(traceback.format_exception(type(error), error, _users(error.__traceback__))))


def _users(frames: TracebackType | None) -> TracebackType | None:
    """The traceback from the first frame outside treadle, or the full traceback if every frame is treadle's."""
    frame = frames
    while frame is not None and frame.tb_frame.f_code.co_filename.startswith(_OURS):
        frame = frame.tb_next
    return frame or frames


def message_of(error: BaseException, redactor: Redactor) -> str:
    """The text of an error, with secrets removed, cut to `_MESSAGE_LIMIT` characters."""
    try:
        text = _encodable(str(error))
    except Exception as broken:  # noqa: BLE001  a user's __str__ may raise any exception
        text = f"<the error's __str__ raised {type_name(broken)}>"
    if isinstance(error, SystemExit | KeyboardInterrupt):
        text = f"the function ended the interpreter ({type_name(error)}: {text})"
    text = redactor.text(text)  # redact before the cut, which could otherwise leave the first part of a secret
    return text if len(text) <= _MESSAGE_LIMIT else text[: _MESSAGE_LIMIT - 3] + "..."


def _encodable(text: str) -> str:
    """Escape lone surrogates, which come from file names that are not UTF-8: reports cannot encode them."""
    return text.encode("utf-8", "backslashreplace").decode()


def json_of(record: Any) -> dict[str, Any]:
    """`record` as JSON, so that a reader of failed records needs none of the user's classes. Otherwise `recordRepr`:
    its `repr`."""
    import msgspec

    try:
        return {"record": msgspec.json.decode(msgspec.json.encode(record, enc_hook=_listed))}
    except Exception:  # noqa: BLE001  a user's object may raise any exception
        return {"record": None, "recordRepr": _shown(record)}


def _listed(value: Any) -> Any:
    """Convert NumPy values to lists and numbers."""
    if type(value).__module__ == "numpy":
        return value.tolist()
    raise TypeError(f"a {type(value).__name__} is no JSON")


_without_addresses = re.compile(r" at 0x[0-9a-f]+").sub
"""Addresses differ between processes."""


def _shown(record: Any) -> str:
    try:
        return _without_addresses("", repr(record))
    except Exception as error:  # noqa: BLE001  see above
        return f"<a {type(record).__name__} whose __repr__ raised {type_name(error)}>"
