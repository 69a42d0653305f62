"""Barriers of members of one host, without messages: boards that count arrivals, and a bell that wakes all members.

A **board** is a page of shared memory with a count for each member: how often the member has arrived at one barrier.
Each member writes only its own count, and counts only rise; so a complete generation stays complete for every reader.

A member may be reported as gone although it was only silent. Then the next reader decides, finally and for all members,
that incomplete generations will never be complete: so either all pass or none does. The **bell** only signals that it
is time to look.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import time
from pathlib import Path

import xxhash

from ...stores.atomic_files import make_folders
from ...stores.shared_memory import HostFolder
from ...stores.store_errors import border

_WORD = 8
"""Bytes of a count; it is written atomically."""
_SETTLES = 0.01
"""Seconds after which all processes see a write; it takes microseconds."""


class Boards:
    """The boards of one gang of `size` members, which all have this folder; this member's rank is `rank`."""

    def __init__(self, host: HostFolder, name: str, rank: int, size: int) -> None:
        """Boards are files below `name` in the folder. Raises StoreError."""
        self._host, self._name, self._rank, self._size = host, name, rank, size
        self._boards: list[Board] = []
        with border(host.url, name):
            make_folders(host.path(name))
            self.bell = Bell(host.path(f"{name}/bell"))

    def open(self, barrier: str) -> Board:
        """Open the board of a barrier, the same file for all members. Raises StoreError."""
        name = f"{self._name}/{xxhash.xxh3_128_hexdigest(barrier.encode())}"
        with border(self._host.url, name):
            board = Board(self._host.path(name), self._rank, self._size, self.bell)
        self._boards.append(board)
        return board

    def close(self) -> None:
        for board in self._boards:
            board.close()
        self.bell.close()


class Board:
    """The board of one barrier. Two more words follow the counts: the member that is gone, and how many generations
    pass.
    """

    def __init__(self, path: Path, rank: int, size: int, bell: Bell) -> None:
        self._path, self._rank, self._bell = path, rank, bell
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            # when shared memory is full, fail here and not at a later write
            os.posix_fallocate(self._file, 0, (size + 2) * _WORD)
            self._memory = mmap.mmap(self._file, (size + 2) * _WORD)
        except BaseException:
            os.close(self._file)
            raise
        words = memoryview(self._memory).cast("Q")
        self._counts, self._gone, self._limit = words[:size], words[size : size + 1], words[size + 1 :]
        """Both words hold their value plus 1; 0: no member is gone, the limit is open."""
        self._doubted_at = 0.0

    def arrive(self, generation: int) -> None:
        """This member arrives for the (generation + 1)-th time; the member that completes the generation wakes the
        others.

        Stores become visible late, so two members that arrive together may each miss the other's count. Then neither
        rings, and waiting members notice when they next look.
        """
        self._counts[self._rank] = generation + 1
        if min(self._counts) > generation:
            if not generation:
                self._remove()  # all members have opened it
            self._bell.ring()

    def doubt(self, rank: int) -> None:
        """Report that a member is gone, or was silent for so long that the others continue without it."""
        self._gone[0] = self._gone[0] or rank + 1

    @property
    def gone(self) -> int:
        """The rank of the member reported as gone."""
        return self._gone[0] - 1

    def met(self, generation: int) -> bool | None:
        """Return whether all members arrive in this generation, the same answer for all readers; None: still open.

        While no member is gone, readers take no lock, and read the counts before the word that names the lost member. A
        reader that decides first waits until the counts show all that such readers saw.
        """
        complete = min(self._counts) > generation
        if not self._gone[0]:
            return complete or None
        self._doubted_at = self._doubted_at or time.monotonic()
        met = self._look(generation, fcntl.LOCK_SH)
        if met is None and time.monotonic() - self._doubted_at >= _SETTLES:
            met = self._look(generation, fcntl.LOCK_EX)
        return met

    def _look(self, generation: int, lock: int) -> bool | None:
        """Read the board under the lock; an exclusive lock also decides."""
        try:
            fcntl.flock(self._file, lock | fcntl.LOCK_NB)
        except BlockingIOError:
            return None
        try:
            if lock == fcntl.LOCK_EX and not self._limit[0]:
                self._limit[0] = min(self._counts) + 1
                self._bell.ring()
            if limit := self._limit[0]:
                return generation + 1 < limit
            return min(self._counts) > generation or None
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)

    def present(self, generation: int) -> int:
        """Return how many members have arrived."""
        return sum(count > generation for count in self._counts)

    def _remove(self) -> None:
        self._path.unlink(missing_ok=True)
        self._bell.remove()

    def close(self) -> None:
        self._remove()
        for words in (self._counts, self._gone, self._limit):
            words.release()
        self._memory.close()
        os.close(self._file)


class Bell:
    """A FIFO that all members of a gang have open: one write wakes every member that waits with EPOLLET.

    Waiting members do not read from it. The ringing member empties it first: a write into an empty FIFO is an edge for
    each waiting member (epoll(7), pipe(7)).
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor = -1
        while self._descriptor < 0:
            with contextlib.suppress(FileExistsError):
                os.mkfifo(path, 0o600)
            with contextlib.suppress(FileNotFoundError):  # another member has ended and removed it
                self._descriptor = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)

    def fileno(self) -> int:
        return self._descriptor

    def ring(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._descriptor, 64)
        with contextlib.suppress(BlockingIOError):  # another member has just rung it, very often
            os.write(self._descriptor, b"!")

    def remove(self) -> None:
        """Remove the file; no further member needs to open it."""
        self._path.unlink(missing_ok=True)

    def close(self) -> None:
        self.remove()
        os.close(self._descriptor)
