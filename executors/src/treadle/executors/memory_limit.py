"""The memory limit of a process: setting it, and detecting afterwards that it caused the end of the process."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
from collections.abc import Iterator
from pathlib import Path

_PAGE = resource.getpagesize()
_ROOT = Path("/")


def allocated_bytes() -> int:
    """Private writable memory of this process, which is the memory that RLIMIT_DATA counts (Linux 4.7 and later)."""
    with open("/proc/self/statm", "rb", buffering=0) as file:
        return int(file.read().split()[5]) * _PAGE


def limit_allocation(bound: int) -> None:
    """Limit the memory of this process to `bound` bytes; beyond that malloc fails. 0: as much as the hard limit allows.

    Only the soft limit changes. Shared mappings, such as blocks of the host, do not count.
    """
    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
    soft = bound or hard
    if hard != resource.RLIM_INFINITY:
        soft = min(soft, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


@contextlib.contextmanager
def uncounted(most: int = 1 << 40) -> Iterator[None]:
    """Raise the limit by the memory that is allocated within the context, and by `most` bytes at most."""
    soft, before = resource.getrlimit(resource.RLIMIT_DATA)[0], allocated_bytes()
    if soft == resource.RLIM_INFINITY:
        yield
        return
    limit_allocation(soft + most)
    try:
        yield
    finally:
        limit_allocation(soft + min(allocated_bytes() - before, most))


def processors() -> int:
    """Number of processors that this process may use, which can be lower than the machine's."""
    return len(os.sched_getaffinity(0))


def host_memory(root: Path = _ROOT) -> int:
    """Bytes that the processes here may use together: the smaller of the machine's memory and the control group's
    limit."""
    bounds = [int(_field(root / "proc/meminfo", "MemTotal:").split()[0]) * 1024]
    for folder in _memory_groups(root):
        for name in ("memory.max", "memory.limit_in_bytes"):
            text = _read(folder / name).strip()
            if text.isdigit():
                bounds.append(int(text))
    return min(bounds)


def oom_kills(root: Path = _ROOT) -> int:
    """How many processes the kernel has killed for lack of memory, in our control groups and on the host."""
    counters = [root / "proc/vmstat"]
    for folder in _memory_groups(root):
        counters += [folder / "memory.events", folder / "memory.oom_control"]
    return sum(int(_field(path, "oom_kill") or 0) for path in counters)


def _memory_groups(root: Path) -> Iterator[Path]:
    """The memory control groups of this process: cgroup v2, v1, and those visible inside a container."""
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
    """Describe an exit code as returned by `os.waitstatus_to_exitcode`: `exit code 3`, `signal 11 (SIGSEGV)`."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"signal {-code} ({signal.Signals(-code).name})"
    except ValueError:
        return f"signal {-code}"
