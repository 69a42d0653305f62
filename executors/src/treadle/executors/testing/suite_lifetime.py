"""Tests that an executor leaves nothing behind."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import tempfile
from collections.abc import Iterator
from glob import glob
from pathlib import Path

import pytest

from treadle.primitives.asyncio_tasks import spawn
from treadle.primitives.errors import FailureClass

from ..program import Outcome, Report
from .workbench import Workbench, failure_of

_PR_SET_CHILD_SUBREAPER = 36


class LifetimeTests:
    """Claims about start, stop and leaks."""

    @pytest.fixture(autouse=True)
    def adopting(self) -> Iterator[None]:
        """Make this process adopt orphans of its descendants, to distinguish them from orphans of others."""
        prctl = ctypes.CDLL(None).prctl
        prctl(_PR_SET_CHILD_SUBREAPER, 1)
        yield
        prctl(_PR_SET_CHILD_SUBREAPER, 0)

    @pytest.fixture(autouse=True)
    def temporary(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        """A temporary folder for this test alone: other processes change the common one."""
        folder = tmp_path / "temporary"
        folder.mkdir(exist_ok=True)
        monkeypatch.setenv("TMPDIR", str(folder))
        monkeypatch.setattr(tempfile, "tempdir", str(folder))
        return folder

    async def test_start_is_idempotent(self, bench: Workbench) -> None:
        slots = list(bench.executor.slots)
        await bench.executor.start()
        assert list(bench.executor.slots) == slots
        await bench.assert_usable()

    async def test_stop_leaves_no_process_and_no_open_file(self, bench: Workbench) -> None:
        await bench.assert_usable()  # processes that a provider starts with its first call are its own and stay
        await bench.executor.stop()
        processes, files = descendants(), _open_files()
        await bench.executor.start()
        await bench.play(("leave running", 100), ("fork", 100))
        await bench.play(("exit", 1))
        await asyncio.gather(*(bench.assert_usable(slot) for slot in range(2)))
        await bench.executor.stop()
        await _wait_until_gone(processes)
        await _wait_until_closed(files)

    async def test_what_a_killed_attempt_started_is_killed_too(self, bench: Workbench) -> None:
        await bench.executor.stop()
        processes = descendants()
        await bench.play(("leave running", 100), ("fork", 100), ("exit", 1))
        await bench.executor.stop()
        await _wait_until_gone(processes)

    async def test_stop_ends_an_attempt_under_way(self, bench: Workbench) -> None:
        script = bench.scripted({0: [[("sleep", 60)]]})
        reports: list[Report] = []
        attempt = spawn(bench.executor.slots[0].run(bench.scripted_task(script, 1), reports.append))
        async with asyncio.timeout(60):
            while script.times(0) == 0:  # noqa: ASYNC110 (a file is the only sign that works with every executor)
                await asyncio.sleep(0.01)
            await bench.executor.stop()
            await attempt
        (report,) = reports
        assert failure_of(report).failure is FailureClass.WORKER_LOST
        assert failure_of(report).how == "the executor was stopped"

    async def test_slot_names_its_task_while_it_runs_and_takes_another_after_stop(self, bench: Workbench) -> None:
        script, slot = bench.scripted({0: [[("sleep", 60)]]}), bench.executor.slots[0]
        task = bench.scripted_task(script, 1)
        assert slot.task == ""
        reports: list[Report] = []
        attempt = spawn(slot.run(task, reports.append))
        async with asyncio.timeout(60):
            while script.times(0) == 0:  # noqa: ASYNC110 (a file is the only sign that works with every executor)
                await asyncio.sleep(0.01)
            assert slot.task == task.id
            await slot.stop()
            await attempt
        assert [failure_of(report).failure for report in reports] == [FailureClass.WORKER_LOST]
        assert slot.task == ""
        await bench.assert_usable(0)

    async def test_attempts_leave_no_temporary_files(self, bench: Workbench, temporary: Path) -> None:
        await bench.play(("print", "x"))
        await bench.play(("exit", 1))
        assert glob(f"{temporary}/treadle-*/*") == []  # the folder of a living process exists, and is empty

    async def test_descriptors_do_not_pile_up_in_a_worker(self, bench: Workbench) -> None:
        counts = [bench.records((await bench.run(bench.task("descriptors", [[0]])))[0])[0] for _ in range(5)]
        assert counts[1:] == counts[:1] * 4

    async def test_host_folder_holds_blocks_only(self, bench: Workbench) -> None:
        (kept,) = await bench.run(bench.task("large", [[1 << 20]]))
        await bench.play(("exit", 1))
        await bench.executor.stop()
        files = [name for _, _, names in os.walk(bench.place.host_root) for name in names]
        assert isinstance(kept, Outcome)
        assert kept.block is not None
        assert files in ([], [os.path.basename(kept.block.name)])


def descendants() -> set[int]:
    """Living descendants of this process, including orphans (see `adopting`)."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit() and (parent := _living_parent(entry)):
            children.setdefault(parent, []).append(int(entry))
    found: set[int] = set()
    ahead = [os.getpid()]
    while ahead:
        ahead += (new := children.get(ahead.pop(), []))
        found.update(new)
    return found


def _living_parent(pid: str) -> int:
    """The parent's id; 0 when the process is gone or a zombie."""
    try:
        state, parent = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:2]
    except OSError:
        return 0
    return 0 if state in "ZX" else int(parent)


async def _wait_until_gone(before: set[int]) -> None:
    """Wait for killed processes to die."""
    async with asyncio.timeout(60):
        while descendants() - before:  # noqa: ASYNC110 (they are not children of this process)
            await asyncio.sleep(0.01)


async def _wait_until_closed(before: dict[str, str]) -> None:
    """Wait until this process has no more descriptors than before. A provider in this process closes its own later, and
    descriptors of earlier tests may be closed meanwhile."""
    try:
        async with asyncio.timeout(60):
            while len(found := _open_files()) > len(before):  # noqa: ASYNC110 (a close is no event)
                await asyncio.sleep(0.01)
    except TimeoutError:
        more = {number: file for number, file in found.items() if before.get(number) != file}
        raise AssertionError(f"{len(found) - len(before)} of these files are still open: {more}") from None


def _open_files() -> dict[str, str]:
    """The file of each descriptor."""
    found = {}
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # that of the listing
            found[number] = os.readlink(f"/proc/self/fd/{number}")
    return found
