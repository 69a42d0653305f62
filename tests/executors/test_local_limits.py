"""Memory limits of processes, and the kernel's traces of a kill for lack of memory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from treadle.executors import memory_limit

_GIB = 1 << 30


def _tree(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


_MACHINE = {"proc/meminfo": "MemTotal:       16777216 kB\nMemFree: 1 kB\n", "proc/vmstat": "oom_kill 2\n"}
_V2 = _MACHINE | {
    "proc/self/cgroup": "0::/app\n",
    "sys/fs/cgroup/app/memory.max": f"{4 * _GIB}\n",
    "sys/fs/cgroup/app/memory.events": "low 0\noom 9\noom_kill 3\n",
}
_V1 = _MACHINE | {
    "proc/self/cgroup": "4:memory:/docker/abc\n1:name=systemd:/\n0::/\n",
    "sys/fs/cgroup/memory/memory.limit_in_bytes": f"{2 * _GIB}\n",
    "sys/fs/cgroup/memory/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 5\n",
}
_UNLIMITED = _MACHINE | {"proc/self/cgroup": "0::/app\n", "sys/fs/cgroup/app/memory.max": "max\n"}


@pytest.mark.parametrize(
    ("files", "memory", "kills"),
    [(_MACHINE, 16 * _GIB, 2), (_V2, 4 * _GIB, 5), (_V1, 2 * _GIB, 7), (_UNLIMITED, 16 * _GIB, 2)],
    ids=["no group", "cgroup v2", "cgroup v1 in a container", "unlimited group"],
)
def test_group_and_machine_are_both_looked_at(tmp_path: Path, files: dict[str, str], memory: int, kills: int) -> None:
    root = _tree(tmp_path, files)
    assert memory_limit.host_memory(root) == memory
    assert memory_limit.oom_kills(root) == kills


def test_this_host_has_memory() -> None:
    assert memory_limit.host_memory() > 1 << 28
    assert memory_limit.oom_kills() >= 0


_PROBE = """
import mmap
from treadle.executors import memory_limit
memory_limit.limit_allocation(memory_limit.allocated_bytes() + (64 << 20))
try:
    bytearray(128 << 20)
except MemoryError:
    print("refused")
shared = mmap.mmap(-1, 128 << 20)
shared[::4096] = b"x" * len(shared[::4096])
print("shared")
memory_limit.limit_allocation(0)
bytearray(128 << 20)
print("lifted")
"""


def test_limit_refuses_allocation_but_not_shared_mappings_and_can_be_lifted() -> None:
    done = subprocess.run([sys.executable, "-c", _PROBE], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["refused", "shared", "lifted"]


@pytest.mark.parametrize(("code", "words"), [(3, "exit code 3"), (-11, "signal 11 (SIGSEGV)"), (-60, "signal 60")])
def test_exit_codes_in_words(code: int, words: str) -> None:
    assert memory_limit.exit_words(code) == words
