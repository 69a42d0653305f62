"""The client against the embedded server: runs that it starts, results and errors, also on an event loop."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from eventually import eventually

from treadle.client import AsyncClient, Client, InvalidInputs, NoSuchRun, RunConflict, RunFailed, WorkerError
from treadle.dsl import Workflow
from treadle.orchestrator import embedded
from treadle.orchestrator.environment.home import Home
from treadle.primitives.errors import UsageError


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("client") / "home"
    yield folder
    embedded.down(Home(folder))


@pytest.fixture(scope="module")
def client(home: Path) -> Iterator[Client]:
    with Client(home=home) as client:
        yield client


def mapped(function: Callable[..., Any], name: str = "mapped", **settings: Any) -> Workflow:
    """One stage over the input `data`. Functions of tests are closures, which travel by value."""
    workflow = Workflow(name, defaults={"retry": {"maximum_attempts": 1}})
    workflow.map("done", workflow.input("data", "dataset", required=True), uses=function, **settings)
    workflow.output("label", workflow.input("label", "string", default="none"))
    return workflow


def doubling() -> Workflow:
    return mapped(lambda value: value * 2, "doubling", per="partition")


def failing() -> Workflow:
    def refuse(number: int) -> int:
        raise ValueError(f"no {number}")

    return mapped(refuse, "failing")


def test_run_returns_outputs_and_records_of_a_list(client: Client) -> None:
    run = client.run(mapped(lambda number: {"n": number, "square": number**2}), {"data": [1, 2, 3], "label": "three"})
    assert run.outputs == {"label": "three"}
    assert run.stage("done").records() == [{"n": 1, "square": 1}, {"n": 2, "square": 4}, {"n": 3, "square": 9}]
    assert run.stage("done").table().column("square").to_pylist() == [1, 4, 9]
    with pytest.raises(UsageError, match="numbers, or arrays of one shape"):
        run.stage("done").array()


def test_run_takes_and_returns_an_array(client: Client) -> None:
    given = np.arange(10.0).reshape(5, 2)
    run = client.run(doubling(), {"data": given})
    np.testing.assert_array_equal(run.stage("done").array(), given * 2)
    with pytest.raises(UsageError, match="must be dictionaries"):
        run.stage("done").table()


def test_run_takes_and_returns_a_table(client: Client) -> None:
    given = pa.table({"city": ["Ulm", "Bonn"], "people": [126_000, 330_000]})
    run = client.run(mapped(lambda table: table.slice(1), "cut", per="partition"), {"data": given})
    assert run.stage("done").table() == given.slice(1)
    assert run.stage("done").records() == [{"city": "Bonn", "people": 330_000}]


def test_equal_data_is_stored_once(client: Client, home: Path) -> None:
    given = np.arange(3)
    before = len(list((home / "store" / "inputs").glob("*.npy")))
    for _ in range(2):
        client.run(doubling(), {"data": given})
    assert len(list((home / "store" / "inputs").glob("*.npy"))) == before + 1


def test_failing_function_raises_with_the_traceback_of_the_worker(client: Client) -> None:
    with pytest.raises(RunFailed, match=r"user error: done: .*ValueError: no 7") as raised:
        client.run(failing(), {"data": [7]})
    assert (raised.value.state, raised.value.failure, raised.value.stage) == ("failed", "user error", "done")
    cause = raised.value.__cause__
    assert isinstance(cause, WorkerError)
    assert cause.error == "ValueError"
    assert cause.message == "no 7"
    assert 'raise ValueError(f"no {number}")' in str(cause) or "in refuse" in str(cause)
    [record] = client.logs(raised.value.run)
    assert (record.stage, record.partition, record.message) == ("done", 0, "no 7")


def test_failed_run_is_shown_listed_and_resumed(client: Client) -> None:
    run = client.submit(failing(), {"data": [1]})
    with pytest.raises(RunFailed):
        run.wait()
    status = run.show()
    assert (status.run, status.state, status.open, status.outputs) == (run.id, "failed", False, {})
    assert [(stage.node, stage.state) for stage in status.stages] == [("done", "failed")]
    assert run.id in [view.run for view in client.list(states=["failed"], prefix="failing")]
    assert run.resume()
    with pytest.raises(RunFailed):
        run.wait()
    assert run.show().view.resumption == 2


def test_watch_ends_with_the_end_of_the_run(client: Client) -> None:
    states = [status.state for status in client.submit(doubling(), {"data": np.ones(2)}).watch(interval=0.05)]
    assert states[-1] == "succeeded"
    assert set(states[:-1]) <= {"running"}


def test_cancelled_run_raises_without_a_cause(client: Client, tmp_path: Path) -> None:
    begun = tmp_path / "begun"

    def slow(_: int) -> None:
        import time
        from pathlib import Path

        Path(begun).touch()
        time.sleep(60)

    run = client.submit(mapped(slow, "slow"), {"data": [1]})
    eventually(begun.exists)
    run.cancel("enough")
    with pytest.raises(RunFailed) as raised:
        run.wait()
    assert (raised.value.state, raised.value.__cause__) == ("cancelled", None)


def test_run_is_attached_by_the_beginning_of_its_id(client: Client) -> None:
    run = client.run(doubling(), {"data": np.ones(1)}, id="a-name-of-its-own")
    assert client.attach("a-name-of").id == run.id
    assert client.attach("@last").id == run.id
    with pytest.raises(NoSuchRun):
        client.attach("nothing")
    with pytest.raises(RunConflict):
        client.submit(doubling(), {"data": np.ones(1)}, id=run.id)
    assert client.submit(doubling(), {"data": np.ones(1)}, id=run.id, if_exists="use").id == run.id


def test_wrong_inputs_are_refused_before_anything_starts(client: Client) -> None:
    with pytest.raises(InvalidInputs, match="is required"):
        client.submit(doubling())
    with pytest.raises(UsageError, match="'data' is given a object\n  Give a list, an array"):
        client.submit(doubling(), {"data": object()})
    with pytest.raises(UsageError, match="there is no executor 'moon'"):
        client.submit(doubling(), {"data": [1]}, executor="moon")
    with pytest.raises(UsageError, match="id 'a/b' cannot be a run id"):
        client.submit(doubling(), {"data": [1]}, id="a/b")


def test_file_is_run_from_its_folder(client: Client, tmp_path: Path) -> None:
    (tmp_path / "shouting.py").write_text("def shout(word):\n    return word.upper()\n")
    stage = 'loud: {type: map, input: {items: ["a"]}, uses: shouting:shout}'
    text = f"apiVersion: treadle/v1\nname: loud\nstages:\n  {stage}\n"
    (tmp_path / "loud.yaml").write_text(text)
    assert client.run(tmp_path / "loud.yaml").stage("loud").records() == ["A"]


def test_client_is_used_from_several_threads_and_below_a_running_loop(client: Client) -> None:
    found: list[int] = []

    async def below() -> None:
        found.append(len(client.list(1)))

    threads = [threading.Thread(target=lambda: found.append(len(client.list(1)))) for _ in range(3)]
    for thread in threads:
        thread.start()
    asyncio.run(below())
    for thread in threads:
        thread.join()
    assert found == [1] * 4


async def test_asyncio_client_has_the_same_methods(client: Client, home: Path) -> None:
    async with AsyncClient(home=home) as twin:
        run = await twin.run(doubling(), {"data": np.ones(2)})
        assert (await run.stage("done").array()).tolist() == [2, 2]
        assert [status.state async for status in run.watch()] == ["succeeded"]
    offered = {name for name in vars(AsyncClient) if not name.startswith("_")} - {
        "detach",
        "object_of_run",
        "stage_checkpoint",
        "stage_data",
    }
    assert offered == {name for name in vars(Client) if not name.startswith("_")}


def test_run_draws_itself(client: Client) -> None:
    drawn = client.run(doubling(), {"data": np.ones(2)})._repr_html_()
    assert "<svg" in drawn
    assert "done" in drawn
    assert "succeeded" in drawn


def test_import_loads_no_heavy_library() -> None:
    program = "import sys; from treadle.client import Client; Client; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert not {"temporalio", "pydantic", "pyarrow", "numpy", "typer", "yaml"} & set(done.stdout.split())
