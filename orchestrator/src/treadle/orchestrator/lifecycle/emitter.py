"""Emits the lifecycle events of a run's activities. Does nothing without `lifecycle` in the profile.

Nothing here can fail a run. Events that were given up are kept in the run's record (`untold/` in its folder of the
store), and sent again when the run ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Sequence
from typing import Any, Concatenate, ParamSpec

from treadle.primitives.asyncio_tasks import spawn
from treadle.primitives.errors import TreadleError
from treadle.primitives.events import Event

from ..dispatcher.driver_context.run_context import DriverContext, RunContext
from ..dispatcher.orders import NodeOrder
from ..plan.plan import Graph
from ..protocol.messages import Ending, NodeReport, RunStart
from ..run_store.run_files import Submission
from ..scheduler.instructions import Problem
from .delivery import Announcer, settle, untold_of
from .events import About, ended, failure, run_news, stage_done, stage_news

_log = logging.getLogger("treadle.lifecycle")


P = ParamSpec("P")


def _harmless(
    tell: Callable[Concatenate[Telling, P], Coroutine[Any, Any, None]],
) -> Callable[Concatenate[Telling, P], Coroutine[Any, Any, None]]:
    """Suppresses every error of an emitting method, since a receiver's failure must not fail the run. Off: does
    nothing."""

    @functools.wraps(tell)
    async def harmless(self: Telling, /, *args: P.args, **kwargs: P.kwargs) -> None:
        try:
            if self.on:
                await tell(self, *args, **kwargs)
        except Exception:  # noqa: BLE001  # a defect here, too
            _log.exception("events are untold, and that is not on record")

    return harmless


class Telling:
    """Emits events for the runs of a driver. `announcer`: None if the profile has no `lifecycle`."""

    def __init__(self, site: DriverContext, announcer: Announcer | None) -> None:
        self._site, self._announcer = site, announcer

    @property
    def on(self) -> bool:
        return self._announcer is not None

    @_harmless
    async def run_started(self, start: RunStart) -> None:
        """Emit that the run is planned and starts."""
        about = self._about(await self._run(start.run), start.resumption)
        await self._tell(about.run, [run_news(about, "started", time.time())])

    @_harmless
    async def run_refused(self, start: RunStart, started: str, problem: Problem) -> None:
        """Emit that the run has failed because it cannot be planned."""
        about = About(start.run, await asyncio.to_thread(self._workflow, start.run), start.resumption, started)
        await self._tell(start.run, [run_news(about, "failed", time.time(), **ended(None, (), problem))])

    @_harmless
    async def run_ended(self, ending: Ending) -> None:
        """Emit the end of the run, and send again the events that were given up before."""
        run = await self._run(ending.run)
        about = self._about(run, ending.resumption)
        outputs = ending.outputs if ending.state == "completed" else None
        more = ended(outputs, tuple(ending.skipped), ending.problem)
        news = [*self._points(run, about, ending.passed), run_news(about, ending.state, time.time(), **more)]
        kept = [one.event for one in await asyncio.to_thread(untold_of, run.files)]
        await self._tell(run.id, [*kept, *news], kept)

    @contextlib.asynccontextmanager
    async def node(self, order: NodeOrder) -> AsyncIterator[Callable[[NodeReport], None]]:
        """A context around the work of a node. It yields a function that takes the node's report before the context
        ends.

        The work does not wait for the delivery of its start event.
        """
        if not self.on:
            yield lambda _: None
            return
        reports: list[NodeReport] = []
        beginning = spawn(self._node_begins(order))
        try:
            yield reports.append
        except BaseException:
            beginning.cancel()
            raise
        await beginning
        for report in reports:
            await self._node_ends(order, report)

    # -- parts

    @_harmless
    async def _node_begins(self, order: NodeOrder) -> None:
        run = await self._run(order.run)
        about = self._about(run, order.resumption)
        stages = begun_with(run.plan.graph, order.node) if order.group < 0 else ()
        begun = [stage_news(about, "started", stage, time.time()) for stage in stages]
        await self._tell(run.id, [*self._points(run, about, order.passed), *begun])

    @_harmless
    async def _node_ends(self, order: NodeOrder, report: NodeReport) -> None:
        run = await self._run(order.run)
        about = self._about(run, order.resumption)
        await self._tell(run.id, self._ends(run, about, order.node, report))

    def _ends(self, run: RunContext, about: About, node: str, report: NodeReport) -> list[Event]:
        """The events at the end of a node: none if it was stopped or lost its input."""
        stages = run.plan.graph.node(node).stages
        if (summary := report.summary) is not None:
            over = ended_with(run.plan.graph, node)
            done = ((stage, stage_done(stage, summary, stage == stages[-1])) for stage in over)
            return [stage_news(about, "completed", stage, time.time(), **more) for stage, more in done]
        if report.problem is not None:
            why = failure(report.problem)
            return [stage_news(about, "failed", stage, time.time(), failure=why) for stage in stages]
        return []

    def _points(self, run: RunContext, about: About, nodes: Iterable[str]) -> list[Event]:
        """The events of barriers, which begin and end at once, without an activity of their own."""
        stages = [stage for node in nodes for stage in run.plan.graph.node(node).stages]
        return [stage_news(about, what, stage, time.time()) for stage in stages for what in ("started", "completed")]

    async def _run(self, run: str) -> RunContext:
        return await asyncio.to_thread(self._site.open, run)

    def _about(self, run: RunContext, resumption: int) -> About:
        return About(run.id, str(run.submission.spec["name"]), resumption, run.plan.started)

    def _workflow(self, run: str) -> str:
        try:
            return str(self._site.files(run).load(Submission, "spec").spec["name"])
        except TreadleError:
            return "unknown"

    async def _tell(self, run: str, news: Sequence[Event], kept: Sequence[Event] = ()) -> None:
        """Send events, then update the record of undelivered ones. `kept`: the events already on that record."""
        assert self._announcer is not None
        untold = await self._announcer.tell(news) if news else []
        await asyncio.to_thread(settle, self._site.files(run), untold, kept)


def begun_with(graph: Graph, node: str) -> tuple[str, ...]:
    """Stages that begin with this node.

    A stage may need several nodes (`total.leaves`, `total.level1`, `total`), and a node may be several fused stages.
    The nodes of one stage are a chain, so the stage begins with the first of them and ends with the last.
    """
    return tuple(stage for stage in graph.node(node).stages if graph.nodes_of(stage)[0].id == node)


def ended_with(graph: Graph, node: str) -> tuple[str, ...]:
    """Stages that end with this node."""
    return tuple(stage for stage in graph.node(node).stages if graph.nodes_of(stage)[-1].id == node)
