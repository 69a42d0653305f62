"""Settings of a worker process before user code runs, and measurement of an attempt."""

from __future__ import annotations

import ctypes
import functools
import os
import resource
import sys
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
"""Seconds. A shorter partition cannot have touched much memory, and reading the peak would be most of its cost."""
_RESET_PEAK = b"5"
"""Resets VmHWM to the current resident size (proc(5), clear_refs)."""


_BLAS_SIZE = 64
"""Rows and columns of matrices whose product needs OpenBLAS's buffer."""
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_OLD_MOST = 32 << 20
"""The highest threshold that older versions of glibc accept."""
_KEPT_SHARE, _KEPT_AT_MOST = 32, 1 << 30
"""Freed memory that a process keeps: this fraction of the machine's memory, and a maximum in bytes."""


def prepare_process() -> None:
    """Make results independent of the host: UTC, one thread for BLAS and Polars. Call it before user code imports them.

    The parent process also sets PYTHONHASHSEED=0, which a running interpreter cannot change.
    """
    os.environ["TZ"] = "UTC"
    time.tzset()
    for name in _ONE_THREAD:
        os.environ[name] = "1"
    _keep_freed_memory()


def _keep_freed_memory() -> None:
    """Let large arrays reuse the memory of earlier ones (mallopt(3)).

    By default the allocator returns such memory to the kernel at once, which then clears every page of the next array.
    Clearing takes longer than most functions.
    """
    most = min(memory_limit.host_memory() // _KEPT_SHARE, _KEPT_AT_MOST)
    try:
        libc = ctypes.CDLL(None)
        libc.mallopt(_M_TRIM_THRESHOLD, most)
        if not libc.mallopt(_M_MMAP_THRESHOLD, most):
            libc.mallopt(_M_MMAP_THRESHOLD, _OLD_MOST)
    except AttributeError:  # another C library, which has its own allocator
        return


def give_back_memory() -> None:
    """Return all freed memory to the kernel (malloc_trim(3))."""
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except AttributeError:
        return


def import_numpy() -> None:
    """Import NumPy, which needs 44 MiB, mostly for OpenBLAS. They do not count as the task's memory: whether a process
    has imported it already must not decide whether a task fits.
    """
    with memory_limit.uncounted():
        import numpy as np  # noqa: F401


@functools.cache
def _allocate_blas_buffer() -> None:
    import numpy as np

    with memory_limit.uncounted():
        matrix = np.ones((_BLAS_SIZE, _BLAS_SIZE))
        _ = matrix @ (2 * matrix.T)


def prepare_blas() -> None:
    """Allocate OpenBLAS's buffer of 32 MB, once, if NumPy is imported. The buffer does not count as the task's memory.

    OpenBLAS allocates it at the first large product. If the memory limit forbids that, OpenBLAS tries again for ever.
    """
    if "numpy" in sys.modules:
        _allocate_blas_buffer()


class Meter:
    """Wall time, CPU time and peak memory of the current process since `start`."""

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
        """Bytes since `start` if the kernel allows resetting the peak, otherwise since the start of the process.

        Returns 0 (not measured) when less than a millisecond has passed, except for the first partition of a task. The
        memory of such short partitions counts for the next one that is measured.
        """
        if self.seconds() < _BRIEF and not self._is_first:
            return 0
        self._is_first, self._was_read = False, True
        if self._status >= 0:
            line = os.pread(self._status, 4096, 0).partition(b"VmHWM:")[2]
            return int(line.split(maxsplit=1)[0]) * 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _open_status() -> tuple[int, int]:
    """Descriptors of status and clear_refs in /proc/self, or -1 if the peak is missing or cannot be reset."""
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
