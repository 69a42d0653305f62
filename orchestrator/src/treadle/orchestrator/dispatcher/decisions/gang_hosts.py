"""The hosts whose slots a gang takes. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class HostRoom(NamedTuple):
    """A host that may lend slots."""

    host: str
    """Host id."""
    slots: int
    idle: int


def shares(size: int, hosts: Iterable[HostRoom], here: str) -> dict[str, int] | None:
    """The number of slots of each host, the first ranks first; None: all hosts together have too few.

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
