"""A run at one moment: its state, its stages, and its end."""

from __future__ import annotations

import asyncio
from html import escape
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from treadle.orchestrator.run_requests.run_views import RunEnd, RunView, State

from .attempt_logs import LogFollower, grouped
from .errors import RunFailed, WorkerError
from .progress import Painter, StageView

if TYPE_CHECKING:
    from treadle.dsl.graph.drawing import Figure

    from .client import Runs
    from .environment import ClientEnvironment

_COLOURS = {"done": "#2e7d32", "running": "#1565c0", "failed": "#c62828", "stopped": "#ef6c00", "skipped": "#9e9e9e"}


class RunStatus(Struct, frozen=True):
    """A run at one moment."""

    view: RunView
    stages: tuple[StageView, ...]
    """The nodes of the plan in its order; empty until a driver has opened the run."""
    end: RunEnd | None = None
    """None while the run is open."""
    edges: tuple[tuple[str, str], ...] = ()
    """(node, node that needs it) in the plan."""

    @property
    def run(self) -> str:
        """The id of the run."""
        return self.view.run

    @property
    def state(self) -> State:
        """`running`, `paused`, `succeeded`, `failed`, `cancelled`, `terminated` or `timed out`."""
        return self.view.state

    @property
    def open(self) -> bool:
        """Whether the run has not ended."""
        return self.view.open

    @property
    def outputs(self) -> dict[str, Any]:
        """The outputs that the workflow declares; empty unless the run has succeeded."""
        return self.end.outputs if self.end else {}

    def _repr_html_(self) -> str:
        return _html(self)


class StatusReader:
    """Reads the status of one run repeatedly. Closed segments are read once."""

    def __init__(self, env: ClientEnvironment, runs: Runs, run: str) -> None:
        self._runs, self._run = runs, run
        self.painter = Painter(env.files(run), env.files)

    async def read(self, view: RunView | None = None, end: RunEnd | None = None) -> RunStatus:
        """`view`, `end`: the state and the end of the run, if they are known. Raises NoSuchRun, Unreachable."""
        view = view or await self._runs.view(self._run)
        end = None if view.open else end or await self._runs.end(self._run)
        if end is not None:
            self.painter.forget()
        stages = await asyncio.to_thread(self.painter.stages, view, end)
        nodes = self.painter.plan.graph.nodes if self.painter.plan else ()
        edges = tuple((need, node.id) for node in nodes for need in (*node.data, *node.after))
        return RunStatus(view, tuple(stages), end, edges)


def failure(env: ClientEnvironment, run: str, end: RunEnd) -> RunFailed:
    """The error for a run that ended without success, with the worker's traceback as its cause. Blocking."""
    known = end.failure
    if known is None:
        return RunFailed(run, end.state, "", "")
    error = RunFailed(run, end.state, known.failure, known.message, known.node)
    groups = grouped(LogFollower(env.files(known.run or run)).new())
    final = next((group for group in groups if group.final), None)
    if final is not None:
        error.__cause__ = WorkerError(final.error, final.message, final.details)
    return error


def _html(status: RunStatus) -> str:
    """The state, the failure, and the graph of the plan with the state of each node."""
    from treadle.dsl.graph.drawing import svg  # late: it imports the model of documents

    failure = status.end.failure if status.end else None
    why = f": {failure.failure}: {failure.message}" if failure else ""
    head = f"<div><b>{escape(status.run)}</b> {escape(status.state + why)}</div>"
    known = {stage.node for stage in status.stages}
    edges = [edge for edge in status.edges if known.issuperset(edge)]
    return head + svg([_figure(stage) for stage in status.stages], edges)


def _figure(stage: StageView) -> Figure:
    from treadle.dsl.graph.drawing import Figure

    count = f", {stage.committed} of {stage.partitions}" if stage.partitions else ""
    title = ", ".join(stage.stages) or stage.node
    return Figure(stage.node, title, f"{stage.state}{count}", _COLOURS.get(stage.state, "#757575"))
