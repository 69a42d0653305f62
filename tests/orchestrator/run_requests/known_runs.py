"""A RunService with known answers."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any, TypeVar

from treadle.orchestrator.dispatcher.orders import Progress
from treadle.orchestrator.environment.connection_errors import Unreachable
from treadle.orchestrator.run_requests import requests as r
from treadle.orchestrator.run_requests.run_views import NodeView, RunEnd, RunView
from treadle.primitives.errors import CorruptError, MissingError, UsageError

A = TypeVar("A")
NODE = NodeView("words", 2, (Progress("words", 4, 1, 0, 1, 2, 100),), "2/5", "its driver is dead")
VIEW = RunView(
    "known", "wordcount", "paused", datetime(2026, 1, 31, 4, 5, 6, 789000, UTC), None, 3, (NODE,), 17, labels={"a": "b"}
)
END = RunEnd("succeeded", {"count": 2**80, "mean": 0.1, "text": "caf\u00e9", "rows": [None, {"a": True}]}, ("late",))
ANSWERS: dict[type, Any] = {
    r.ViewRun: VIEW,
    r.FindRun: True,
    r.ReadMemo: {"trigger": "orders.live"},
    r.ListRuns: r.RunPage((VIEW, VIEW), b"\x00next"),
    r.AwaitEnd: END,
    r.CountDrivers: 2,
    r.StartRun: False,
    r.CancelRun: None,
    r.TerminateRun: None,
    r.SteerRun: None,
}
REQUESTS: tuple[Any, ...] = (
    r.ViewRun("known"),
    r.FindRun("known"),
    r.ReadMemo("known"),
    r.ListRuns("WorkflowType = 'treadle.run'", 50, b"\xffthere"),
    r.AwaitEnd("known"),
    r.CountDrivers("treadle", "embedded driver"),
    r.StartRun({"run": "known", "digest": "0"}, "wordcount", "treadle", {"n": 2**70}, after="none", delay=0.5),
    r.CancelRun("known", "Ctrl-C"),
    r.TerminateRun("known", "why"),
    r.SteerRun("known", "limit", "words", 4),
)
ERRORS = {
    "corrupt": CorruptError("the result is forged", "See SECURITY.md."),
    "none": r.NoSuchRun("there is no run none", "See: treadle list"),
    "refuses": UsageError("run refuses: no", "See: treadle show refuses"),
    "silent": Unreachable("no driver answers", "Start one."),
    "unlisted": MissingError("no class of the wire", "A hint."),
    "defect": ZeroDivisionError("division by zero"),
}


class KnownRuns:
    """Answers with ANSWERS, fails for the runs of ERRORS, and never answers for the run `endless`."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.cancelled = 0

    async def ask(self, request: r.RunRequest[A]) -> A:
        self.asked.append(request)
        run = getattr(request, "run", "")
        if run in ERRORS:
            raise ERRORS[run]
        if run == "endless" or getattr(request, "workflow", "") == "endless":
            await self._wait()
        answer: A = ANSWERS[type(request)]
        return answer

    async def _wait(self) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            self.cancelled += 1


async def refused() -> r.RunService:
    raise AssertionError("the driver was not asked")
