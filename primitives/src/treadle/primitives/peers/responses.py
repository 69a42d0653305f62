"""Answers to one request: files of the run in the host's folder, read in batches or sent by the kernel."""

from __future__ import annotations

import contextlib
import os
import stat
import time

from ..errors import TreadleError, UsageError
from ..run_paths import run_folder
from ..stores.atomic_files import check_name
from ..stores.file_views import open_locked
from ..stores.shared_memory import HostFolder
from ..wire import Connection, WireError
from .messages import BATCH, GONE, PIECE, REFUSED, WANTS_LIMIT, Ask, AskAnswer, Pull, PullAnswer, Want

_PATIENCE = 60.0
"""Seconds that a reader may accept no bytes, for a request of any size."""
_SLOWEST = 64 << 10
"""Bytes per second that a reader must accept beyond that."""


def answer(connection: Connection, request: Pull, host: HostFolder) -> None:
    """Send the requested ranges. Raises WireError; TimedOut for a reader that accepts nothing."""
    if len(request.wants) > WANTS_LIMIT:
        connection.close()
        raise WireError(f"{connection.name} wants {len(request.wants)} ranges at once", f"{WANTS_LIMIT} are allowed.")
    with contextlib.closing(_Files(host, connection.run)) as files:
        batch = ResponseBatch(connection)
        for want in request.wants:
            length = files.length(want)
            if length > BATCH:
                batch.flush()
                deadline = time.monotonic() + _PATIENCE + length / _SLOWEST
                connection.send_file(PullAnswer((length,)), files.descriptor, want.offset, length, deadline=deadline)
            else:
                batch.add(length, files.read(want.offset, length) if length > 0 else b"")
        batch.flush()


def answer_ask(ask: Ask, host: HostFolder) -> tuple[AskAnswer, list[bytes]]:
    """Return the answer to a gateway, and its bytes."""
    lengths, data, left = [], [], PIECE
    try:
        with contextlib.closing(_Files(host, ask.run)) as files:
            for want in ask.wants:
                lengths.append(length := files.length(want))
                data.append(files.read(want.offset, min(length, left)) if length > 0 else b"")
                left -= len(data[-1])
    except (TreadleError, OSError):
        lengths, data = [REFUSED] * len(ask.wants), []
    return AskAnswer(ask.number, tuple(lengths)), data


class _Files:
    """The files of one run. The last one stays open, because ranges of one block follow each other."""

    def __init__(self, host: HostFolder, run: str) -> None:
        self._folder = f"{host.root}/{check_name(run_folder(run))}"
        self._name = ""
        self._size = GONE
        self.descriptor = -1

    def length(self, want: Want) -> int:
        """Return the available bytes of the range, GONE or REFUSED, and leave its file open."""
        if want.offset < 0 or want.length < -1:
            return REFUSED
        if want.name != self._name or self.descriptor < 0:
            self._open(want.name)
        if self._size < 0:
            return self._size
        there = max(self._size - want.offset, 0)
        return there if want.length < 0 else min(want.length, there)

    def read(self, offset: int, length: int) -> bytes:
        return os.pread(self.descriptor, length, offset)

    def close(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)
        self.descriptor = -1

    def _open(self, name: str) -> None:
        self.close()
        self._name = name
        try:
            path = f"{self._folder}/{check_name(name)}"
            self.descriptor = open_locked(path, os.O_NOFOLLOW)
            status = os.fstat(self.descriptor)
            self._size = status.st_size if stat.S_ISREG(status.st_mode) else GONE
        except (FileNotFoundError, NotADirectoryError):
            self._size = GONE
        except (OSError, UsageError, ValueError):
            self._size = REFUSED


class ResponseBatch:
    """Short answers that are sent together."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._lengths: list[int] = []
        self._data: list[bytes] = []
        self._size = 0

    def add(self, length: int, data: bytes) -> None:
        self._lengths.append(length if length < 0 else len(data))
        self._data.append(data)
        self._size += len(data)
        if self._size >= BATCH:
            self.flush()

    def flush(self) -> None:
        if self._lengths:
            deadline = time.monotonic() + _PATIENCE
            self._connection.send(PullAnswer(tuple(self._lengths)), self._data, deadline=deadline)
            self._lengths, self._data, self._size = [], [], 0
