"""The gang a user function runs in: partitions that run at the same time and may exchange values over channels."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from msgspec import Struct

from ..blocks import Blocks
from ..errors import UsageError

if TYPE_CHECKING:
    from .member import Member


class Gang(Struct, frozen=True, array_like=True):
    """What one member needs to know to take part."""

    address: str
    """Of the coordinator, `tcp://host:port` or `tls://host:port`."""
    run: str
    name: str
    """Unlike that of any other gang of the run, and new for each attempt; names of channels are below it."""
    rank: int
    """0 .. size - 1."""
    size: int
    deadline: float = 60.0
    """Seconds an operation of a channel may take that is not given a deadline of its own."""
    one_host: bool = False
    """All members share this host's memory, and none will come from elsewhere: large values have no checksum then."""


def folder_of(gang: str) -> str:
    """Below the run: all that members of a gang, or one of them, put; nobody else reads it."""
    return f"channels/{gang}"


class _Place:
    """Where this process takes part, from the first channel on."""

    def __init__(self, gang: Gang, key: bytes, blocks: Blocks) -> None:
        self.gang, self._key, self._blocks = gang, key, blocks
        self._member: Member | None = None

    def member(self) -> Member:
        if self._member is None:
            from .member import Member  # sockets and threads: not for gangs that use no channel

            self._member = Member(self.gang, self._key, self._blocks)
        return self._member

    def close(self) -> None:
        if self._member is not None:
            self._member.close()


class _Thread(threading.local):
    """A member that is one thread (see `standing_in`)."""

    member: Member


_place: _Place | None = None
_thread = _Thread()


@contextmanager
def taking_part(gang: Gang, key: bytes, blocks: Blocks) -> Iterator[None]:
    """Make this process a member of `gang` for as long as a user function runs; one at a time.

    `key` is the run's. Nothing is connected before the function's first channel is used. Raises UsageError when the
    process takes part in a gang already.
    """
    global _place
    if _place is not None:
        raise UsageError(f"this process already takes part in the gang {_place.gang.name}", "One gang at a time.")
    place = _place = _Place(gang, key, blocks)
    try:
        yield
    finally:
        _place = None
        place.close()


@contextmanager
def standing_in(member: Member) -> Iterator[None]:
    """Make only the calling thread a member: of a gang of threads, as an interpreter of one process has them."""
    _thread.member = member
    try:
        yield
    finally:
        del _thread.member


def current_gang() -> Gang:
    """The gang the calling function runs in. Raises UsageError outside of one."""
    return _thread.member.gang if hasattr(_thread, "member") else _current().gang


def current_member() -> Member:
    """This process as a member of its gang, connected. Raises UsageError outside of a gang."""
    return _thread.member if hasattr(_thread, "member") else _current().member()


def _current() -> _Place:
    if _place is None:
        raise UsageError(
            "channels connect partitions that run at the same time, and this function does not run so",
            'Give its map stage "gang: n": n partitions then run together, as members of one gang.',
        )
    return _place
