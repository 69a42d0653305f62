"""What a worker process is set to before user code runs, and what an attempt cost it."""

from __future__ import annotations

import ctypes
import os
import resource
import time

from .. import memory_limit

_ONE_THREAD = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "POLARS_MAX_THREADS",
)


_BRIEF = 0.001
"""Seconds. A partition over sooner cannot have touched much memory, and reading the mark would be most of its cost."""
_RESET_PEAK = b"5"
"""Sets VmHWM back to what is resident now (proc(5), clear_refs)."""


_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_OLD_MOST = 32 << 20
"""The highest threshold that older versions of glibc take; they refuse a higher one."""
_KEPT_SHARE, _KEPT_AT_MOST = 32, 1 << 30
"""Freed memory that a process keeps: one part in so many of the machine's, and so many bytes at most."""


def prepare_process() -> None:
    """Make results independent of the host: UTC, one thread for BLAS and Polars. Call before user code imports either.

    Whoever starts the process also sets PYTHONHASHSEED=0, which a running interpreter cannot change.
    """
    os.environ["TZ"] = "UTC"
    time.tzset()
    for name in _ONE_THREAD:
        os.environ[name] = "1"
    _keep_freed_memory()


def _keep_freed_memory() -> None:
    """Let large arrays use the memory of those before them (mallopt(3)).

    By default the allocator returns such memory to the kernel at once, which clears every page of the next array:
    that takes longer than most functions do.
    """
    most = min(memory_limit.host_memory() // _KEPT_SHARE, _KEPT_AT_MOST)
    try:
        libc = ctypes.CDLL(None)
        libc.mallopt(_M_TRIM_THRESHOLD, most)
        if not libc.mallopt(_M_MMAP_THRESHOLD, most):
            libc.mallopt(_M_MMAP_THRESHOLD, _OLD_MOST)
    except AttributeError:  # another C library, which has an allocator of its own
        return


def give_back_memory() -> None:
    """Return all freed memory to the kernel (malloc_trim(3))."""
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except AttributeError:
        return


class Meter:
    """Wall time, CPU time and peak memory, since `start`, of the process that makes it."""

    def __init__(self) -> None:
        self._status, self._reset = _open_status()
        self._wall = self._cpu = 0.0
        self.started = 0.0
        """Seconds since the epoch."""
        self._is_first = self._was_read = True

    def start_task(self) -> None:
        """The next partition is the first of its task."""
        self._is_first = self._was_read = True

    def start(self) -> None:
        if self._was_read and self._status >= 0:
            os.write(self._reset, _RESET_PEAK)
        self._was_read = False
        self.started = time.time()
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def seconds(self) -> float:
        return time.perf_counter() - self._wall

    def cpu_seconds(self) -> float:
        return time.process_time() - self._cpu

    def peak_memory(self) -> int:
        """Bytes: since `start` where the kernel allows to reset its mark, of the process's life elsewhere.

        0, not measured, when less than a millisecond has passed; but not so for the first partition of a task. What
        such brief partitions used counts for the next one that is measured.
        """
        if self.seconds() < _BRIEF and not self._is_first:
            return 0
        self._is_first, self._was_read = False, True
        if self._status >= 0:
            line = os.pread(self._status, 4096, 0).partition(b"VmHWM:")[2]
            return int(line.split(maxsplit=1)[0]) * 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _open_status() -> tuple[int, int]:
    """Descriptors of status and clear_refs in /proc/self, or -1 where the mark is missing or cannot be reset."""
    opened: list[int] = []
    try:
        opened.append(os.open("/proc/self/status", os.O_RDONLY | os.O_CLOEXEC))
        opened.append(os.open("/proc/self/clear_refs", os.O_WRONLY | os.O_CLOEXEC))
        os.write(opened[1], _RESET_PEAK)
        if b"VmHWM:" in os.pread(opened[0], 4096, 0):
            return opened[0], opened[1]
    except OSError:
        pass
    for descriptor in opened:
        os.close(descriptor)
    return -1, -1
