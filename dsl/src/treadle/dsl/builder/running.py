"""Runs a Workflow from a script or notebook through the installed client.

The language does not know the client, which stands above it. The client's distribution names itself as the entry point
`treadle.client`.
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import entry_points
from typing import Any, Protocol

from treadle.primitives.errors import UsageError

ENTRY_POINTS = "treadle.client"


class WorkflowRun(Protocol):
    """A run that a Workflow started: `treadle.client.Run`."""

    id: str

    @property
    def outputs(self) -> dict[str, Any]:
        """The outputs that the workflow declares. Waits for the end of the run."""

    def wait(self) -> WorkflowRun:
        """Wait for the end of the run."""

    def stage(self, name: str) -> Any:
        """The results of a stage: `records()`, `table()`, `array()`."""


@cache
def client() -> Any:
    """The client that all workflows of this process share. Raises UsageError when none is installed."""
    for point in entry_points(group=ENTRY_POINTS):
        return point.load()()
    raise UsageError("no client is installed that could run a workflow", "Install treadle-orchestrator.")
