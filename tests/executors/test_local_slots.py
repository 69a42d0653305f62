"""The conditions on which a local slot keeps its worker process or replaces it."""

from __future__ import annotations

import asyncio
import errno
import os
import resource
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from eventually import eventually

from treadle.executors import Place
from treadle.executors.local.executor import LocalExecutor
from treadle.executors.program import Outcome, Task
from treadle.executors.testing import Workbench
from treadle.executors.testing.workbench import failure_of
from treadle.primitives.errors import FailureClass, InternalError, UsageError


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(f"file://{tmp_path}/store", str(tmp_path / "key"), str(tmp_path / "host"))


@pytest.fixture
async def bench(place: Place, tmp_path: Path) -> AsyncIterator[Workbench]:
    executor = LocalExecutor(run_key=place.run_key, slots=1, host_root=place.host_root)
    yield Workbench(executor, place, tmp_path)
    await executor.stop()


async def _pid(bench: Workbench, **job: Any) -> int:
    """The process that ran a task of the job."""
    task = bench.task("process", [[0]])
    (report,) = await bench.run(msgspec.structs.replace(task, job=msgspec.structs.replace(task.job, **job)))
    assert isinstance(report, Outcome)
    assert report.block is not None
    return int(bench.records(report)[0]["pid"])


async def _faulted(bench: Workbench, size: int, memory: int = 0) -> int:
    """Bytes that the kernel gave the worker while a task allocated `size` bytes."""
    worker = await _pid(bench)
    before = _faults(worker)
    await bench.play(("allocate", size), memory=memory)
    assert await _pid(bench) == worker
    return (_faults(worker) - before) * resource.getpagesize()


def _faults(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[7])  # minflt, see proc(5)


def _of_bundle(task: Task, bundle: str) -> Task:
    return msgspec.structs.replace(task, job=msgspec.structs.replace(task.job, bundle=bundle))


async def test_slots_start_by_themselves_and_stay_warm(bench: Workbench) -> None:
    assert await _pid(bench) == await _pid(bench)


async def test_a_failed_partition_costs_no_process(bench: Workbench) -> None:
    first = await _pid(bench)
    await bench.play(("raise", "an error"))
    assert await _pid(bench) == first


async def test_another_bundle_gets_another_process(bench: Workbench) -> None:
    first = await _pid(bench)
    (report,) = await bench.run(_of_bundle(bench.task("same", [[1]]), "0" * 64))
    assert failure_of(report).failure is not FailureClass.WORKER_LOST
    assert await _pid(bench) != first


async def test_a_process_that_ran_out_of_memory_is_replaced(bench: Workbench) -> None:
    first = await _pid(bench)
    await bench.play(("allocate", 300 << 20), memory=100 << 20)
    assert await _pid(bench) != first


async def test_memory_that_a_task_freed_is_used_again_by_the_next(bench: Workbench) -> None:
    size = 45 << 20
    assert await _faulted(bench, size) > size // 2
    again = [await _faulted(bench, size) for _ in range(4)]  # on a busy machine it may have rested between two tasks
    assert min(again) < size // 4
    assert await _faulted(bench, size, memory=200 << 20) > size // 2, "kept memory was granted beyond the limit"


async def test_a_worker_without_work_gives_back_its_memory(bench: Workbench) -> None:
    worker = await _pid(bench)
    size = 45 << 20
    await bench.play(("allocate", size))
    while _resident(worker) > size:  # noqa: ASYNC110  (the kernel sends no notice)
        await asyncio.sleep(0.1)
    assert await _pid(bench) == worker


