"""The blocks in shared memory that are removed, by Temporal's status of their runs."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pytest
from temporalio.client import WorkflowExecutionStatus as Status
from temporalio.service import RPCError, RPCStatusCode

from treadle.orchestrator.temporal import shm_gc
from treadle.primitives.stores.file_views import LEAST
from treadle.primitives.stores.shared_memory import HostFolder


@dataclass
class About:
    status: Status
    close_time: datetime | None = None


class Temporal:
    """Knows these runs. Sets an event when it has been asked more than `count` times."""

    def __init__(self, runs: dict[str, About], count: int) -> None:
        self._runs, self._left = runs, count
        self.asked = asyncio.Event()

    def get_workflow_handle(self, run: str) -> Any:
        if not self._left:
            self.asked.set()
        self._left -= 1
        return Handle(self._runs.get(run))


@dataclass
class Handle:
    about: About | None

    async def describe(self) -> About:
        if self.about is None:
            raise RPCError("no such workflow", RPCStatusCode.NOT_FOUND, b"")
        return self.about


def ago(hours: float) -> datetime:
    return datetime.now(UTC) - timedelta(hours=hours)


RUNS = {
    "running": About(Status.RUNNING),
    "cut": About(Status.CONTINUED_AS_NEW),
    "succeeded": About(Status.COMPLETED, ago(0)),
    "failed": About(Status.FAILED, ago(23)),
    "given-up": About(Status.FAILED, ago(25)),
}


async def swept(host: HostFolder, runs: dict[str, About], monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The runs that still have blocks after each was looked at."""
    client: Any = Temporal(runs, len(host.runs()))
    monkeypatch.setattr(shm_gc, "SWEEP_SECONDS", 0.0)
    task = asyncio.create_task(shm_gc.sweep(host, client))
    await client.asked.wait()  # the first request of the second round
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    return set(host.runs())


async def test_blocks_are_removed_when_their_run_succeeded_or_is_not_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = HostFolder(tmp_path / "shared" / "host")
    for run in RUNS:
        host.put(f"{run}/each/0.1.x", [b"x"])
    assert await swept(host, RUNS, monkeypatch) == {"running", "cut", "failed"}


async def test_blocks_of_a_run_that_another_temporal_knows_stay_while_it_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For example a worker for a cluster and the embedded driver, in one home."""
    host = HostFolder(tmp_path / "shared" / "host")
    for run in ("busy", "busy-inside", "long-gone"):
        host.put(f"{run}/turns-7/each/0.1.x", [b"x"])
    host.put("running/each/0.1.x", [b"x"])
    old = time.time() - 25 * 3600
    for folder in (
        "busy-inside",
        "busy-inside/turns-7",
        *("long-gone/" + rest for rest in ("", "turns-7", "turns-7/each")),
    ):
        os.utime(host.path(folder.rstrip("/")), (old, old))
    assert await swept(host, RUNS, monkeypatch) == {"busy", "busy-inside", "running"}


async def test_driver_that_ends_leaves_no_freed_memory_behind(tmp_path: Path) -> None:
    host = HostFolder(tmp_path / "shared" / "host")
    for run in RUNS:
        host.put(f"{run}/each/0.1.x", [bytes(LEAST)])
    client: Any = Temporal(RUNS, len(RUNS))
    await shm_gc.sweep_at_end(host, client)
    assert set(host.runs()) == {"running", "cut", "failed"}
    assert os.listdir(host.root / ".spares") == []


async def test_driver_that_ends_gives_freed_memory_back_when_temporal_is_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shm_gc, "_PATIENCE", 0.01)
    host = HostFolder(tmp_path / "shared" / "host")
    for run in ("freed", "left"):
        host.put(f"{run}/each/0.1.x", [bytes(LEAST)])
    host.delete_run("freed")
    assert len(os.listdir(host.root / ".spares")) == 1

    async def silent(*_: object) -> bool:
        return await asyncio.Event().wait()

    monkeypatch.setattr(shm_gc, "_needless", silent)
    await shm_gc.sweep_at_end(host, cast("Any", None))
    assert os.listdir(host.root / ".spares") == []
    assert host.runs() == ["left"]
