"""Gangs on resident functions: each member in a function of its own, with the result of local processes."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from emulators.lambda_place import LambdaPlace, lambda_place
from emulators.openwhisk import GENEROUS, OpenWhiskPlace, openwhisk
from executors.members_rig import MEETING, MODULE, Provider, Rig

from treadle.dsl.model import Spec
from treadle.executors.resident import lifetime
from treadle.orchestrator.dispatcher.ledger.ledger import Failed, read
from treadle.primitives.channels.gang import CHANNELS

UNDIALLED = msgspec.structs.replace(MEETING, inbound=False)
APART = msgspec.structs.replace(MEETING, inbound=False, direct=False)
"""The defaults of Lambda: members hold no blocks."""
WAYS = {"dialled": MEETING, "not dialled": UNDIALLED, "without blocks": APART}
MEMBERS = 3
FUNCTIONS = """
import hashlib
import os
import time

import numpy as np

from treadle.primitives.channels import Barrier, BroadcastChannel, ReduceChannel, ShuffleChannel

def train(records, *, rounds, size, kill=""):
    mine = list(records)
    first = 0 in mine
    with (
        BroadcastChannel("data") as data,
        ReduceChannel("sums", np.add) as sums,
        BroadcastChannel("center") as centers,
    ):
        if first:
            data.send(np.arange(size, dtype=np.int64))
            points = np.arange(size, dtype=np.int64)
        else:
            points = data.receive()
        center = 0
        for number in range(rounds):
            if kill and number == rounds // 2:
                open(f"{kill}/{mine[0]}", "a").close()
                while not os.path.exists(f"{kill}/go"):
                    time.sleep(0.02)
            total = sums.reduce(points * mine[0] + center)
            if total is None:
                center = int(centers.receive())
            else:
                center = int(total[::7].sum()) % 1009
                centers.send(center)
    with ShuffleChannel("odd") as pairs:
        pieces = pairs.send_receive(points + center, lambda rows: rows)
    Barrier("end").wait()
    yield center, [hashlib.sha256(piece).hexdigest() for piece in pieces]

def slow(records):
    time.sleep(0.2)
    yield from records
