"""The hosts whose slots a gang takes, and the ranks that run on each. Pure.

The tree of a reduce follows from the ranks alone, so that sums are the same bits everywhere. Hosts therefore get ranks
that are connected in this tree: few of its links then join two hosts.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from treadle.primitives.coordinator.tree import children

FAN_OUT = 2
"""The default of channels."""


class HostRoom(NamedTuple):
    """A host that may lend slots."""

    host: str
    """Host id."""
    slots: int
    idle: int


def shares(size: int, hosts: Iterable[HostRoom], here: str) -> dict[str, int] | None:
    """The number of slots of each host, the one with rank 0 first; None: all hosts together have too few.

    This host gives all it can, then those with most idle slots, so that few hosts take part. Idle slots suffice if
    possible; otherwise the gang waits for slots at these hosts.
    """
    order = sorted(hosts, key=lambda one: (one.host != here, -one.idle, -one.slots, one.host))
    return _filled(size, {one.host: one.idle for one in order}) or _filled(
        size, {one.host: one.slots for one in sorted(order, key=lambda one: (one.host != here, -one.slots, one.host))}
    )


def _filled(size: int, rooms: dict[str, int]) -> dict[str, int] | None:
    found: dict[str, int] = {}
    for host, room in rooms.items():
        if taken := min(room, size - sum(found.values())):
            found[host] = taken
    return found if sum(found.values()) == size else None


def by_subtrees(size: int) -> list[int]:
    """The ranks in an order whose consecutive pieces are connected in the tree, or nearly so: each member after its
    parent, and the last child with all below it first."""
    found, rest = list[int](), [0] if size else []
    while rest:
        found.append(rank := rest.pop())
        rest.extend(children(rank, FAN_OUT, size))
    return found
