"""The keys of runs in which this process takes part: tasks hold that of their run, clients all of their sessions.

A value that needs the key of a run names the run, so that no key travels with it.
"""

from __future__ import annotations

from .errors import UsageError

_held: dict[str, bytes] = {}


def hold(run: str, key: bytes) -> None:
    """Let this process use what belongs to the run."""
    _held[run] = key


def let_go(run: str) -> None:
    """Forget the key of the run."""
    _held.pop(run, None)


def held() -> dict[str, bytes]:
    """Return all keys by run, for a process that this one starts."""
    return dict(_held)


def held_key(run: str) -> bytes:
    """Return the key of the run. Raises UsageError when this process takes no part in it."""
    try:
        return _held[run]
    except KeyError:
        text = f"this process takes no part in run {run}"
        raise UsageError(text, "Use its objects in calls of its session, and in the process that opened it.") from None
