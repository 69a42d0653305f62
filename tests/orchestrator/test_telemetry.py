"""Telemetry for operators: metrics in Prometheus, one trace for a run, log lines with the same fields."""

from __future__ import annotations

import io
import json
import logging
import re
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from treadle.orchestrator.telemetry.logs import JsonLines, TextLines
from treadle.orchestrator.telemetry.metrics_server import metrics_page
from treadle.primitives.errors import UsageError

DRIVER = """
import json, sys, urllib.request
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from treadle.executors.program import Failure, ItemSplit, Keep, Outcome
from treadle.orchestrator.plan.plan import ItemsFeed, Policy, Segment
from treadle.orchestrator.telemetry.instruments import Telemetry
from treadle.orchestrator.telemetry.metrics_server import metrics_page
from treadle.primitives.errors import FailureClass

spans = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(spans))
trace.set_tracer_provider(provider)
segment = Segment("count", ("count",), ItemsFeed((), ()), (), Keep(), Policy(executor="lambda"))

with metrics_page("127.0.0.1:0") as page:
    telemetry = Telemetry()
    telemetry.watch_slots(lambda: [("lambda", 2, 5)])
    for partition in range(3):
        done = Outcome(partition, 1, "objects", 7, seconds=0.5, read={"store": 100, "inline": 3})
        telemetry.committed("run-1", "words", segment, done)
    failure = Failure(3, 1, FailureClass.WORKER_LOST, "a test", message="gone")
    telemetry.failed("run-1", "words", segment, failure, final=False)
    for run, node in (("run-1", "a"), ("run-1", "b"), ("run-2", "a")):
        with telemetry.node(run, node, 1):
            pass
    text = urllib.request.urlopen(page).read().decode()
traces = [(span.attributes["treadle.run"], span.context.trace_id) for span in spans.get_finished_spans()]
print(json.dumps({"text": text, "traces": traces}))
"""


def in_a_process_of_its_own(code: str) -> dict[str, object]:
    """Runs code in another process, since OpenTelemetry's SDK is set up once for a process."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, object] = json.loads(done.stdout)
    return found


@pytest.fixture(scope="module")
def seen() -> dict[str, object]:
    return in_a_process_of_its_own(DRIVER)


def samples(seen: dict[str, object], name: str) -> dict[frozenset[str], float]:
    """Labels of treadle with values -> value."""
    lines = re.findall(rf"^{name}\{{(.*)\}} (\S+)$", str(seen["text"]), re.MULTILINE)
    return {
        frozenset(label for label in re.findall(r'\w+="[^"]+"', labels) if not label.startswith("otel_")): float(value)
        for labels, value in lines
    }


COUNT = {'workflow="words"', 'stage="count"', 'executor="lambda"'}


def test_every_attempt_is_counted_with_what_came_of_it(seen: dict[str, object]) -> None:
    assert samples(seen, "treadle_partitions_total") == {
        frozenset({*COUNT, 'result="committed"'}): 3,
        frozenset({*COUNT, 'result="retried"', 'failure="worker lost"'}): 1,
    }
    assert samples(seen, "treadle_partition_duration_seconds_sum") == {frozenset(COUNT): 1.5}


def test_bytes_are_counted_by_the_place_they_came_from(seen: dict[str, object]) -> None:
    found = samples(seen, "treadle_data_bytes_total")
    assert found[frozenset({*COUNT, 'direction="read"', 'place="store"'})] == 300
    assert found[frozenset({*COUNT, 'direction="read"', 'place="inline"'})] == 9


def test_slots_are_busy_or_idle(seen: dict[str, object]) -> None:
    found = samples(seen, "treadle_slots")
    assert {key & {'state="busy"', 'state="idle"'}: value for key, value in found.items()} == {
        frozenset({'state="busy"'}): 2,
        frozenset({'state="idle"'}): 3,
    }


def test_no_time_series_is_made_for_a_run(seen: dict[str, object]) -> None:
    assert "run-1" not in str(seen["text"])


def test_nodes_of_a_run_are_in_one_trace(seen: dict[str, object]) -> None:
    traces = seen["traces"]
    assert isinstance(traces, list)
    by_run = {run: {trace for name, trace in traces if name == run} for run, _ in traces}
    assert [len(ids) for ids in by_run.values()] == [1, 1]
    assert by_run["run-1"] != by_run["run-2"]


@pytest.mark.parametrize("address", ["9464", "127.0.0.1:", "127.0.0.1:high", "127.0.0.1:99999"])
def test_an_address_that_is_none_is_refused(address: str) -> None:
    with pytest.raises(UsageError, match="no address"), metrics_page(address):
        pass


def test_port_in_use_is_reported() -> None:
    code = """
import json, socket
from treadle.orchestrator.telemetry.metrics_server import metrics_page
from treadle.primitives.errors import UsageError
with socket.create_server(("127.0.0.1", 0)) as taken:
    try:
        metrics_page(f"127.0.0.1:{taken.getsockname()[1]}").__enter__()
    except UsageError as error:
        print(json.dumps({"message": str(error)}))
"""
    assert "Choose another port" in str(in_a_process_of_its_own(code)["message"])


# -- logs


def logged(formatter: logging.Formatter, **extra: object) -> str:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(formatter)
    logger = logging.Logger("treadle.test")
    logger.addHandler(handler)
    logger.warning("attempt %s", "failed", extra=extra)
    return stream.getvalue()


def test_json_lines_carry_the_fields_that_are_there_and_no_others() -> None:
    line = json.loads(logged(JsonLines(), run="r", stage="s", partition=3, attempt=1, other="x"))
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line.pop("time"))
    assert line == {
        "level": "warning",
        "logger": "treadle.test",
        "message": "attempt failed",
        "run": "r",
        "stage": "s",
        "partition": 3,
        "attempt": 1,
    }


def test_text_lines_end_with_their_fields() -> None:
    line = logged(TextLines(), run="r", partition=0)
    assert re.fullmatch(r"\d\d:\d\d:\d\d WARNING attempt failed run=r partition=0\n", line)


def test_a_worker_serves_its_metrics_and_its_log(tmp_path: Path) -> None:
    arguments = ["--metrics", "127.0.0.1:0", "--log", "json", "--log-level", "info", "--max-tasks", "1"]
    command = [sys.executable, "-c", "from treadle.cli import main; main()", "worker", *arguments]
    environ = {"TREADLE_HOME": str(tmp_path / "home"), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    with subprocess.Popen(command, env=environ, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            found = None
            while found is None:
                line = process.stderr.readline()
                assert line, "the worker has ended"
                found = re.search(r"metrics at (http://\S+?);", line)
            text = ""
            while "treadle_slots" not in text:
                assert process.poll() is None
                text = urllib.request.urlopen(found[1], timeout=10).read().decode()
            assert 'executor="local"' in text
        finally:
            process.terminate()
            process.wait(30)
            subprocess.run([*command[:3], "dev", "down"], env=environ, check=False, capture_output=True, timeout=60)
