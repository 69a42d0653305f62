"""The hops of a run, from its document to its result, as spans of one trace.

A process records them if it has set up OpenTelemetry's SDK; in any other they cost a look-up, and import nothing. All
spans of a run have one trace and one parent, made from the run's id, in the client, on all drivers and after a crash.
"""

from __future__ import annotations

import hashlib
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def hop(run: str, name: str) -> Iterator[None]:
    """A span around a part of the run, which also ends with an error."""
    began = time.time_ns()
    try:
        yield
    finally:
        passed(run, name, began)


def passed(run: str, name: str, began: int) -> None:
    """A span from `began`, in nanoseconds since the epoch, until now."""
    if "opentelemetry.sdk.trace" in sys.modules:
        from opentelemetry import trace

        span = trace.get_tracer("treadle").start_span(
            name, context=trace_of(run), attributes={"treadle.run": run}, start_time=began
        )
        span.end()


def trace_of(run: str) -> Any:
    """The context of a run's spans."""
    from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, set_span_in_context

    name = hashlib.sha256(run.encode()).digest()
    parent = SpanContext(
        int.from_bytes(name[:16], "big"), int.from_bytes(name[16:24], "big"), True, TraceFlags(TraceFlags.SAMPLED)
    )
    return set_span_in_context(NonRecordingSpan(parent))
