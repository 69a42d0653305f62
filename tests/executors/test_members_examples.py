"""Examples on resident functions: the output equals that of local slots, byte for byte."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from emulators.lambda_place import lambda_place
from examples.test_examples_on_functions import EXAMPLES, INPUTS, left_by, run

from treadle.client.testing import Engine
from treadle.executors.functions.executor import FunctionExecutor
from treadle.executors.interface import Executor
from treadle.executors.local.executor import LocalExecutor
from treadle.executors.resident import MEMBERS
from treadle.executors.resident.coordinator_host import Meeting
from treadle.executors.resident.executor import MemberExecutor
from treadle.primitives import sealing
from treadle.primitives.stores.store import Store

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(600)]
SLOTS = 3


@pytest.fixture(params=[True, False], ids=["dialled", "not dialled"])
def places(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[tuple[asyncio.Runner, Engine]]:
    key_file = str(tmp_path / "key")
    key = sealing.load_or_create_key(key_file)
    local = LocalExecutor(
        run_key=lambda run: sealing.run_key(key, run), slots=2, memory=1 << 30, host_root=str(tmp_path / "host")
    )
    (tmp_path / "lambda").mkdir()
    with asyncio.Runner() as runner, lambda_place(tmp_path / "lambda", concurrency=8) as place:
        for name, value in place.emulator.credentials.items():
            monkeypatch.setenv(name, value)
        place.deploy(key_file, timeout=900)
        calls = FunctionExecutor("lambda", place.invoker(seconds=900), key_file=key_file, slots=SLOTS)
        meeting = Meeting("tcp://127.0.0.1:0", inbound=request.param)
        staying = MemberExecutor(calls.means, meeting, key_file=key_file, slots=SLOTS)
        executors: dict[str, Executor] = {"local": local, "functions": calls, f"functions{MEMBERS}": staying}
        made = Engine(Store.open(f"file://{tmp_path}/store"), executors, key, tmp_path / "host")
        path, known = list(sys.path), set(sys.modules)
        yield runner, made
        runner.run(made.site.pools.stop())
        sys.path[:] = path
        for name in set(sys.modules) - known:
            if str(getattr(sys.modules[name], "__file__", None)).startswith(str(EXAMPLES)):
                del sys.modules[name]


@pytest.mark.parametrize("name", ["wordcount", "terasort", "kmeans", "pi"])
def test_example_leaves_the_same_bytes_on_members(
    name: str, places: tuple[asyncio.Runner, Engine], tmp_path: Path
) -> None:
    inputs = INPUTS[name](tmp_path)
    found = {}
    for executor in ("local", "functions"):
        base = tmp_path / executor
        done = run(places, name, executor, base, inputs)
        outputs = str(done.outputs).replace(done.run, "RUN").replace(str(base), "BASE")
        found[executor] = (left_by(base, done.run), outputs, repr(done.metrics))
    assert found["functions"] == found["local"]
    plan = places[1].site.open(f"{name}-functions").plan
    assert name == "pi" or f"functions{MEMBERS}" in plan.executors
