"""Converts Lambda's response at the end of a call to an Answer. Pure.

It relies on these statements of the AWS Lambda developer guide and API reference, by document:

- Invoke: a call that ran has status 200, successful or not. If it failed, `X-Amz-Function-Error` is set, and the
  payload is an object with `errorType` and `errorMessage`. `X-Amz-Log-Result` is the last 4 KB of its log.
- Understanding the Lambda execution environment lifecycle: a runtime that exits is `Runtime.ExitError`. A function that
  exceeds its timeout reports `Task timed out after N seconds` (with the type `Sandbox.Timedout` since 2024). Both lose
  the environment.
- Troubleshoot invocation issues: a function out of memory ends with `Runtime exited with error: signal: killed` and
  `Max Memory Used` equal to `Memory Size`, or as `Runtime.OutOfMemory`.
- Viewing the REPORT line: `REPORT RequestId: ... Duration: 2.1 ms  Billed Duration: 3 ms  Memory Size: 128 MB  Max
  Memory Used: 41 MB  Init Duration: 310.2 ms`. `Init Duration` appears only on a cold start. With the JSON log format
  the same figures are in a `platform.report` record.
"""

from __future__ import annotations

import re
from functools import partial
from typing import Any

import msgspec
from msgspec import Struct

from ..functions.invoker import MEGABYTE, Answer, Ended

_NEARLY = 0.98
"""Share of the memory size: a function killed at this use or above ran out of memory."""
_BROKEN_PACKAGE = ("Runtime.ImportModuleError", "Runtime.HandlerNotFound", "Runtime.UserCodeSyntaxError")


class Metering(Struct, frozen=True):
    """The figures of a REPORT line; zeros if the tail of the log does not contain it."""

    memory: int = 0
    """Memory size of the function, in bytes."""
    peak_memory: int = 0
    """Peak memory use, in bytes."""
    cold: bool = False
    billed: float = 0.0
    """Seconds, including initialisation if it is charged."""


class BrokenPackage(Exception):
    """The function cannot be loaded: no call will run."""


def answer_of(payload: bytes, function_error: str, log: bytes) -> Answer:
    """The Answer for a call with status 200. Raises BrokenPackage."""
    meter = metering(log)
    answer = partial(Answer, log=log, peak_memory=meter.peak_memory, cold=meter.cold, billed=meter.billed)
    if not function_error:
        return answer("answered", payload)
    kind, message = _error(payload)
    if kind in _BROKEN_PACKAGE:
        raise BrokenPackage(f"{kind}: {message}")
    return answer(_classify(kind, message, meter), how=f"{kind}: {message}" if kind else message)


def _classify(kind: str, message: str, meter: Metering) -> Ended:
    if "Task timed out" in message or kind == "Sandbox.Timedout":
        return "timed out"
    killed = "signal: killed" in message and meter.memory and meter.peak_memory >= _NEARLY * meter.memory
    if kind == "Runtime.OutOfMemory" or killed or kind == "MemoryError":
        return "out of memory"
    return "crashed"


def _error(payload: bytes) -> tuple[str, str]:
    """(type, message) of a failed call."""
    try:
        error: Any = msgspec.json.decode(payload)
        return str(error.get("errorType", "")), str(error.get("errorMessage", ""))
    except (msgspec.DecodeError, UnicodeDecodeError, AttributeError):
        return "", "it failed, and did not say how"


_REPORT = re.compile(rb"^REPORT RequestId: .*$", re.MULTILINE)
_FIELD = re.compile(rb"(Billed Duration|Memory Size|Max Memory Used|Init Duration): ([0-9.]+)")


def metering(log: bytes) -> Metering:
    """The figures of the last report in the tail of the log, in either of Lambda's log formats."""
    lines = _REPORT.findall(log)
    if lines:
        fields = {name.decode(): float(value) for name, value in _FIELD.findall(lines[-1])}
        return Metering(
            int(fields.get("Memory Size", 0)) * MEGABYTE,
            int(fields.get("Max Memory Used", 0)) * MEGABYTE,
            "Init Duration" in fields,
            fields.get("Billed Duration", 0.0) / 1000,
        )
    for line in reversed(log.splitlines()):
        if b'"platform.report"' in line:
            return _platform_report(line)
    return Metering()


def _platform_report(line: bytes) -> Metering:
    try:
        metrics: Any = msgspec.json.decode(line)["record"]["metrics"]
        return Metering(
            int(metrics.get("memorySizeMB", 0)) * MEGABYTE,
            int(metrics.get("maxMemoryUsedMB", 0)) * MEGABYTE,
            "initDurationMs" in metrics,
            float(metrics.get("billedDurationMs", 0)) / 1000,
        )
    except (msgspec.DecodeError, KeyError, TypeError, ValueError, AttributeError):
        return Metering()
