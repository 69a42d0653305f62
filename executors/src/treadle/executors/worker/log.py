"""The log of a worker process: a file on its fd 1 and 2, where prints of C code and of subprocesses land too."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys

from ..runtime.failures import Redactor

TAIL = 64 * 1024
"""Bytes of a partition's log that its report carries."""


_MARGIN = 64 * 1024
"""Bytes read beyond the tail, so that a secret of that length which begins before it is recognised."""


def open_log() -> int:
    """A file without a name, appended to by everyone who holds it; gone with its last holder."""
    import fcntl
    import tempfile

    fd, name = tempfile.mkstemp(prefix="treadle-log-")
    os.unlink(name)
    fcntl.fcntl(fd, fcntl.F_SETFL, os.O_APPEND)
    return fd


def read_tail(fd: int) -> bytes:
    """The last bytes of the file; a little more than TAIL."""
    size = TAIL + _MARGIN
    return os.pread(fd, size, max(0, os.fstat(fd).st_size - size))


def publish(tail: bytes, redactor: Redactor) -> bytes:
    """What `read_tail` gave, as a report may carry it: without secrets, at most TAIL bytes."""
    return redactor.log(tail)[-TAIL:]


class WorkerLog:
    """The log as the worker process sees it: cut after each partition."""

    def __init__(self) -> None:
        self.fd = os.dup(2)
        """Ours: user code may redirect or close fd 1 and 2."""
        self._flush_c = ctypes.CDLL(None).fflush

    def cut(self) -> bytes:
        """The tail of what was printed since the last cut; the file is emptied."""
        with contextlib.suppress(Exception):  # a user's own stream object may do anything
            sys.stdout.flush()
            sys.stderr.flush()
        self._flush_c(None)
        if os.fstat(self.fd).st_size == 0:
            return b""
        tail = read_tail(self.fd)
        os.ftruncate(self.fd, 0)
        return tail
