"""Metrics of triggers: the current reports of a service, at each scrape.

Labels: `workflow`, `trigger`, `type`. An unknown number has no sample.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, Observation

COUNTERS = {
    "received": "Records of Kafka that were judged",
    "started": "Runs that were started",
    "repeated": "Starts that found their run there: the event had been delivered before",
    "filtered": "Records of Kafka that the filter passed over",
    "dead": "Dead letters",
}
GAUGES = {
    "active": "Runs that are open",
    "lag": "Events that wait",
}


class TriggerHealth(Protocol):
    """The state of a trigger."""

    @property
    def workflow(self) -> str: ...
    @property
    def trigger(self) -> str: ...
    @property
    def type(self) -> str: ...
    @property
    def state(self) -> str: ...
    @property
    def since(self) -> float:
        """Time of the first occurrence of its error, in seconds since the epoch; 0: no error."""

    def measured(self, name: str) -> int | None:
        """One of COUNTERS and GAUGES; None: unknown, or not counted for the type."""


def watch_triggers(statuses: Callable[[], Iterable[TriggerHealth]]) -> None:
    """Export `treadle.trigger.*`; `statuses` is called at each scrape."""
    from opentelemetry import metrics

    meter = metrics.get_meter("treadle")
    for name, about in COUNTERS.items():
        meter.create_observable_counter(f"treadle.trigger.{name}", [_looking(statuses, _measured(name))], "1", about)
    for name, about in GAUGES.items():
        meter.create_observable_gauge(f"treadle.trigger.{name}", [_looking(statuses, _measured(name))], "1", about)
    since = _looking(statuses, lambda one: one.since)
    meter.create_observable_gauge(
        "treadle.trigger.failing.since", [since], "s", "Since when it has an error; 0: it has none"
    )
    meter.create_observable_gauge("treadle.trigger.state", [_states(statuses)], "1", "1 for the state that it is in")


def _measured(name: str) -> Callable[[TriggerHealth], float | None]:
    return lambda one: one.measured(name)


def _looking(
    statuses: Callable[[], Iterable[TriggerHealth]], number: Callable[[TriggerHealth], float | None]
) -> Callable[[CallbackOptions], Iterator[Observation]]:
    def look(_: CallbackOptions) -> Iterator[Observation]:
        from opentelemetry.metrics import Observation

        for one in statuses():
            if (found := number(one)) is not None:
                yield Observation(found, _labels(one))

    return look


def _states(statuses: Callable[[], Iterable[TriggerHealth]]) -> Callable[[CallbackOptions], Iterator[Observation]]:
    def look(_: CallbackOptions) -> Iterator[Observation]:
        from opentelemetry.metrics import Observation

        for one in statuses():
            yield Observation(1, {**_labels(one), "state": one.state})

    return look


def _labels(one: TriggerHealth) -> dict[str, str]:
    return {"workflow": one.workflow, "trigger": one.trigger, "type": one.type}
