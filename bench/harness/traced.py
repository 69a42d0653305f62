"""A program whose spans go to a file, a line of JSON each: `python traced.py FILE MODULE [ARGUMENT ...]`."""

from __future__ import annotations

import json
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult


class LinesOfSpans(SpanExporter):
    """Appends (run, name, begin, end) of each span, in nanoseconds since the epoch."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        with self._file.open("a") as file:
            for span in spans:
                run = (span.attributes or {}).get("treadle.run")
                file.write(json.dumps([run, span.name, span.start_time, span.end_time]) + "\n")
        return SpanExportResult.SUCCESS


def record_spans(file: Path) -> None:
    """Set up OpenTelemetry in this process."""
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(LinesOfSpans(file)))
    trace.set_tracer_provider(provider)


if __name__ == "__main__":
    record_spans(Path(sys.argv[1]))
    sys.argv = sys.argv[2:]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
