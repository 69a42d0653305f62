"""What to type next: a suggested command has the `--profile` that this one was given."""

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
    """Suggest it from now on. What the variable says holds for the next command too."""
    _given.set("" if profile is None or profile == os.environ.get("TREADLE_PROFILE") else profile)


def advice(text: str) -> str:
    """treadle's own words for people, with commands that work as they stand."""
    name = _given.get()
    return _COMMAND.sub(lambda found: f"{found[0]} --profile {shlex.quote(name)}", text) if name else text
