"""Explains failures caused by a library that the function's package does not contain. Pure."""

from __future__ import annotations

import re

import msgspec

from treadle.primitives.errors import FailureClass

from ..program import Failure, Report

ADDED_BY = {
    "pyarrow": "deploy with `arrow = true`",
    "confluent_kafka": "deploy with `kafka = true`",
}
"""Module -> the setting in the executor's table `deploy` that adds it."""
_OTHERWISE = "deploy an image that has it (`image` in the table `deploy`)"
_ASKED_FOR = re.compile(r"No module named '([\w.]+)'|needs (pyarrow|confluent-kafka)")
"""Matches Python's message and the messages of treadle's own errors."""


def explained(report: Report) -> Report:
    """Add to a failure by a missing library how to add it, and class it as a user error: another attempt would fail
    too."""
    if not isinstance(report, Failure):
        return report
    module = missing_module(report)
    if not module:
        return report
    text = f"the function's package has no {module}: {ADDED_BY.get(module, _OTHERWISE)}"
    return msgspec.structs.replace(
        report, failure=FailureClass.USER_ERROR, message=f"{report.message} ({text})", retryable=False
    )


def missing_module(failure: Failure) -> str:
    """The missing library, or an empty string for another cause.

    Errors from user code count too: the user's own modules are in the bundle, and `UsageError`s name them if not.
    """
    if failure.error not in ("ModuleNotFoundError", "treadle.primitives.errors.UsageError"):
        return ""
    found = _ASKED_FOR.search(failure.message)
    return (found[1] or found[2]).partition(".")[0].replace("-", "_") if found else ""
