"""The summary of a closed segment for the graph: metrics folded in partition order, and totals. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from treadle.executors.program import Outcome
from treadle.primitives.errors import UsageError
from treadle.primitives.result import is_storable

from ...plan.plan import Segment
from ...scheduler.instructions import Summary

METRICS_LIMIT = 16 * 1024
"""Maximum of bytes of a node's metrics, as JSON, since they enter the workflow's history."""

_FOLDS: dict[str, Callable[[Any, Any], Any]] = {"sum": lambda a, b: a + b, "min": min, "max": max}


def summarise(segment: Segment, outcomes: Sequence[Outcome], expected: int) -> Summary:
    """Totals over the committed partitions, in their order."""
    return Summary(
        metrics={stage: _fold(declared, stage, outcomes) for stage, declared in segment.metrics.items() if declared},
        values={stage: value for outcome in outcomes for stage, value in outcome.values.items()},
        partitions=expected,
        rows=sum(outcome.rows for outcome in outcomes),
        size=sum(map(size_of, outcomes)),
        read=reads(outcome.read for outcome in outcomes),
        spilled=sum(outcome.spilled for outcome in outcomes),
        failed_items=sum(count.failed for outcome in outcomes for count in outcome.counts.values()),
    )


def reads(known: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Kind of place -> bytes that were read from there in total."""
    total: Counter[str] = Counter()
    for one in known:
        total.update(one)
    return dict(sorted(total.items()))


def check_metrics(summary: Summary, node: str) -> None:
    """Raises UsageError for metrics that are too large for the history or for a ledger."""
    for stage, metrics in summary.metrics.items():
        for name, value in metrics.items():
            if not is_storable(value):
                raise UsageError(f"{stage}: the metric {name} has more than 64 bits; report floats")
    if (size := len(msgspec.json.encode(summary.metrics))) > METRICS_LIMIT:
        text = f"{node}: its metrics are {size} bytes, more than {METRICS_LIMIT}"
        raise UsageError(f"{text}; write an output instead of a metric")


def _fold(declared: dict[str, str], stage: str, outcomes: Sequence[Outcome]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, kind in declared.items():
        values = [outcome.metrics[stage][name] for outcome in outcomes if name in outcome.metrics.get(stage, {})]
        fold = _FOLDS.get(kind)
        found[name] = None if not values else values[-1] if fold is None else _left(fold, values)
    return found


def _left(fold: Callable[[Any, Any], Any], values: Sequence[Any]) -> Any:
    total = values[0]
    for value in values[1:]:
        total = fold(total, value)
    return total


def size_of(outcome: Outcome) -> int:
    """Bytes of the outcome's block and part."""
    return (outcome.block.size if outcome.block else 0) + (outcome.part.size if outcome.part else 0)