"""


def workflow(size: int, members: int = MEMBERS, **more: Any) -> Spec:
    """A gang of `members` functions that exchange arrays of `size` integers; `more`: further arguments."""
    stages = {
        "train": {
            "type": "map",
            "input": {"range": members, "partitions": members},
            "per": "partition",
            "flat": True,
            "uses": f"{MODULE}:train",
            "with": {"rounds": 8, "size": size, **more},
            "gang": members,
        },
        "after": {"type": "map", "input": "train", "per": "partition", "flat": True, "uses": f"{MODULE}:slow"},
    }
    defaults = {"executor": "functions", "retry": {"maximumAttempts": 1}, "backups": False}
    return Spec.model_validate({"apiVersion": "treadle/v1", "name": "gangs", "stages": stages, "defaults": defaults})


@contextmanager
def on_lambda(folder: Path) -> Iterator[LambdaPlace]:
    with lambda_place(folder, concurrency=8) as place:
        yield place


@contextmanager
def on_openwhisk(folder: Path) -> Iterator[OpenWhiskPlace]:
    with openwhisk(folder, GENEROUS) as emulator:
        yield OpenWhiskPlace(emulator)


@pytest.fixture(scope="module", params=[on_lambda, on_openwhisk], ids=["lambda", "openwhisk"])
def functions(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Provider]:
    with request.param(tmp_path_factory.mktemp("functions")) as place:
        yield place


@pytest.fixture
async def rig(
    tmp_path: Path, functions: Provider, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> AsyncIterator[Rig]:
    if isinstance(functions, LambdaPlace):
        for name, value in functions.emulator.credentials.items():
            monkeypatch.setenv(name, value)
        functions.emulator.settle()
    meeting = WAYS[getattr(request, "param", "dialled")]
    made = Rig(functions, tmp_path, slots=4, meeting=meeting, functions=FUNCTIONS)
    monkeypatch.syspath_prepend(tmp_path / "project")
    monkeypatch.delitem(sys.modules, MODULE, raising=False)
    yield made
    await made.stop()


@pytest.mark.parametrize(
    ("rig", "size"),
    [
        pytest.param("dialled", 10, id="dialled-small values", marks=pytest.mark.chaos),
        pytest.param("dialled", 40_000, id="dialled-values as blocks"),
        pytest.param("not dialled", 10, id="not dialled-small values"),
        pytest.param("not dialled", 40_000, id="not dialled-values as blocks"),
        pytest.param("without blocks", 10, id="without blocks-small values", marks=pytest.mark.chaos),
        pytest.param("without blocks", 40_000, id="without blocks-values as blocks"),
    ],
    indirect=["rig"],
)
async def test_gang_on_functions_leaves_the_same_as_on_local_processes(rig: Rig, size: int) -> None:
    spec = workflow(size)
    found, meant = await rig.run(spec, "gang"), await rig.local(spec)
    assert found.datasets == meant.datasets
    assert {one.slot for one in rig.outcomes("gang", "train")} == {f"lambda-member-{i}" for i in range(MEMBERS)}
    blocks = rig.engine.site.store.list("runs/gang/blocks")
    assert not [info.name for info in blocks if f"/{CHANNELS}/" in info.name]


def failures(rig: Rig, run: str) -> list[tuple[str, bool, bool]]:
    """(class, spent, final) of each failed attempt of the gang."""
    files = rig.engine.site.files(run)
    found = read(rig.engine.site.store, files.segment("train"), files.key)
    return [(one.failure, one.spent, one.final) for one in found if isinstance(one, Failed) and one.partition == 0]


@pytest.mark.parametrize("rig", ["dialled", "not dialled"], indirect=True)
async def test_gang_with_a_killed_function_runs_again_as_a_whole(rig: Rig, tmp_path: Path, functions: Provider) -> None:
    spot = tmp_path / "spot"
    spot.mkdir()
    running = asyncio.create_task(rig.run(workflow(40_000, kill=str(spot)), "killed"))
    async with asyncio.timeout(90):
        while len(list(spot.iterdir())) < MEMBERS and not running.done():  # noqa: ASYNC110 (functions only leave files)
            await asyncio.sleep(0.02)
    if isinstance(functions, LambdaPlace):
        functions.emulator.kill_sandbox()
    elif isinstance(functions, OpenWhiskPlace):
        await asyncio.to_thread(functions.emulator.reclaim)
    (spot / "go").touch()
    found = await running
    assert found.datasets == (await rig.local(workflow(40_000))).datasets
    assert failures(rig, "killed") == [("worker lost", False, False)]
    blocks = rig.engine.site.store.list("runs/killed/blocks")
    assert not [info.name for info in blocks if f"/{CHANNELS}/" in info.name]


@pytest.mark.parametrize("functions", [on_lambda], ids=["lambda"], indirect=True)
async def test_gang_without_enough_functions_leaves_and_starts_later(
    rig: Rig, functions: LambdaPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The account allows fewer calls than the gang needs. The functions that started leave for other gangs."""
    monkeypatch.setattr(lifetime, "GATHERING", 3.0)
    monkeypatch.setattr(functions.emulator, "concurrency", MEMBERS - 1)
    left = len(functions.emulator.invocations) + MEMBERS - 1
    running = asyncio.create_task(rig.run(workflow(10), "late"))
    async with asyncio.timeout(90):
        while len(functions.emulator.invocations) < left or not failures(rig, "late"):
            assert not running.done()
            await asyncio.sleep(0.1)
    monkeypatch.setattr(functions.emulator, "concurrency", 8)
    monkeypatch.setattr(lifetime, "GATHERING", 60.0)
    found = await running
    assert found.datasets == (await rig.local(workflow(10))).datasets
    assert set(failures(rig, "late")) == {("throttled", False, False)}


@pytest.mark.parametrize("functions", [on_lambda], ids=["lambda"], indirect=True)
async def test_later_tasks_run_in_functions_that_are_warm(rig: Rig, functions: LambdaPlace) -> None:
    """There are four slots, and three functions do all the work."""
    before = len(functions.emulator.invocations)
    await rig.run(workflow(10), "warm")
    await rig.stop()
    assert len(functions.emulator.invocations) - before == MEMBERS