def _resident(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _until_heard_of(dead: int) -> None:
    """Wait until its parent, the executor, has reaped it."""
    eventually(lambda: not Path(f"/proc/{dead}").exists())


async def test_a_worker_killed_while_idle_is_replaced_unnoticed(bench: Workbench) -> None:
    first = await _pid(bench)
    os.kill(first, signal.SIGKILL)
    await asyncio.to_thread(_until_heard_of, first)
    assert await _pid(bench) != first


async def test_a_stopped_executor_starts_again_when_used(bench: Workbench) -> None:
    first = await _pid(bench)
    await bench.executor.stop()
    assert await _pid(bench) != first


async def test_a_task_longer_than_the_socket_holds_does_not_block_the_driver(bench: Workbench) -> None:
    first = await _pid(bench)
    os.kill(first, signal.SIGSTOP)
    (report,) = await bench.run(bench.task("same", [["x" * (8 << 20)]], timeout=0.3))
    assert failure_of(report).failure is FailureClass.TIMED_OUT


async def test_stop_waits_for_a_task_that_is_about_to_start_a_worker(bench: Workbench) -> None:
    first = await _pid(bench)
    attempt = asyncio.create_task(bench.run(_of_bundle(bench.task("same", [[1]]), "0" * 64)))
    await asyncio.sleep(0)  # the worker with the other bundle is being killed
    await bench.executor.stop()
    assert attempt.done()
    assert failure_of((await attempt)[0]).how == "the executor was stopped"
    with pytest.raises(ProcessLookupError):
        os.kill(first, 0)


async def test_a_process_that_cannot_be_watched_is_refused_and_leaves_nothing(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def exhausted(pid: int) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(os, "pidfd_open", exhausted)
    with pytest.raises(UsageError, match="Too many open files"):
        await bench.assert_usable()
    monkeypatch.undo()
    await bench.assert_usable()


@pytest.fixture
async def own_path(place: Place, tmp_path: Path) -> AsyncIterator[Workbench]:
    """Workers that also import the modules next to this file."""
    executor = LocalExecutor(
        run_key=place.run_key, slots=1, environment={**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    )
    yield Workbench(executor, place, tmp_path)
    await executor.stop()


def _calling(task: Task, function: str) -> Task:
    document = msgspec.json.encode(task).replace(b"treadle.executors.testing.functions:same", function.encode())
    return msgspec.json.decode(document, type=Task)


@pytest.mark.parametrize("library", ["python", "numpy", "arrow"])
async def test_functions_from_the_given_path_have_their_memory_and_no_more(own_path: Workbench, library: str) -> None:
    function, bound = f"memory_functions:with_{library}", 256 << 20
    (fits,) = await own_path.run(_calling(own_path.task("same", [[50 << 20]], memory=bound), function))
    (too_large,) = await own_path.run(_calling(own_path.task("same", [[300 << 20]], memory=bound), function))
    assert own_path.records(fits) == [50 << 20]
    assert failure_of(too_large).failure is FailureClass.OUT_OF_MEMORY
    assert failure_of(too_large).stage == "stage"


async def test_a_worker_that_does_not_start_says_why(place: Place) -> None:
    executor = LocalExecutor(run_key=place.run_key, slots=2, environment={"PYTHONHOME": "/nonexistent"})
    try:
        with pytest.raises(InternalError, match=r"did not start: exit code 1[^$]*encodings"):
            await executor.start()
    finally:
        await executor.stop()


async def test_worker_that_never_becomes_ready_is_lost(
    bench: Workbench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    silent = tmp_path / "silent"
    sleep = f"case $* in *worker.main*) echo $$ > {tmp_path}/pid; exec sleep 600;; esac"
    silent.write_text(f'#!/bin/sh\n{sleep}\nexec {sys.executable} "$@"\n')
    silent.chmod(0o700)
    monkeypatch.setattr("treadle.executors.local.worker_process.sys.executable", str(silent))
    monkeypatch.setattr("treadle.executors.local.worker_process.READY_SECONDS", 1.0)
    (report,) = await bench.run(bench.task("same", [[1]]))
    assert failure_of(report).failure is FailureClass.WORKER_LOST
    assert "was not ready within 1 s" in failure_of(report).how
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


async def test_an_unknown_secret_is_refused_before_anything_runs(bench: Workbench) -> None:
    with pytest.raises(UsageError, match="no secret 'absent'"):
        await bench.run(bench.task("same", [[1]], secrets=("absent",)))


def test_an_executor_without_slots_is_refused(place: Place) -> None:
    with pytest.raises(UsageError, match="at least one slot"):
        LocalExecutor(run_key=place.run_key, slots=0)


async def test_first_product_of_matrices_needs_no_memory_of_the_task(own_path: Workbench) -> None:
    """The limit leaves room for NumPy, but not for OpenBLAS's buffer of 32 MB."""
    task = _calling(own_path.task("same", [[3]], memory=48 << 20), "blas_functions:product")
    (report,) = await own_path.run(msgspec.structs.replace(task, timeout=60))
    assert isinstance(report, Outcome), report
    assert own_path.records(report) == [9000.0]
