"""The temporary folder of an attempt is removed with it, also when its process is killed."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from executors.bench import Bench
from executors.operation_functions import per_record

from treadle.executors.context import Context
from treadle.executors.local.child_process import ChildProcess
from treadle.executors.local.orphan_guard import Guard

KILLED = """
import os, signal, sys, tempfile
from treadle.executors.context import Context
from treadle.executors.program import Job
folder = Context(Job("r", "w", "", 0, "memory://", ""), "s", 0, 1, None, b"").tmp
(folder / "large").write_bytes(b"x" * 100_000)
(folder / "link").symlink_to(sys.argv[1])
print(folder, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


async def test_a_killed_process_leaves_no_temporary_folder(tmp_path: Path) -> None:
    kept, temporary = tmp_path / "kept", tmp_path / "tmp"
    (kept / "inside").mkdir(parents=True)
    (temporary / "treadle-1-of-another-process").mkdir(parents=True)
    guard = Guard()
    try:
        environment = {**os.environ, "TMPDIR": str(temporary)}
        process = ChildProcess([sys.executable, "-c", KILLED, str(kept)], environment, guard)
        death = await process.death
    finally:
        guard.close()
    made = Path(death.log.decode().strip())
    assert (death.code, made.parent) == (-9, temporary)
    async with asyncio.timeout(30):
        while made.exists():  # noqa: ASYNC110, ASYNC240  a thread removes it
            await asyncio.sleep(0.005)
    assert (kept / "inside").is_dir(), "what it links to stays"
    assert [path.name for path in temporary.iterdir()] == ["treadle-1-of-another-process"]


def names_it(record: Any, context: Context) -> str:
    return context.tmp.name


def test_the_name_tells_the_process(bench: Bench) -> None:
    (name,) = bench.records(per_record(names_it), source=[1])
    assert name.startswith(f"treadle-{os.getpid()}-")


DRIVER = """
import os, subprocess, sys, tempfile
from treadle.executors.local.orphan_guard import Guard
guard, worker = Guard(), subprocess.Popen(["sleep", "300"], start_new_session=True)
temporary = sys.argv[1]
guard.watch(worker.pid, temporary=temporary)
print(tempfile.mkdtemp(prefix=f"treadle-{worker.pid}-", dir=temporary or None), flush=True)
os._exit(9)
"""


@pytest.mark.parametrize("elsewhere", [False, True])
async def test_a_killed_driver_leaves_no_temporary_folder_of_its_workers(tmp_path: Path, elsewhere: bool) -> None:
    """Also if tasks have another `TMPDIR` than their driver."""
    temporary = tmp_path / "elsewhere" if elsewhere else tmp_path
    temporary.mkdir(exist_ok=True)
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    driver = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", DRIVER, str(temporary) if elsewhere else ""),
        env=environment,
        stdout=asyncio.subprocess.PIPE,
    )
    assert driver.stdout is not None
    made = Path((await driver.stdout.readline()).decode().strip())
    await driver.wait()
    assert made.parent == temporary
    async with asyncio.timeout(30):
        while made.exists():  # noqa: ASYNC110, ASYNC240  the guard removes it
            await asyncio.sleep(0.005)
