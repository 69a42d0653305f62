"""Where members of one host meet without a message: boards, which say who has arrived, and a bell that wakes them all.

A **board** is a page of shared memory with a count for each member: how often it has arrived at one barrier. Nobody
writes another's count, and none falls; so a generation that is complete is so for all who look, for ever. Once somebody
is said to be gone, which may be wrong of who was only silent, whoever looks next decides, for all and for ever, that
what is not complete never will be: so all pass or none does. The **bell** only says that it is time to look.
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
"""Bytes of a count: it is written whole."""
_SETTLES = 0.01
"""Seconds after which everybody sees what was written; it takes microseconds."""


class Boards:
    """Of one gang, all of whose members have this folder; `size` of them, this one is `rank`."""

    def __init__(self, host: HostFolder, name: str, rank: int, size: int) -> None:
        """Below `name` in the folder. Raises StoreError."""
        self._host, self._name, self._rank, self._size = host, name, rank, size
        self._boards: list[Board] = []
        with border(host.url, name):
            make_folders(host.path(name))
            self.bell = Bell(host.path(f"{name}/bell"))

    def open(self, barrier: str) -> Board:
        """The board of a barrier, the same file for all. Raises StoreError."""
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
    """One barrier's. Behind the counts stand, once that matters, who is gone and how many generations pass."""

    def __init__(self, path: Path, rank: int, size: int, bell: Bell) -> None:
        self._path, self._rank, self._bell = path, rank, bell
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(self._file, 0, (size + 2) * _WORD)  # in shared memory that is full, now or never
            self._memory = mmap.mmap(self._file, (size + 2) * _WORD)
        except BaseException:
            os.close(self._file)
            raise
        words = memoryview(self._memory).cast("Q")
        self._counts, self._gone, self._limit = words[:size], words[size : size + 1], words[size + 1 :]
        """The last two count from 1; 0: nobody is, that is open."""
        self._doubted_at = 0.0

    def arrive(self, generation: int) -> None:
        """This member is at the barrier for the (generation + 1)-th time; whoever completes it wakes the others.

        Two that arrive at once may each miss the other's count, as a store is seen late: nobody rings then, and those
        who wait find out when they next look.
        """
        self._counts[self._rank] = generation + 1
        if min(self._counts) > generation:
            if not generation:
                self._remove()  # everybody has it open
            self._bell.ring()

    def doubt(self, rank: int) -> None:
        """This member is gone, or was silent for so long that others go on without it."""
        self._gone[0] = self._gone[0] or rank + 1

    @property
    def gone(self) -> int:
        """Who was doubted."""
        return self._gone[0] - 1

    def met(self, generation: int) -> bool | None:
        """Whether all members arrive in this generation, the same for all who ask; None: that is open.

        Without a lock while nobody is gone: whoever sees that all are there looks at the counts first, and who decides
        waits until they show what was seen then.
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
        """With an exclusive lock: and decide."""
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
        """How many have arrived."""
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
    """A FIFO that all members of a gang have open: one write wakes everybody who waits with EPOLLET.

    Nobody reads what they are woken by. Whoever rings empties it before: what is written into an empty one is an edge
    for each of them (epoll(7), pipe(7)).
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor = -1
        while self._descriptor < 0:
            with contextlib.suppress(FileExistsError):
                os.mkfifo(path, 0o600)
            with contextlib.suppress(FileNotFoundError):  # somebody has ended, and removed it
                self._descriptor = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)

    def fileno(self) -> int:
        return self._descriptor

    def ring(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._descriptor, 64)
        with contextlib.suppress(BlockingIOError):  # somebody else has just rung it, very often
            os.write(self._descriptor, b"!")

    def remove(self) -> None:
        """Nobody need open it any more."""
        self._path.unlink(missing_ok=True)

    def close(self) -> None:
        self.remove()
        os.close(self._descriptor)
