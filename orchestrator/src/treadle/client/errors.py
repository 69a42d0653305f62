"""Errors of runs that did not succeed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from treadle.primitives.errors import TreadleError

if TYPE_CHECKING:
    from treadle.orchestrator.run_requests.run_views import State


class WorkerError(Exception):
    """The exception that user code raised in a worker; its text is the worker's traceback."""

    def __init__(self, error: str, message: str, traceback: str) -> None:
        """`error` is the name of the exception's class, `message` its text."""
        super().__init__(traceback)
        self.error, self.message, self.traceback = error, message, traceback

    def __str__(self) -> str:
        return f"\n{self.traceback.rstrip()}"


class RunFailed(TreadleError):
    """A run ended without success. Its `__cause__` is the WorkerError of the most frequent failure, if there is one."""

    def __init__(self, run: str, state: State, failure: str, message: str, stage: str = "") -> None:
        """`failure` is a `treadle.primitives.FailureClass`, empty for a cancelled run; `stage`: where it failed."""
        why = f": {failure}: {message}" if message else ""
        super().__init__(f"run {run} {state}{why}", f"See: treadle logs {run}")
        self.run, self.state, self.failure, self.stage = run, state, failure, stage
