"""Examples on emulated Lambda and OpenWhisk, and with `emulate`: the output equals that of local slots, byte for
byte."""

from __future__ import annotations

import asyncio
import os
import runpy
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import emulators.openwhisk
import numpy as np
import pytest
from emulators.lambda_place import lambda_place
from emulators.openwhisk import GENEROUS, SIZES, deploy, openwhisk

from treadle.client.testing import Engine, EngineResult
from treadle.dsl.document.workflow_files import load
from treadle.dsl.validation.inputs import resolve_inputs
from treadle.executors.emulation.invoker import ParityInvoker
from treadle.executors.emulation.provider_limits import EMULATIONS
from treadle.executors.functions.executor import FunctionExecutor
from treadle.executors.functions.invoker import Invoker
from treadle.executors.interface import Executor
from treadle.executors.local.executor import LocalExecutor
from treadle.executors.openwhisk.action import ENTRY
from treadle.executors.openwhisk.client import OpenWhiskClient
from treadle.executors.openwhisk.invoker import OpenWhiskInvoker
from treadle.executors.package.build import Package, build_package
from treadle.executors.package.target import this_machine
from treadle.primitives import sealing
from treadle.primitives.stores.store import Store

EXAMPLES = Path(__file__).parents[2] / "examples"
SLOTS = 3
ROOMY = replace(GENEROUS, code=400 << 20, milliseconds=(100, 900_000))
"""terasort needs ten minutes, wordcount needs Arrow: more time, and a larger zip, than an unchanged installation
allows."""


@cache
def with_arrow() -> Package:
    return build_package(this_machine(), arrow=True, extra=ENTRY)


@contextmanager
def everywhere(folder: Path, arrow: bool = False) -> Iterator[tuple[asyncio.Runner, Engine]]:
    """All places at once: one store, one key, five executors."""
    for part in (folder, folder / "lambda", folder / "openwhisk"):
        part.mkdir(exist_ok=True)
    key_file = str(folder / "key")
    key = sealing.load_or_create_key(key_file)
    local = LocalExecutor(
        run_key=lambda run: sealing.run_key(key, run), slots=2, memory=1 << 30, host_root=str(folder / "host")
    )
    with (
        asyncio.Runner() as runner,
        lambda_place(folder / "lambda") as place,
        openwhisk(folder / "openwhisk", ROOMY) as emulator,
        pytest.MonkeyPatch.context() as patch,
    ):
        for name, value in place.emulator.credentials.items():
            patch.setenv(name, value)
        if arrow:
            patch.setattr(emulators.openwhisk, "action_package", with_arrow)
        place.deploy(key_file, timeout=900)
        deploy(emulator, key_file, seconds=900)
        client = OpenWhiskClient(emulator.endpoint, emulator.key, connections=2 * SLOTS)
        calls: dict[str, Invoker] = {
            "lambda": place.invoker(seconds=900),
            "openwhisk": OpenWhiskInvoker(client, sizes=SIZES, seconds=900),
            "as_lambda": ParityInvoker(EMULATIONS["lambda"], key, os.environ),
            "as_openwhisk": ParityInvoker(EMULATIONS["openwhisk"], key, os.environ),
        }
        executors: dict[str, Executor] = {
            name: FunctionExecutor(name, invoker, key_file=key_file, slots=SLOTS) for name, invoker in calls.items()
        }
        made = Engine(Store.open(f"file://{folder}/store"), {"local": local, **executors}, key, folder / "host")
        yield runner, made
        runner.run(made.site.pools.stop())


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[asyncio.Runner, Engine]]:
    with everywhere(tmp_path_factory.mktemp("functions")) as places:
        yield places


@pytest.fixture(autouse=True)
def own_modules() -> Iterator[None]:
    """Each example has its own functions on the path, and leaves none of them behind."""
    path, known = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - known:
        if str(getattr(sys.modules[name], "__file__", None)).startswith(str(EXAMPLES)):
            del sys.modules[name]


def run(places: tuple[asyncio.Runner, Engine], name: str, executor: str, base: Path, inputs: Any) -> EngineResult:
    """Run an example as with `--executor`."""
    runner, made = places
    sys.path.insert(0, str(EXAMPLES / name))
    spec = load(EXAMPLES / name / f"{name}.yaml").require()
    placed = spec.model_copy(update={"defaults": spec.defaults.model_copy(update={"executor": executor})})
    base.mkdir()
    run_id = made.submit(
        placed, resolve_inputs(spec, inputs), base=base, roots=[EXAMPLES / name], run=f"{name}-{executor}"
    )
    return runner.run(made.run(run_id))


def wordcount(folder: Path) -> dict[str, Any]:
    runpy.run_path(str(EXAMPLES / "wordcount" / "generate.py"))["write_corpus"](folder / "corpus", 2.5, 2)
    return {"corpus": f"{folder}/corpus/*.txt", "partitions": 5}


def terasort(folder: Path) -> dict[str, Any]:
    runpy.run_path(str(EXAMPLES / "terasort" / "generate.py"))["write_records"](folder / "data", 3, 2_001)
    return {"source": f"{folder}/data/rec-*", "target": "out"}


def kmeans(folder: Path) -> dict[str, Any]:
    (folder / "points").mkdir()
    random = np.random.default_rng(7)
    for number in range(3):
        np.save(folder / "points" / f"{number}.npy", random.normal(size=(500, 3)) + 5 * number)
    return {"points": f"{folder}/points/*.npy", "k": 3, "iterations": 3}


def pi(folder: Path) -> dict[str, Any]:
    return {"throws": 4, "points": 10_000}


INPUTS = {"wordcount": wordcount, "terasort": terasort, "kmeans": kmeans, "pi": pi}


def left_by(base: Path, run: str) -> dict[str, bytes]:
    """The content of every written part, by its name without the run's id."""
    files = [path for path in base.rglob("part-*") if path.is_file()]
    return {str(path.relative_to(base)).replace(run, "RUN"): path.read_bytes() for path in files}


def compare(places: tuple[asyncio.Runner, Engine], name: str, executors: Sequence[str], folder: Path) -> None:
    inputs = INPUTS[name](folder)
    found = {}
    for executor in ("local", *executors):
        base = folder / executor
        done = run(places, name, executor, base, inputs)
        outputs = str(done.outputs).replace(done.run, "RUN").replace(str(base), "BASE")
        found[executor] = (left_by(base, done.run), outputs, repr(done.metrics))
    assert found["local"][0] or name == "pi"
    for executor in executors:
        assert found[executor] == found["local"], executor


@pytest.mark.parametrize(
    ("name", "executors"),
    [
        ("wordcount", ["lambda", "as_lambda"]),
        ("terasort", ["lambda", "openwhisk", "as_lambda"]),
        ("kmeans", ["lambda", "openwhisk", "as_openwhisk"]),
        ("pi", ["lambda", "openwhisk", "as_openwhisk"]),
    ],
)
def test_example_leaves_the_same_bytes_on_every_executor(
    name: str, executors: list[str], engine: tuple[asyncio.Runner, Engine], tmp_path: Path
) -> None:
    compare(engine, name, executors, tmp_path)


@pytest.mark.timeout(900)
@pytest.mark.chaos  # 30 s for a package with Arrow, which Parquet needs
def test_wordcount_leaves_the_same_bytes_on_openwhisk(tmp_path: Path) -> None:
    with everywhere(tmp_path / "places", arrow=True) as places:
        compare(places, "wordcount", ["openwhisk"], tmp_path)
