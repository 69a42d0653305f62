"""The gang that a user function runs in, and this process, or thread, as a member of it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ..blocks import Blocks
from ..errors import UsageError
from .gang import Gang

if TYPE_CHECKING:
    from .member import Member


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
