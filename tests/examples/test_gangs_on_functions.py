"""Gangs on local processes and in resident functions of both emulated providers: the same bytes everywhere."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from emulators.lambda_place import lambda_place
from emulators.openwhisk import OpenWhiskPlace, openwhisk
from examples.gang_workflows import MODELS, models
from examples.test_examples_on_functions import ROOMY, left_by, own_modules, run

from treadle.client.testing import Engine
from treadle.executors.functions.executor import FunctionExecutor
from treadle.executors.interface import Executor
from treadle.executors.local.executor import LocalExecutor
from treadle.executors.resident import MEMBERS
from treadle.executors.resident.coordinator_host import Meeting
from treadle.executors.resident.executor import MemberExecutor
from treadle.orchestrator.environment.profile import Profile
from treadle.orchestrator.environment.task_environment import task_variables
from treadle.primitives import sealing
from treadle.primitives.stores.store import Store

__all__ = ["own_modules"]
pytestmark = pytest.mark.timeout(600)
EXECUTORS = ("local", "lambda", "openwhisk")
SIZE = 3


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[asyncio.Runner, Engine]]:
    """Functions of Lambda accept no connections; functions of OpenWhisk do."""
    folder = tmp_path_factory.mktemp("functions")
    for part in ("lambda", "openwhisk"):
        (folder / part).mkdir()
    key_file = str(folder / "key")
    key = sealing.load_or_create_key(key_file)
    executors: dict[str, Executor] = {
        "local": LocalExecutor(
            run_key=lambda run: sealing.run_key(key, run),
            slots=SIZE,
            memory=1 << 30,
            host_root=str(folder / "host"),
            environment=task_variables(Profile()),  # this process may have a setting for OpenBLAS, functions have none
        )
    }
    with (
        asyncio.Runner() as runner,
        lambda_place(folder / "lambda", concurrency=8) as on_lambda,
        openwhisk(folder / "openwhisk", ROOMY) as emulator,
        pytest.MonkeyPatch.context() as patch,
    ):
        for name, value in on_lambda.emulator.credentials.items():
            patch.setenv(name, value)
        for name, place in (("lambda", on_lambda), ("openwhisk", OpenWhiskPlace(emulator))):
            place.deploy(key_file, timeout=120)
            calls = FunctionExecutor(name, place.invoker(seconds=120), key_file=key_file, slots=SIZE)
            meeting = Meeting("tcp://127.0.0.1:0", inbound=name == "openwhisk")
            executors[name] = calls
            executors[f"{name}{MEMBERS}"] = MemberExecutor(calls.means, meeting, key_file=key_file, slots=SIZE)
        made = Engine(Store.open(f"file://{folder}/store"), executors, key, folder / "host")
        yield runner, made
        runner.run(made.site.pools.stop())


def test_models_of_gangs_are_the_same_bytes_on_every_executor(
    places: tuple[asyncio.Runner, Engine], tmp_path: Path
) -> None:
    runner, engine = places
    sys.path.insert(0, str(MODELS))
    found = {}
    for executor in EXECUTORS:
        base = tmp_path / executor
        base.mkdir()
        name = engine.submit(models(executor, SIZE), {}, base=base, roots=[MODELS], run=f"models-{executor}")
        runner.run(engine.run(name))
        found[executor] = left_by(base, name)
    assert len(found["local"]) == 2 * SIZE
    assert found["lambda"] == found["openwhisk"] == found["local"]


def test_gang_example_has_the_same_result_on_every_executor(
    places: tuple[asyncio.Runner, Engine], tmp_path: Path
) -> None:
    inputs = {"rows": 5_000, "steps": 20, "rate": 0.2}
    found = [run(places, "gang", executor, tmp_path / executor, inputs) for executor in EXECUTORS]
    for done in found:
        assert repr(done.outputs) == repr(found[0].outputs)
        assert repr(done.datasets["model"]) == repr(found[0].datasets["model"])
