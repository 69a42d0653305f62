"""The log of a worker process: a file on its fd 1 and 2, which also receives output of C code and subprocesses."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from typing import Any

from ..redaction import Redactor

TAIL = 64 * 1024
"""Bytes of a partition's log that its report carries."""

FULL = 16 << 20
"""Bytes on disk above which `bound` keeps only the tail of a log."""

_PUNCH_HOLE = 0x03
"""FALLOC_FL_PUNCH_HOLE and FALLOC_FL_KEEP_SIZE (fallocate(2))."""

_MARGIN = 64 * 1024
"""Bytes read in addition to the tail, so that a secret of that length across the boundary is recognised."""


def open_log() -> int:
    """A file without a name, opened for appending. It disappears with its last descriptor."""
    import fcntl
    import tempfile

    fd, name = tempfile.mkstemp(prefix="treadle-log-")
    os.unlink(name)
    fcntl.fcntl(fd, fcntl.F_SETFL, os.O_APPEND)
    return fd


def read_tail(fd: int) -> bytes:
    """The last bytes of the file, slightly more than TAIL."""
    size = TAIL + _MARGIN
    return os.pread(fd, size, max(0, os.fstat(fd).st_size - size))


def bound(fd: int) -> None:
    """Release the disk space of the first part of a long log, which a function that prints endlessly would fill.

    It punches a hole, so that concurrent writing, reading and cutting are not affected. Without support by the file
    system, nothing happens.
    """
    status = os.fstat(fd)
    if status.st_blocks * 512 > FULL:
        length = ctypes.c_int64(status.st_size - TAIL - _MARGIN)
        ctypes.CDLL(None).fallocate(fd, _PUNCH_HOLE, ctypes.c_int64(0), length)


def publish(tail: bytes, redactor: Redactor) -> bytes:
    """The result of `read_tail` for a report: without secrets, at most TAIL bytes."""
    return redactor.log(tail)[-TAIL:]


def line_by_line() -> None:
    """Write output at the end of each line, so that the last words of a killed process are in its log."""
    streams: tuple[Any, ...] = (sys.stdout, sys.stderr)
    for stream in streams:
        stream.reconfigure(line_buffering=True, errors="backslashreplace")


class WorkerLog:
    """The log as the worker process uses it: cut after each partition."""

    def __init__(self) -> None:
        self.fd = os.dup(2)
        """A duplicate for treadle: user code may redirect or close fd 1 and 2."""
        self._flush_c = ctypes.CDLL(None).fflush

    def cut(self) -> bytes:
        """The tail of the output since the last cut; the file is emptied."""
        with contextlib.suppress(Exception):  # a user's own stream object may raise any exception
            sys.stdout.flush()
            sys.stderr.flush()
        self._flush_c(None)
        if os.fstat(self.fd).st_size == 0:
            return b""
        tail = read_tail(self.fd)
        os.ftruncate(self.fd, 0)
        return tail
