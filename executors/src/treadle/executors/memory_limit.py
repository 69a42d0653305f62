"""Memory of a process: setting its limit, and telling afterwards that it was the cause of death."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Iterator
from pathlib import Path

_PAGE = resource.getpagesize()
_ROOT = Path("/")


def allocated_bytes() -> int:
    """Private writable memory of this process, which is what RLIMIT_DATA counts (Linux 4.7 and later)."""
    with open("/proc/self/statm", "rb", buffering=0) as file:
        return int(file.read().split()[5]) * _PAGE


def limit_allocation(bound: int) -> None:
    """Let this process allocate `bound` bytes in all; beyond that malloc fails. 0: as much as the hard limit allows.

    Only the soft limit moves. Shared mappings, such as blocks of the host, do not count.
    """
    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
    soft = bound or hard
    if hard != resource.RLIM_INFINITY:
        soft = min(soft, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def processors() -> int:
    """For this process, which may be fewer than the machine has."""
    return len(os.sched_getaffinity(0))


def host_memory(root: Path = _ROOT) -> int:
    """Bytes that processes here may use together: the machine's or the control group's, whichever is less."""
    bounds = [int(_field(root / "proc/meminfo", "MemTotal:").split()[0]) * 1024]
    for folder in _memory_groups(root):
        for name in ("memory.max", "memory.limit_in_bytes"):
            text = _read(folder / name).strip()
            if text.isdigit():
                bounds.append(int(text))
    return min(bounds)


def oom_kills(root: Path = _ROOT) -> int:
    """How many processes the kernel has killed for want of memory, in our control groups and on the host."""
    counters = [root / "proc/vmstat"]
    for folder in _memory_groups(root):
        counters += [folder / "memory.events", folder / "memory.oom_control"]
    return sum(int(_field(path, "oom_kill") or 0) for path in counters)


def _memory_groups(root: Path) -> Iterator[Path]:
    """The memory control group of this process: cgroup v2, v1, and as seen from inside a container."""
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            mount = root / "sys/fs/cgroup"
        elif "memory" in controllers.split(","):
            mount = root / "sys/fs/cgroup/memory"
        else:
            continue
        inside = mount / path.lstrip("/")
        yield inside if inside.is_dir() else mount


def _field(path: Path, name: str) -> str:
    for line in _read(path).splitlines():
        key, _, value = line.partition(" ")
        if key == name:
            return value.strip()
    return ""


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def exit_words(code: int) -> str:
    """An exit code as `os.waitstatus_to_exitcode` gives it, in words: `exit code 3`, `signal 11 (SIGSEGV)`."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"signal {-code} ({signal.Signals(-code).name})"
    except ValueError:
        return f"signal {-code}"
