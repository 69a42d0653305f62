"""Errors, classified by the party that must act. Every error of treadle's own states the cause and the remedy."""

from __future__ import annotations

from enum import StrEnum

__all__ = [
    "CorruptError",
    "DataError",
    "FailureClass",
    "InternalError",
    "MissingError",
    "StoreError",
    "TreadleError",
    "UsageError",
]


class FailureClass(StrEnum):
    """Why an attempt failed; the class decides what happens next (docs/architecture.md, failures)."""

    USER_ERROR = "user error"
    """User code raised, or returned a value that the stage does not allow. Spends an attempt."""
    OUT_OF_MEMORY = "out of memory"
    """The attempt hit its memory limit. Spends an attempt; the next one may get more."""
    TIMED_OUT = "timed out"
    """The attempt ran longer than `timeout`. Spends an attempt."""
    THROTTLED = "throttled"
    """The provider refused for now. Spends no attempt."""
    WORKER_LOST = "worker lost"
    """The worker ended without an outcome. Spends no attempt."""
    POISON = "poison"
    """One task lost its worker ten times. Final."""
    CORRUPT = "data corrupt"
    """A block's bytes do not match its reference. Its producer runs again."""
    UNREACHABLE = "unreachable"
    """A block has no readable location, or a store does not answer."""
    UNKNOWN_OUTCOME = "unknown outcome"
    """A non-idempotent attempt was cut off; the user must decide whether it took effect."""
    FORGED = "forged"
    """A message that came through Temporal was not written by a holder of the deployment key. Final."""
    INTERNAL = "internal"
    """A defect of treadle."""


class TreadleError(Exception):
    """Base of every error of treadle's own; `hint` is the remedy."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n  {self.hint}" if self.hint else self.message


class UsageError(TreadleError):
    """The caller's request is invalid: the caller must change the call or the document."""


class DataError(TreadleError):
    """User data does not fit the stage (undecodable text, refused key type): the user must correct the data."""


class CorruptError(TreadleError):
    """Bytes differ from the committed bytes, or their MAC is wrong; they are never decoded."""

    block: str = ""
    """Name of the block, if the bytes belong to a block."""


class MissingError(TreadleError):
    """A named object is missing from the location in its reference."""

    block: str = ""
    """Name of the block, if the object is a block."""


class StoreError(TreadleError):
    """A store refused or did not answer; `__cause__` is the foreign error."""

    def __init__(self, message: str, hint: str = "", *, retryable: bool = False, throttled: bool = False) -> None:
        super().__init__(message, hint)
        self.retryable = retryable or throttled
        """The same call may succeed later (unreachable, throttled), or elsewhere (shared memory full)."""
        self.throttled = throttled
        """The store answers, and requests a lower rate of calls."""


class InternalError(TreadleError):
    """Cannot happen. Please report it with the traceback."""
