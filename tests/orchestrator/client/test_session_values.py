"""Large arguments and results of a session: sent once, mapped by workers, copied in time, dropped when unneeded."""

from __future__ import annotations

import gc
import os
import signal
import time
from collections.abc import Iterator
from operator import add
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from eventually import eventually
from orchestrator.client.test_sessions import wait_for

from treadle.client import CallFailed, Session, attach, session
from treadle.client import argument_values as values
from treadle.client.environment import ClientEnvironment
from treadle.orchestrator import embedded
from treadle.orchestrator.environment.home import Home
from treadle.orchestrator.run_store.call_log import CallLog, ValueAdded
from treadle.primitives.blocks import Blocks
from treadle.primitives.run_paths import run_folder

PATIENCE = 90
ELEMENTS = 200_000
"""1.6 MB."""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("values") / "home"
    yield folder
    embedded.down(Home(folder))


@pytest.fixture
def calls(home: Path) -> Iterator[Session]:
    with session("values", home=home) as found:
        yield found


def added(home: Path, s: Session) -> list[ValueAdded]:
    return [one for one in CallLog(ClientEnvironment(home=home).files(s.id)).read() if isinstance(one, ValueAdded)]


def on_host(home: Path, s: Session, segment: str) -> list[Path]:
    """The blocks of a segment in shared memory."""
    folder = Home(home).host_root / run_folder(s.id) / segment
    return [path for path in folder.rglob("*") if path.is_file() and not path.name.startswith(".tmp-")]


def total(array: Any, *more: Any) -> float:
    return float(array.sum() + sum(more))


def test_array_of_several_calls_is_sent_once(home: Path, calls: Session) -> None:
    array = np.arange(float(ELEMENTS))
    assert list(calls.map(total, [array] * 4).results(PATIENCE)) == [array.sum()] * 4
    assert calls.submit(total, array.copy(), 1).result(PATIENCE) == array.sum() + 1, "equal content is one value"
    assert len({one.key for one in added(home, calls)}) == 1


def test_array_counts_as_it_is_at_each_call(calls: Session) -> None:
    array = np.zeros(ELEMENTS)
    first = calls.submit(total, array)
    array += 1
    assert calls.submit(total, array).result(PATIENCE) == ELEMENTS
    assert first.result(PATIENCE) == 0

    def changing() -> Iterator[Any]:
        for number in range(3):
            array[:] = number
            yield array

    assert list(calls.map(total, changing(), chunk=1).results(PATIENCE)) == [0, ELEMENTS, 2 * ELEMENTS]


def test_a_change_of_one_element_makes_another_value(home: Path, calls: Session) -> None:
    array = np.zeros(ELEMENTS)
    for changed in (0, 777, 777, ELEMENTS - 1):
        array[changed] += 1
        for _ in range(2):
            assert calls.submit(total, array).result(PATIENCE) == array.sum()
    assert len(added(home, calls)) == len({one.key for one in added(home, calls)}) == 4


def test_an_equal_of_a_lost_value_is_sent_again(home: Path, calls: Session) -> None:
    array = np.ones(ELEMENTS)
    assert calls.submit(total, array).result(PATIENCE) == ELEMENTS
    for path in on_host(home, calls, "values"):
        path.unlink()
    assert calls.submit(total, array.copy()).result(PATIENCE) == ELEMENTS


