"""Errors and logs of attempts: kept whole, outside Temporal, for `treadle logs` and the people behind it."""

from __future__ import annotations

import time
from typing import Any

import msgspec
from msgspec import Struct

from treadle.executors.program import Failure, Outcome, Report
from treadle.primitives.store import Store


class AttemptRecord(Struct, frozen=True):
    """What is kept of an attempt that failed or printed something."""

    segment: str
    partition: int
    attempt: int
    time: float
    failure: str = ""
    """A FailureClass; empty: it succeeded."""
    final: bool = False
    how: str = ""
    stage: str = ""
    error: str = ""
    message: str = ""
    traceback: str = ""
    log: str = ""
    peak_memory: int = 0
    slot: str = ""
    started: float = 0.0
    """By the worker's clock; 0: nobody knows."""


_encode = msgspec.json.Encoder().encode


class AttemptLog:
    """Gathers records of one segment's epoch and writes them as objects of many lines."""

    def __init__(self, store: Store, prefix: str, segment: str, writer: str) -> None:
        """`writer` is like no other that the segment has or had."""
        self._store, self._segment = store, segment
        self._path = f"{prefix}/attempts/{segment}/{writer}"
        self._written = 0
        self._pending: list[AttemptRecord] = []

    def add(self, report: Report, slot: str, final: bool = False) -> None:
        """Keep a report, if it says more than that all went well."""
        if isinstance(report, Failure) or report.log:
            self._pending.append(_record(self._segment, report, slot, final))

    @property
    def dirty(self) -> bool:
        return bool(self._pending)

    def flush(self) -> None:
        batch, self._pending = self._pending, []
        if batch:
            data = b"\n".join(_encode(record) for record in batch) + b"\n"
            self._store.put(f"{self._path}-{self._written:06d}.jsonl", data)
            self._written += 1


def _record(segment: str, report: Outcome | Failure, slot: str, final: bool) -> AttemptRecord:
    known: dict[str, Any] = {
        "segment": segment,
        "partition": report.partition,
        "attempt": report.attempt,
        "time": time.time(),
        "log": report.log.decode("utf-8", "replace"),
        "peak_memory": report.peak_memory,
        "slot": slot,
        "started": report.started,
    }
    if isinstance(report, Failure):
        known |= {
            "failure": str(report.failure),
            "final": final,
            "how": report.how,
            "stage": report.stage,
            "error": report.error,
            "message": report.message,
            "traceback": report.traceback,
        }
    return AttemptRecord(**known)
