"""The gang that a user function runs in, and the member that this process or thread is."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ..blocks import Blocks
from ..errors import UsageError
from .gang import Gang

if TYPE_CHECKING:
    from .member import Member


class _Place:
    """This process in its gang; it becomes a member at its first channel."""

    def __init__(self, gang: Gang, key: bytes, blocks: Blocks) -> None:
        self.gang, self._key, self._blocks = gang, key, blocks
        self._member: Member | None = None

    def member(self) -> Member:
        if self._member is None:
            from .member import Member  # sockets and threads: only for gangs that use channels

            self._member = Member(self.gang, self._key, self._blocks)
        return self._member

    def restored(self) -> Any:
        state = self.gang.state
        if state is None:
            return None
        value = self._blocks.get(state.slice(0))
        return value[0] if state.kind == "objects" else value

    def close(self) -> None:
        if self._member is not None:
            self._member.close()


class _Thread(threading.local):
    """The member of one thread (see `standing_in`)."""

    member: Member


_place: _Place | None = None
_thread = _Thread()


@contextmanager
def taking_part(gang: Gang, key: bytes, blocks: Blocks) -> Iterator[None]:
    """Let this process take part in `gang` while a user function runs; one gang at a time.

    `key` is the run's. The process connects at the function's first use of a channel. Raises UsageError when the
    process already takes part in a gang.
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
    """Make only the calling thread a member, for a gang of threads, as in the reference interpreter."""
    _thread.member = member
    try:
        yield
    finally:
        del _thread.member


def current_gang() -> Gang:
    """Return the gang that the calling function runs in. Raises UsageError outside of a gang."""
    return _thread.member.gang if hasattr(_thread, "member") else _current().gang


def current_member() -> Member:
    """Return this process as a connected member of its gang. Raises UsageError outside of a gang."""
    return _thread.member if hasattr(_thread, "member") else _current().member()


def restored_state() -> Any:
    """The state of this member in the checkpoint from which its gang starts; None: there is none.

    Raises UsageError outside of a gang, and the errors of `Blocks.get`.
    """
    return None if hasattr(_thread, "member") else _current().restored()


def _current() -> _Place:
    if _place is None:
        raise UsageError(
            "channels connect partitions that run at the same time, and this function does not run so",
            'Give its map stage "gang: n": n partitions then run together, as members of one gang.',
        )
    return _place
