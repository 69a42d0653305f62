"""Collectives for user functions that run as a gang: broadcast, reduce, shuffle, barrier (docs/channels.md).

with BroadcastChannel("weights") as channel:
    channel.send(value)        # one member
    value = channel.receive()  # the others
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .errors import DeadlinePassed, MemberLost, ReduceFailed
from .gang import Gang, current_gang, current_member, taking_part

if TYPE_CHECKING:
    from .collectives import Barrier, BroadcastChannel, ReduceChannel, ShuffleChannel
    from .member import Member

_LATE = {
    "Barrier": "collectives",
    "BroadcastChannel": "collectives",
    "ReduceChannel": "collectives",
    "ShuffleChannel": "collectives",
    "Member": "member",
}


def __getattr__(name: str) -> Any:
    """Sockets and threads are loaded by functions that use channels, not by every worker."""
    if name in _LATE:
        from importlib import import_module

        return getattr(import_module(f".{_LATE[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "Barrier",
    "BroadcastChannel",
    "DeadlinePassed",
    "Gang",
    "Member",
    "MemberLost",
    "ReduceChannel",
    "ReduceFailed",
    "ShuffleChannel",
    "current_gang",
    "current_member",
    "taking_part",
]
