"""An endless log does not fill the disk."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from treadle.executors.local import child_process
from treadle.executors.local.child_process import ChildProcess
from treadle.executors.local.orphan_guard import Guard
from treadle.executors.worker.log import FULL, TAIL, bound, open_log, read_tail


def on_disk(fd: int) -> int:
    return os.fstat(fd).st_blocks * 512


def test_the_beginning_of_a_long_log_is_given_back_and_its_tail_stays() -> None:
    fd = open_log()
    try:
        for number in range(FULL // 2**20 + 2):
            os.write(fd, f"{number:<8}".encode() * 2**17)
        before = read_tail(fd)
        assert on_disk(fd) > FULL
        bound(fd)
        assert on_disk(fd) < FULL // 8
        assert read_tail(fd) == before
        os.write(fd, b"after")
        assert read_tail(fd).endswith(b"after")
        os.ftruncate(fd, 0)
        os.write(fd, b"of the next partition")
        assert read_tail(fd) == b"of the next partition"
    finally:
        os.close(fd)


def test_a_short_log_is_left_alone() -> None:
    fd = open_log()
    try:
        os.write(fd, b"x" * 3 * TAIL)
        bound(fd)
        assert os.pread(fd, TAIL, 0) == b"x" * TAIL
    finally:
        os.close(fd)


PRINTER = """
import os, sys
line = b"y" * 2**20
for number in range(int(sys.argv[1])):
    os.write(1, line)
os.write(1, b"last words")
open(sys.argv[2], "w").close()
while os.path.exists(sys.argv[2]):
    pass
"""


async def test_the_log_of_a_process_that_prints_and_prints_stays_short(tmp_path: Path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(child_process, "_LOOK", 0.01)
    guard, flag = Guard(), tmp_path / "flag"
    command = [sys.executable, "-c", PRINTER, str(FULL // 2**20 + 4), str(flag)]
    try:
        process = ChildProcess(command, dict(os.environ), guard)
        while not flag.exists():  # noqa: ASYNC110  another process makes it
            await asyncio.sleep(0.01)
        # private: the log is an unnamed file
        while on_disk(process._log) > FULL:  # noqa: ASYNC110  a timer has it shrink
            await asyncio.sleep(0.01)
        flag.unlink()
        death = await process.death
    finally:
        guard.close()
    assert death.code == 0
    assert death.log.endswith(b"last words")
