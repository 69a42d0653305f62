"""Counts and traces through OpenTelemetry's API. Does nothing unless the process has set up an SDK.

Attributes are few, since every combination is a time series: workflow, stage, executor, place; never a run. Runs appear
in traces (`hops`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from treadle.executors.program import Failure, Outcome

from ..plan.plan import Segment
from .hops import trace_of

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, Observation
    from opentelemetry.trace import Span

_log = logging.getLogger(__name__)


class Telemetry:
    """The instruments of one driver."""

    def __init__(self) -> None:
        from opentelemetry import metrics, trace

        self._tracer = trace.get_tracer("treadle")
        self._meter = meter = metrics.get_meter("treadle")
        self._partitions = meter.create_counter(
            "treadle.partitions", "{partition}", "Attempts that ended, by what came of them"
        )
        self._seconds = meter.create_histogram(
            "treadle.partition.duration", "s", "Committed attempts, as workers saw them"
        )
        self._bytes = meter.create_counter("treadle.data", "By", "Blocks and parts written, and blocks read by place")

    def watch_slots(self, counts: Callable[[], Iterable[tuple[str, int, int]]]) -> None:
        """Publish the number of busy slots. `counts` returns (executor, busy slots, all slots), and is called at each
        look."""

        def look(_: CallbackOptions) -> Iterator[Observation]:
            from opentelemetry.metrics import Observation

            for name, busy, slots in counts():
                yield Observation(busy, {"executor": name, "state": "busy"})
                yield Observation(slots - busy, {"executor": name, "state": "idle"})

        self._meter.create_observable_gauge(
            "treadle.slots", [look], "{slot}", "Places where one task at a time can run"
        )

    # -- attempts

    def committed(self, run: str, workflow: str, segment: Segment, outcome: Outcome) -> None:
        """Count a committed partition."""
        where = _where(workflow, segment)
        self._partitions.add(1, where | {"result": "committed"})
        self._seconds.record(outcome.seconds, where)
        for place, count in outcome.read.items():
            self._bytes.add(count, where | {"direction": "read", "place": place})
        for place, count in _written(outcome):
            self._bytes.add(count, where | {"direction": "written", "place": place})
        if _log.isEnabledFor(logging.DEBUG):
            _log.debug("committed", extra=_about(run, segment, outcome) | {"seconds": round(outcome.seconds, 3)})

    def failed(self, run: str, workflow: str, segment: Segment, failure: Failure, *, final: bool) -> None:
        """Count a failed attempt."""
        result = {"result": "failed" if final else "retried", "failure": str(failure.failure)}
        self._partitions.add(1, _where(workflow, segment) | result)
        _log.warning(
            "attempt failed%s: %s: %s",
            " finally" if final else "",
            failure.failure,
            failure.message[:500],
            extra=_about(run, segment, failure) | {"failure": str(failure.failure), "final": final},
        )

    # -- nodes

    @contextmanager
    def node(self, run: str, node: str, attempt: int) -> Iterator[Span]:
        """A running node: a span of the run's trace, and two lines of the log."""
        about = {"run": run, "stage": node}
        _log.info("node begins", extra=about | {"attempt": attempt})
        span = self._tracer.start_span(
            f"node {node}",
            context=trace_of(run),
            attributes={"treadle.run": run, "treadle.node": node, "treadle.attempt": attempt},
        )
        with span:
            yield span
        _log.info("node ends", extra=about)


def _where(workflow: str, segment: Segment) -> dict[str, str]:
    return {"workflow": workflow, "stage": segment.id, "executor": segment.policy.executor}


def _about(run: str, segment: Segment, report: Outcome | Failure) -> dict[str, Any]:
    return {"run": run, "stage": segment.id, "partition": report.partition, "attempt": report.attempt}


def _written(outcome: Outcome) -> Iterator[tuple[str, int]]:
    """(place, bytes) of the block at each location, and of the output part."""
    if outcome.block is not None:
        for location in outcome.block.locations:
            yield location.partition(":")[0], outcome.block.size
    if outcome.part is not None:
        yield "output", outcome.part.size
