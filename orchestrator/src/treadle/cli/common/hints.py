"""Adds to suggested commands the `--profile` that the current command was given."""

from __future__ import annotations

import os
import re
import shlex
from contextvars import ContextVar

_WITH_PROFILE = (
    "plan run submit resume rerun watch show list logs result report pause unpause limit cancel terminate "
    "worker triggers gc doctor"
)
_COMMAND = re.compile(
    r"\btreadle (?:(?:trigger|dlq) [a-z]+|(?:un)?deploy(?: lambda| openwhisk)?|dev up|"
    rf"{'|'.join(_WITH_PROFILE.split())})\b"
)
_given: ContextVar[str] = ContextVar("profile", default="")


def remember(profile: str | None) -> None:
    """Set the profile for suggested commands. It is omitted if TREADLE_PROFILE selects it, which applies to the next
    command too."""
    _given.set("" if profile is None or profile == os.environ.get("TREADLE_PROFILE") else profile)


def advice(text: str) -> str:
    """A message of treadle's, in which all suggested commands work as written."""
    name = _given.get()
    return _COMMAND.sub(lambda found: f"{found[0]} --profile {shlex.quote(name)}", text) if name else text
