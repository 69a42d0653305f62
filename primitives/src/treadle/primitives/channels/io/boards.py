"""Where members of one host meet without a message: boards, which say who has arrived, and a bell that wakes them all.

A **board** is a page of shared memory with a count for each member: how often it has arrived at one barrier. Nobody
writes another's count, and none falls; so a generation that is complete is so for all who look, for ever. When some die
meanwhile, each of the others that has not arrived says that it will not; nobody gives up before it is certain that one
is missing. So all pass or none does. The **bell** only says that it is time to look.
"""

from __future__ import annotations

import contextlib
import mmap
import os
from collections.abc import Iterable
from pathlib import Path

import xxhash

from ...host import HostFolder
from ...store_errors import border
from ...whole_files import make_folders

_COUNT = 8
"""Bytes of a count: it is written whole. Behind the counts one more says whether somebody refuses."""


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
    """One barrier's."""

    def __init__(self, path: Path, rank: int, size: int, bell: Bell) -> None:
        self._path, self._rank, self._bell = path, rank, bell
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(descriptor, 0, (size + 1) * _COUNT)  # in shared memory that is full, now or never
            self._memory = mmap.mmap(descriptor, (size + 1) * _COUNT)
        finally:
            os.close(descriptor)
        words = memoryview(self._memory).cast("Q")
        self._counts, self._refused = words[:size], words[size:]

    def arrive(self, generation: int) -> None:
        """This member is at the barrier for the (generation + 1)-th time; whoever completes it wakes the others.

        Two that arrive at once may each miss the other's count, as a store is seen late: nobody rings then, and those
        who wait find out when they next look.
        """
        self._counts[self._rank] = generation + 1
        if self.complete(generation):
            if not generation:
                self._remove()  # everybody has it open
            self._bell.ring()

    def refuse(self, generation: int) -> None:
        """If this member has not arrived, it will not any more."""
        if self._counts[self._rank] <= generation:
            self._refused[0] = 1
            self._bell.ring()

    def fails(self, generation: int, lost: Iterable[str]) -> bool:
        """Whether it is certain that not all will arrive, unless they have; those of the ranks `lost` are dead.

        To be asked before `complete`: who refuses a later generation has passed this one, which is seen then.
        """
        return bool(self._refused[0]) or any(self._counts[int(rank)] <= generation for rank in lost)

    def complete(self, generation: int) -> bool:
        """Whether all members have arrived."""
        return min(self._counts) > generation

    def present(self, generation: int) -> int:
        """How many have."""
        return sum(count > generation for count in self._counts)

    def _remove(self) -> None:
        self._path.unlink(missing_ok=True)
        self._bell.remove()

    def close(self) -> None:
        self._remove()
        self._counts.release()
        self._refused.release()
        self._memory.close()


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
