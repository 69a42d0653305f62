"""Libraries that a function's package does not have: whose error that is, and what adds them. Pure."""

from __future__ import annotations

import re

import msgspec

from treadle.primitives.errors import FailureClass

from ..program import Failure, Report

ADDED_BY = {
    "pyarrow": "deploy with `arrow = true`",
    "confluent_kafka": "deploy with `kafka = true`",
}
"""Module -> what to write into the executor's table `deploy`."""
_OTHERWISE = "deploy an image that has it (`image` in the table `deploy`)"
_ASKED_FOR = re.compile(r"No module named '([\w.]+)'|needs (pyarrow|confluent-kafka)")
"""In Python's words, and in those of treadle's own errors."""


def explained(report: Report) -> Report:
    """A failure for want of a library says how to add it, and is the user's: another attempt would fail as well."""
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
    """The library it asks for; empty when it failed for another reason.

    What user code raises counts as well: its own modules come with the bundle, and are named by `UsageError`s.
    """
    if failure.error not in ("ModuleNotFoundError", "treadle.primitives.errors.UsageError"):
        return ""
    found = _ASKED_FOR.search(failure.message)
    return (found[1] or found[2]).partition(".")[0].replace("-", "_") if found else ""
