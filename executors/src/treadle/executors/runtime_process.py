"""What a worker process is set to before user code runs, and what an attempt cost it."""

from __future__ import annotations

import os
import resource
import time

_ONE_THREAD = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)


def prepare_process() -> None:
    """Make results independent of the host: UTC, one thread for BLAS. Call before user code, or NumPy, is imported.

    Whoever starts the process also sets PYTHONHASHSEED=0, which a running interpreter cannot change.
    """
    os.environ["TZ"] = "UTC"
    time.tzset()
    for name in _ONE_THREAD:
        os.environ[name] = "1"


class Meter:
    """Wall time, CPU time and peak memory of what runs between `start` and reading them."""

    def __init__(self) -> None:
        self._status = _open_status()
        self._wall = self._cpu = 0.0

    def start(self) -> None:
        if self._status >= 0:
            _reset_peak()
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def seconds(self) -> float:
        return time.perf_counter() - self._wall

    def cpu_seconds(self) -> float:
        return time.process_time() - self._cpu

    def peak_memory(self) -> int:
        """Bytes: since `start` where the kernel allows to reset its mark, of the process's life elsewhere."""
        if self._status >= 0:
            line = os.pread(self._status, 4096, 0).partition(b"VmHWM:")[2]
            return int(line.split(maxsplit=1)[0]) * 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _reset_peak() -> None:
    """Set VmHWM back to what is resident now (proc(5), clear_refs)."""
    descriptor = os.open("/proc/self/clear_refs", os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, b"5")
    finally:
        os.close(descriptor)


def _open_status() -> int:
    """A descriptor of /proc/self/status, or -1 where the mark is missing or cannot be reset."""
    try:
        _reset_peak()
        descriptor = os.open("/proc/self/status", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return -1
    if b"VmHWM:" in os.pread(descriptor, 4096, 0):
        return descriptor
    os.close(descriptor)
    return -1
