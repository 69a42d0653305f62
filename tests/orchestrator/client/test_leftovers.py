"""The objects that gc removes, and the objects that it must keep."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from orchestrator.commands import Terminal

from treadle.client import Client
from treadle.client.garbage_collection import (
    Leftover,
    borrowed,
    leftovers,
    needless,
    removable,
    remove,
    unused_inputs,
)
from treadle.client.input_data import stored
from treadle.dsl import Workflow
from treadle.orchestrator.run_store.run_files import RunFiles, Submission
from treadle.primitives.errors import CorruptError
from treadle.primitives.stores.store import FileStore, ObjectInfo, Store

DAY = 86_400.0


def test_objects_are_counted_by_run_and_the_newest_decides_its_age() -> None:
    objects = [
        ObjectInfo("runs/b/spec", 5, "", 10.0),
        ObjectInfo("runs/a/spec", 1, "", 30.0),
        ObjectInfo("runs/a/segments/s/ledger/0", 2, "", 20.0),
    ]
    assert leftovers(objects) == [Leftover("a", 2, 3, 30.0), Leftover("b", 1, 5, 10.0)]


async def test_open_runs_and_those_just_written_to_are_left_alone() -> None:
    found = [Leftover(run, 1, 1, modified) for run, modified in (("old", 1.0), ("open", 1.0), ("new", 9.0))]

    async def is_open(run: str) -> bool:
        return run == "open"

    assert [one.run for one in await needless(found, 5.0, is_open)] == ["old"]


def lending() -> list[ObjectInfo]:
    """`a` and its child `a/b` have lent blocks to `c`; `c` has lent none."""
    names = [
        "a/spec",
        "a/blocks/s/0.1",
        "a/blocks/s-2/t/0.1",
        "a/blocks/other/0.1",
        "a/lent/c/s",
        "a/_b/spec",
        "a/_b/blocks/s/0.1",
        "a/_b/lent/c/s",
        "c/spec",
    ]
    return [ObjectInfo(f"runs/{name}", 1, "", 1.0) for name in names]


def test_blocks_that_a_run_took_over_stay_as_long_as_that_run_is_there() -> None:
    lent = borrowed(lending(), {"a"})
    assert lent == {"a": {"s"}, "a/_b": {"s"}}
    gone = {info.name.removeprefix("runs/a/") for info in removable(lending(), {"a"}, lent)}
    assert gone == {"spec", "blocks/s-2/t/0.1", "blocks/other/0.1", "_b/spec"}
    assert borrowed(lending(), {"a", "c"}) == {}
    assert len(list(removable(lending(), {"a", "c"}, {}))) == len(lending())


def test_blocks_that_a_kept_result_consists_of_stay() -> None:
    gone = {info.name.removeprefix("runs/a/") for info in removable(lending(), {"a", "c"}, {"a": {"s-2/t"}})}
    assert "blocks/s-2/t/0.1" not in gone
    assert "blocks/s/0.1" in gone


@pytest.mark.parametrize("kind", ["file", "memory"])
def test_removing_a_run_leaves_others_whose_names_begin_alike(kind: str, tmp_path: Path) -> None:
    store = Store.open(tmp_path.as_uri() if kind == "file" else f"memory://{tmp_path.name}-leftovers")
    for name in ("runs/a/spec", "runs/a/blocks/s/0.1", "runs/ab/spec", "deployments/bundles/x"):
        store.put(name, b"x")
    remove(store, "a")
    assert [info.name for info in store.list()] == ["deployments/bundles/x", "runs/ab/spec"]


def test_gc_removes_old_runs_and_keeps_outputs_and_young_data(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    (work / "lines.py").write_text("def line(n: int) -> str:\n    return str(n)\n")
    output = "output: {uri: 'out/${{ run.id }}', format: text}"
    (work / "lines.yaml").write_text(
        "apiVersion: treadle/v1\nname: lines\nstages:\n"
        f"  all: {{type: map, input: {{range: 3}}, uses: 'lines:line', {output}}}\n"
    )
    with Terminal(work, tmp_path / "home") as terminal:
        for run in ("old", "young"):
            assert terminal.run("run", "lines.yaml", "--id", run).code == 0
        store = tmp_path / "home" / "store" / "runs"
        for file in (store / "old").rglob("*"):
            os.utime(file, (time.time() - 2 * DAY,) * 2)
        dry = terminal.run("gc", "--older-than", "1d", "--dry-run", "-o", "json")
        assert [one["run"] for one in json.loads(dry.out)] == ["old"]
        assert (store / "old" / "spec").exists()
        done = terminal.run("gc", "--older-than", "1d")
        assert (done.code, done.err.startswith("removed 1 run, ")) == (0, True)
        assert not list((store / "old").rglob("spec"))
        assert sorted(path.name for path in (work / "out").iterdir()) == ["old", "young"]
        assert terminal.run("rerun", "old").code == 4
        assert terminal.run("show", "young").code == 0
        assert "nothing was removed" in terminal.run("gc", "--dry-run").err


class Deployment:
    """A store in a folder, whose objects are old, with one key for all runs."""

    def __init__(self, root: Path) -> None:
        self.store = FileStore(root)

    def files(self, run: str) -> RunFiles:
        return RunFiles(self.store, run, b"k" * 32)

    def spec(self) -> Any:
        workflow = Workflow("doubling")
        workflow.map("done", workflow.input("data", "dataset"), uses=lambda value: value)
        return workflow.spec()

    def submit(self, run: str, value: Any) -> str:
        """Store a run with `value` as input. Returns the name of the file."""
        inputs = stored(self.store, self.spec(), {"data": value})
        self.files(run).create("spec", Submission(run, {}, inputs, "", {}, ""))
        return str(inputs["data"]["uri"]).removeprefix(f"{self.store.url}/")

    def age(self) -> None:
        for file in self.store.root.rglob("*"):
            os.utime(file, (time.time() - 2 * DAY,) * 2)

    def unused(self, gone: Collection[str] = ()) -> set[str]:
        return {info.name for info in unused_inputs(self.store, gone, time.time() - DAY, self.files)}


@pytest.fixture
def deployment(tmp_path: Path) -> Deployment:
    return Deployment(tmp_path)


def test_input_is_unused_when_no_other_run_or_child_run_refers_to_it(deployment: Deployment) -> None:
    mine, shared, inner = (np.arange(length) for length in (1, 2, 3))
    one = deployment.submit("a", mine)
    assert deployment.submit("b", shared) == deployment.submit("c", shared)
    deployment.submit("d/sub", inner)
    deployment.age()
    assert deployment.unused() == set()
    assert deployment.unused({"a", "b"}) == {one, f"{one}.used"}
    assert len(deployment.unused({"a", "b", "c"})) == 4
    assert len(deployment.unused({"a", "b", "c", "d"})) == 6


def test_old_input_stays_for_a_run_that_is_being_submitted(deployment: Deployment) -> None:
    value = np.arange(1)
    name = deployment.submit("a", value)
    deployment.age()
    assert deployment.unused({"a"}) == {name, f"{name}.used"}
    stored(deployment.store, deployment.spec(), {"data": value})
    assert deployment.unused({"a"}) == set()


def test_input_that_a_run_uses_while_the_others_are_read_stays(deployment: Deployment) -> None:
    value = np.arange(1)
    deployment.submit("a", value)
    deployment.submit("b", np.arange(2))
    deployment.age()

    def files(run: str) -> RunFiles:
        stored(deployment.store, deployment.spec(), {"data": value})
        return deployment.files(run)

    assert unused_inputs(deployment.store, {"a"}, time.time() - DAY, files) == []


def test_input_stored_without_a_mark_is_removed_too(deployment: Deployment) -> None:
    name = deployment.submit("a", np.arange(1))
    deployment.store.delete([f"{name}.used"])
    deployment.age()
    assert deployment.unused({"a"}) == {name}


def test_unreadable_run_may_refer_to_any_input(deployment: Deployment) -> None:
    deployment.submit("a", np.arange(1))
    deployment.store.put("runs/b/spec", b"of another deployment")
    assert deployment.unused({"a"}) == set(), "no run is read as long as every input is young"
    deployment.age()
    with pytest.raises(CorruptError):
        deployment.unused({"a"})


def test_gc_removes_inputs_of_removed_runs_and_keeps_the_others(tmp_path: Path) -> None:
    workflow = Workflow("doubling")
    workflow.map("done", workflow.input("data", "dataset", required=True), uses=lambda v: v * 2, per="partition")
    home = tmp_path / "home"
    with Terminal(tmp_path, home) as terminal, Client(home=home) as client:
        for run, value in (("old", np.arange(3)), ("young", np.arange(4))):
            client.run(workflow, {"data": value}, id=run)
        store = home / "store"
        for file in [*(store / "runs" / "old").rglob("*"), *(store / "inputs").iterdir()]:
            os.utime(file, (time.time() - 2 * DAY,) * 2)
        before = {file.name for file in (store / "inputs").iterdir()}
        dry = terminal.run("gc", "--older-than", "1d", "--dry-run")
        assert dry.err.startswith("would remove 1 run, ")
        assert dry.err.rstrip().endswith("; 1 input, 152 B; nothing was removed")
        assert {file.name for file in (store / "inputs").iterdir()} == before
        assert terminal.run("gc", "--older-than", "1d").code == 0
        [left] = (store / "inputs").glob("*.npy")
        assert np.load(left).tolist() == [0, 1, 2, 3]
        assert len(list((store / "inputs").iterdir())) == 2
        again = client.run(workflow, {"data": np.arange(3)})
        assert again.stage("done").array().tolist() == [0, 2, 4]
