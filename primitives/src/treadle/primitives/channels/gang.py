"""A gang: partitions that run at the same time and may exchange values over channels."""

from __future__ import annotations

from msgspec import Struct


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
    """All members share this host's memory, and none will come from elsewhere: they speak over Unix sockets then, if
    their coordinator is on loopback, and large values have no checksum."""


def folder_of(gang: str) -> str:
    """Below the run: all that members of a gang, or one of them, put; nobody else reads it."""
    return f"channels/{gang}"
