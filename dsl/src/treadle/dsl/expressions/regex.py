"""Regular expressions of `matches`, in RE2: the time is linear in the text for every pattern."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from .nodes import MAX_TEXT

_MEMORY = 2**18
"""Bytes that RE2 may use for a pattern: a few thousand states. On a text of MAX_TEXT characters the worst pattern takes
about a second.
"""


class PatternError(Exception):
    """The text is not a pattern, or needs too much memory."""


@lru_cache(256)
def compiled(pattern: str) -> Any:
    """Return the compiled pattern. Raises PatternError."""
    import re2

    options = re2.Options()
    options.max_mem = _MEMORY
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        reason = error.args[0] if error.args else "it is no pattern"
        raise PatternError(reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)) from None
    except UnicodeEncodeError:
        raise PatternError("it is no Unicode text") from None


def matches(pattern: str, text: str) -> bool:
    """Return whether the pattern matches anywhere in the text.

    Raises PatternError, also for a text that is longer than MAX_TEXT or not Unicode.
    """
    if len(text) > MAX_TEXT:
        raise PatternError(f"the text is longer than {MAX_TEXT} characters")
    try:
        return compiled(pattern).search(text) is not None
    except UnicodeEncodeError:
        raise PatternError("the text is no Unicode text") from None
