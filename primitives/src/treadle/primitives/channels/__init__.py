"""Collectives for user functions that run as a gang: broadcast, reduce, shuffle, barrier (docs/channels.md).

with BroadcastChannel("weights") as channel:
    channel.send(value)        # one member
    value = channel.receive()  # the others
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..lazy_import import late
from .errors import DeadlinePassed, GangEnded, MemberLost, ReduceFailed
from .gang import Gang
from .gang_context import GangContext
from .member_scope import current_gang

if TYPE_CHECKING:
    from .collectives import Barrier, BroadcastChannel, ShuffleChannel
    from .reduce_channel import ReduceChannel

_CHANNELS = dict.fromkeys(("Barrier", "BroadcastChannel", "ShuffleChannel"), ".collectives")
# Sockets and threads are loaded by functions that use channels, not by every worker.
__getattr__ = late(__name__, {**_CHANNELS, "ReduceChannel": ".reduce_channel"})

__all__ = [
    "Barrier",
    "BroadcastChannel",
    "DeadlinePassed",
    "Gang",
    "GangContext",
    "GangEnded",
    "MemberLost",
    "ReduceChannel",
    "ReduceFailed",
    "ShuffleChannel",
    "current_gang",
]
