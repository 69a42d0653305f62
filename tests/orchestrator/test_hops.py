"""The hops of a run are spans of one trace, from its client and from its driver."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import pytest
from eventually import eventually

from treadle.orchestrator import embedded
from treadle.orchestrator.environment.home import Home

TRACED = """
import json, sys
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult

class Lines(SpanExporter):
    def export(self, spans):
        with open(file, "a") as lines:
            for one in spans:
                about = {"trace": f"{one.context.trace_id:032x}", "began": one.start_time, "ended": one.end_time}
                print(json.dumps({"name": one.name, "run": one.attributes["treadle.run"], **about}), file=lines)
        return SpanExportResult.SUCCESS

file = sys.argv.pop(1)
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(Lines()))
trace.set_tracer_provider(provider)
"""
DRIVER = "import runpy; runpy.run_module('treadle.orchestrator.temporal.driver', run_name='__main__', alter_sys=True)"
CLIENT = """
from treadle.client import Client
from treadle.dsl import Workflow, range_
wf = Workflow("hops")
wf.map("double", range_(3), uses=lambda value: 2 * value)
with Client(home=sys.argv[1]) as client:
    print(client.run(wf).id)
"""
OF_CLIENT = ["read document", "bundle", "plan", "write submission", "start"]
OF_DRIVER = ["open run", "open double", "tasks double", "commit double", "close double"]


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


def test_hops_of_a_run_are_in_one_trace_and_follow_each_other(home: Home, tmp_path: Path) -> None:
    spans = tmp_path / "spans"
    command = [sys.executable, "-c", TRACED + DRIVER, str(spans), "--embedded", "--home", str(home.path)]
    driver = subprocess.Popen(command)
    try:
        eventually(lambda: (state := embedded.running_driver(home)) is not None and state.ready)
        command = [sys.executable, "-c", TRACED + CLIENT, str(spans), str(home.path)]
        run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout.strip()
    finally:
        embedded.down(home)
        driver.wait(60)
    found = [json.loads(line) for line in spans.read_text().splitlines()]
    assert {one["run"] for one in found} == {run}
    assert {one["trace"] for one in found} == {hashlib.sha256(run.encode()).hexdigest()[:32]}
    hops = {one["name"]: one for one in found}
    assert set(hops) == {*OF_CLIENT, *OF_DRIVER, "node double", "wait"}
    began = [hops[name]["began"] for name in OF_CLIENT + OF_DRIVER]
    assert began == sorted(began)
    assert all(one["began"] <= one["ended"] <= hops["wait"]["ended"] for one in found)
