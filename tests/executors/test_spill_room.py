"""Spill files: private, unnamed, removed with their process. A full disk is an error with its class."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from executors.bench import Bench, call
from executors.operation_functions import FIRST
from executors.test_operations_reduce import as_list

from treadle.executors.program import Reduce
from treadle.executors.spill import memory_budget as rooms
from treadle.executors.spill.memory_budget import MemoryBudget
from treadle.executors.spill.size_estimate import memory_of
from treadle.primitives.errors import FailureClass, StoreError


def test_a_spill_file_has_no_name_and_is_private() -> None:
    room = MemoryBudget(1)
    file = room.file()
    extent = file.put([1, "two"])
    status = os.fstat(file.descriptor)
    assert (status.st_nlink, stat.S_IMODE(status.st_mode)) == (0, 0o600)
    assert not os.get_inheritable(file.descriptor)
    assert file.get(extent) == [1, "two"]
    room.close()
    with pytest.raises(ValueError, match="closed"):
        file.get(extent)


_KILLED = """
import os, signal, sys
from treadle.executors.spill.memory_budget import MemoryBudget
room = MemoryBudget(1)
room.file().put(["x" * 100_000])
print(room.spilled, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_nothing_is_left_of_a_killed_process(tmp_path: Path) -> None:
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", _KILLED], env=environment, capture_output=True, text=True)
    assert int(done.stdout) > 100_000, done.stderr
    assert not list(tmp_path.iterdir())


def test_full_disk_is_reported_as_such_and_ends_the_attempt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(rooms, "write_all", full)
    with closing(MemoryBudget(1)) as room, pytest.raises(StoreError, match="is full"):
        room.file().put([1])
    bench = Bench(tmp_path, room=100)
    failure = bench.failure(Reduce("r", "key", uses=call(as_list), by=FIRST), source=[(n, n) for n in range(99)])
    assert (failure.failure, failure.retryable) == (FailureClass.UNREACHABLE, False)
    assert "is full" in failure.message
    assert "TMPDIR" in failure.message


class Node:
    def __init__(self, text: str) -> None:
        self.text = text
        self.more = {"list": [text, text]}


@pytest.mark.parametrize(
    ("records", "least", "most"),
    [
        ([1.5] * 1000, 24 * 1000, 60 * 1000),
        (["x" * 1000] * 50, 50_000, 60_000),
        ([("key", ["v" * 100] * 100)] * 20, 20 * 100 * 100, 20 * 100 * 200),
        ([Node("t" * 500)] * 100, 100 * 1000, 100 * 3000),
        ([], 0, 0),
    ],
    ids=["floats", "texts", "nested", "instances", "none"],
)
def test_sizes_are_about_right(records: list[Any], least: int, most: int) -> None:
    assert least <= memory_of("objects", records) <= most
