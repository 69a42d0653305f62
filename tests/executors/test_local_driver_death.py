"""No process outlives a driver that was killed without a chance to clean up."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest
from eventually import eventually

from treadle.executors import Place
from treadle.executors.testing.script import Script

_DRIVER = """
import asyncio, os, sys
from pathlib import Path
import msgspec
from treadle.executors.functions.executor import FunctionExecutor
from treadle.executors.isolated.executor import IsolatedExecutor
from treadle.executors.local.executor import LocalExecutor
from treadle.executors.emulation.provider_limits import EMULATIONS
from treadle.executors.emulation.invoker import ParityInvoker
from treadle.executors import Place
from treadle.executors.testing import Workbench
from treadle.executors.testing.script import Script
from treadle.primitives import sealing

def made(kind, place):
    if kind == "local":
        return LocalExecutor(run_key=place.run_key, slots=1)
    if kind == "isolated":
        return IsolatedExecutor(key_file=place.key_file)
    invoker = ParityInvoker(EMULATIONS["lambda"], sealing.load_or_create_key(place.key_file), os.environ)
    return FunctionExecutor("lambda", invoker, key_file=place.key_file, slots=1)

async def main(kind, place, script, folder):
    executor = made(kind, place)
    await executor.start()
    bench = Workbench(executor, place, folder)
    await bench.run(bench.scripted_task(script, 1))

kind, place, script, folder = sys.argv[1:]
place, script = Place(*msgspec.json.decode(place)), msgspec.json.decode(script, type=Script)
asyncio.run(main(kind, place, script, Path(folder)))
"""


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


@pytest.mark.parametrize(
    ("kind", "busy"),
    [*product(("local", "isolated"), ("sleep", "stuck in C", "stop")), ("emulated", "sleep")],
)
def test_worker_and_its_children_die_with_a_killed_driver(tmp_path: Path, kind: str, busy: str) -> None:
    import msgspec

    place = Place(f"file://{tmp_path}/store", str(tmp_path / "key"), str(tmp_path / "host"))
    place.run_key("")
    pids = tmp_path / "pids"
    script = Script.of(tmp_path, {0: [[("leave running", 100), ("note processes", str(pids)), (busy, 60)]]})
    paths = [place.store, place.key_file, place.host_root]
    documents = [msgspec.json.encode(one).decode() for one in (paths, script)]
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    driver = subprocess.Popen(
        [sys.executable, "-c", _DRIVER, kind, *documents, str(tmp_path)], env=os.environ | {"TMPDIR": str(temporary)}
    )
    try:
        eventually(lambda: pids.exists() and len(pids.read_text().split()) == 2)
        worker, started = map(int, pids.read_text().split())
        assert _alive(worker)
        assert _alive(started)
        assert kind == "local" or any(temporary.iterdir())
    finally:
        os.kill(driver.pid, signal.SIGKILL)
        driver.wait()
    eventually(lambda: not _alive(worker) and not _alive(started))
    eventually(lambda: not any(temporary.iterdir()))
