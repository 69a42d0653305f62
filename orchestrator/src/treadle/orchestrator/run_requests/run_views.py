"""Runs as plain values: state, running nodes and end."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from msgspec import Struct

from ..dispatcher.orders import Progress

FOREIGN = "(of another deployment)"
"""The workflow's name of a run whose memo this deployment cannot read."""
State = Literal["running", "succeeded", "failed", "cancelled", "terminated", "timed out", "paused"]


class NodeView(Struct, frozen=True):
    """A running node, from its activity's heartbeat."""

    node: str
    """Empty until the first heartbeat."""
    attempt: int
    """Attempt of the activity; above 1 when a driver was lost."""
    progress: tuple[Progress, ...]
    iteration: str
    last_failure: str


class RunView(Struct, frozen=True):
    """A run from `describe()`, which needs no driver."""

    run: str
    workflow: str
    state: State
    started: datetime
    closed: datetime | None
    resumption: int
    nodes: tuple[NodeView, ...]
    history_events: int
    due: datetime | None = None
    """Start time of a delayed run; None: it has started."""
    labels: dict[str, str] = {}
    """Labels of its workflow; a child run has the labels of its parent."""
    queue: str = ""
    """The task queue, which identifies the run's environment in the embedded default."""

    @property
    def open(self) -> bool:
        return self.state in ("running", "paused")


class RunFailure(Struct, frozen=True):
    """Why a run did not succeed."""

    failure: str
    message: str
    node: str = ""
    details: str = ""
    run: str = ""
    """The child run that has the errors; empty: the run itself."""


class RunEnd(Struct, frozen=True):
    state: State
    outputs: dict[str, Any] = {}
    skipped: tuple[str, ...] = ()
    failure: RunFailure | None = None