def test_equal_values_that_were_put_one_after_the_other_count_as_equal_in_reuse(
    home: Path, calls: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(values, "HELD", 1 << 20)
    again, array = calls.with_options(reuse=True), np.ones(ELEMENTS)
    put = calls.put(array)
    first = again.submit(total, put)
    assert first.result(PATIENCE) == ELEMENTS
    del put
    gc.collect()
    calls.put(np.zeros(2 * ELEMENTS)).result(PATIENCE)
    eventually(lambda: len(on_host(home, calls, "values")) <= 1)
    second = again.submit(total, calls.put(array.copy()))
    assert second.id == first.id
    eventually(lambda: len({one.key for one in added(home, calls)}) == 3)
    array[777] = 0
    assert again.submit(total, calls.put(array)).result(PATIENCE) == ELEMENTS - 1


def test_array_arrives_as_a_read_only_view_and_a_table_as_a_table(calls: Session) -> None:
    array, table = np.ones((ELEMENTS, 2), dtype=np.int32, order="F"), pa.table({"x": np.arange(ELEMENTS)})
    assert calls.submit(lambda a: (a.flags.writeable, a.shape, a.flags.f_contiguous), array).result(PATIENCE) == (
        False,
        (ELEMENTS, 2),
        True,
    )
    assert calls.submit(lambda t: (t.num_rows, t["x"][-1].as_py()), table).result(PATIENCE) == (ELEMENTS, ELEMENTS - 1)


def test_value_that_was_put_is_an_argument_of_many_calls(home: Path, calls: Session) -> None:
    found = calls.put({"small": 1})
    assert [calls.submit(lambda d, n: d["small"] + n, found, n).result(PATIENCE) for n in range(3)] == [1, 2, 3]
    assert found.result(PATIENCE) == {"small": 1}
    assert len(added(home, calls)) == 1


def test_value_that_calls_still_need_is_copied_to_the_store(home: Path, calls: Session, tmp_path: Path) -> None:
    array = np.ones(ELEMENTS)
    waiting = calls.submit(wait_for, tmp_path / "flag", 2)
    late = calls.submit(total, array, waiting)
    eventually(lambda: any("store" in one.block.locations for one in added(home, calls)))
    for path in on_host(home, calls, "values"):
        path.unlink()
    (tmp_path / "flag").touch()
    assert late.result(PATIENCE) == ELEMENTS + 2


@pytest.mark.parametrize("killed", [False, True])
def test_call_that_was_begun_before_a_value_was_copied_finds_the_copy(
    home: Path, calls: Session, tmp_path: Path, killed: bool
) -> None:
    """The call waits for a slot. It was given the block in shared memory alone. `killed`: the driver dies, too."""
    array = np.ones(ELEMENTS)
    busy = [calls.submit(wait_for, tmp_path / "flag", number) for number in range(8)]
    late = calls.submit(total, array)
    eventually(lambda: any("store" in one.block.locations for one in added(home, calls)))
    driver = embedded.status(Home(home)).driver
    if killed and driver is not None:
        os.kill(driver.pid, signal.SIGKILL)
    for path in on_host(home, calls, "values"):
        path.unlink()
    (tmp_path / "flag").touch()
    assert late.result(PATIENCE) == ELEMENTS
    assert [future.result(PATIENCE) for future in busy] == list(range(8))


def test_value_that_was_lost_before_its_copy_fails_its_calls_alone(
    home: Path, calls: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    put = Blocks.put

    def put_and_lose(blocks: Blocks, name: str, *arguments: Any, **settings: Any) -> Any:
        block = put(blocks, name, *arguments, **settings)
        (Home(home).host_root / run_folder(calls.id) / block.name).unlink()
        return block

    with monkeypatch.context() as patch:
        patch.setattr(Blocks, "put", put_and_lose)
        lost = calls.put(np.ones(ELEMENTS))
    with pytest.raises(CallFailed, match="a value among its arguments was lost with the shared memory of its host"):
        calls.submit(total, lost).result(PATIENCE)
    assert calls.submit(add, 1, 2).result(PATIENCE) == 3


def test_value_of_any_size_is_held_for_the_next_call(
    home: Path, calls: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(values, "HELD", ELEMENTS)
    array = np.ones(ELEMENTS)
    for number in range(3):
        assert calls.submit(total, array, number).result(PATIENCE) == ELEMENTS + number
    assert len(added(home, calls)) == 1


def test_values_that_nothing_needs_leave_shared_memory(
    home: Path, calls: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(values, "HELD", 1 << 20)
    for number in range(4):
        assert calls.submit(total, np.full(ELEMENTS, number)).result(PATIENCE) == number * ELEMENTS
    eventually(lambda: len(on_host(home, calls, "values")) <= 1)
    array = np.zeros(ELEMENTS)
    assert calls.submit(total, array).result(PATIENCE) == 0, "a value that was dropped is sent again"
    held = calls.put(array)
    assert calls.submit(total, np.full(2 * ELEMENTS, 7.0)).result(PATIENCE) == 14 * ELEMENTS
    assert calls.submit(total, held).result(PATIENCE) == 0
    del held
    gc.collect()


def test_inner_results_leave_shared_memory_when_they_are_combined(home: Path, calls: Session) -> None:
    found = calls.map_reduce(lambda seat: np.full(ELEMENTS, seat), range(4), add, chunk=1)
    np.testing.assert_array_equal(found.result(PATIENCE), np.full(ELEMENTS, 6))
    eventually(lambda: on_host(home, calls, "_lambda_-1") == [])
    assert len(on_host(home, calls, "add-2")) == 1


def test_results_are_copied_to_the_store(home: Path, calls: Session) -> None:
    made = calls.submit(np.ones, ELEMENTS)
    assert made.result(PATIENCE).sum() == ELEMENTS
    (block,) = on_host(home, calls, "ones-1")
    stored = ClientEnvironment(home=home).store.path(f"runs/{calls.id}/blocks/ones-1/{block.name}")
    assert stored is not None
    eventually(stored.exists)
    block.unlink()
    assert attach(calls.id, home=home)[made.id].result(PATIENCE).sum() == ELEMENTS


def test_lost_result_without_a_copy_is_computed_again(home: Path, calls: Session, tmp_path: Path) -> None:
    """Its block is removed as soon as it appears, which the driver finds when it copies the block."""

    def made(mark: Path) -> Any:
        with mark.open("a") as file:
            file.write("begun\n")
        return np.ones(ELEMENTS)

    future = calls.submit(made, tmp_path / "mark")
    end = time.monotonic() + PATIENCE
    while not (blocks := on_host(home, calls, "made-1")) and time.monotonic() < end:
        pass
    blocks[0].unlink()
    assert future.result(PATIENCE).sum() == ELEMENTS
    assert attach(calls.id, home=home)[future.id].result(PATIENCE).sum() == ELEMENTS
