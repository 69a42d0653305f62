"""What an executor leaves behind: nothing."""

from __future__ import annotations

import asyncio
import os
import tempfile
from pathlib import Path

from treadle.executors.program import Outcome, Report
from treadle.primitives.errors import FailureClass

from .workbench import Workbench, failure_of


class LifetimeTests:
    """Claims about start, stop and leaks."""

    async def test_start_is_idempotent(self, bench: Workbench) -> None:
        slots = list(bench.executor.slots)
        await bench.executor.start()
        assert list(bench.executor.slots) == slots
        await bench.assert_usable()

    async def test_stop_leaves_no_process_and_no_open_file(self, bench: Workbench) -> None:
        await bench.executor.stop()
        processes, files = descendants(), _open_files()
        await bench.executor.start()
        await bench.play(("leave running", 100), ("fork", 100))
        await bench.play(("exit", 1))
        await asyncio.gather(*(bench.assert_usable(slot) for slot in range(2)))
        await bench.executor.stop()
        assert descendants() - processes == set()
        assert _open_files() == files

    async def test_what_a_killed_attempt_started_is_killed_too(self, bench: Workbench) -> None:
        await bench.executor.stop()
        processes = descendants()
        await bench.play(("leave running", 100), ("fork", 100), ("exit", 1))
        await bench.executor.stop()
        assert descendants() - processes == set()

    async def test_stop_ends_an_attempt_under_way(self, bench: Workbench) -> None:
        script = bench.scripted({0: [[("sleep", 60)]]})
        reports: list[Report] = []
        attempt = asyncio.create_task(bench.executor.slots[0].run(bench.scripted_task(script, 1), reports.append))
        async with asyncio.timeout(20):
            while script.times(0) == 0:  # noqa: ASYNC110 (a file is the only sign of life of every executor)
                await asyncio.sleep(0.01)
            await bench.executor.stop()
            await attempt
        (report,) = reports
        assert failure_of(report).failure is FailureClass.WORKER_LOST
        assert failure_of(report).how == "the executor was stopped"

    async def test_attempts_leave_no_temporary_files(self, bench: Workbench) -> None:
        before = set(os.listdir(tempfile.gettempdir()))
        await bench.play(("print", "x"))
        await bench.play(("exit", 1))
        new = set(os.listdir(tempfile.gettempdir())) - before
        assert [name for name in new if name.startswith("treadle-")] == []

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
    """Processes in sessions that descend from this process, and those left over from them (adopted by init)."""
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (status := _stat(entry)):
            state, parent, session = status
            if state != "Z" and session != os.getsid(0) and parent in (1, os.getpid()):
                found.add(int(entry.name))
    return found


def _stat(entry: Path) -> tuple[str, int, int] | None:
    """(state, parent, session); None when the process is gone."""
    try:
        fields = (entry / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return fields[0], int(fields[1]), int(fields[3])


def _open_files() -> set[str]:
    return set(os.listdir("/proc/self/fd"))
