"""A gang: partitions that run at the same time and may exchange values over channels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from ..encoding.references import BlockRef

if TYPE_CHECKING:
    from ..coordinator.server import CoordinatorServer

CHANNELS = "channels"
"""The folder, below the run's, of the blocks of all its gangs."""


class MeetingPlace(Struct, frozen=True):
    """How the members of a gang reach their coordinator and each other."""

    coordinator: CoordinatorServer
    """In the driver's process: the members' checkpoints go through it."""
    address: str
    """See `Gang.address`."""
    one_host: bool = False
    """See `Gang.one_host`."""
    inbound: bool = True
    """See `Gang.inbound`."""
    identity: str = ""
    """See `Gang.identity`."""


class Gang(Struct, frozen=True, array_like=True):
    """The data that one member needs to take part."""

    address: str
    """Address of the coordinator, `tcp://host:port` or `tls://host:port`."""
    run: str
    name: str
    """Unique among the gangs of the run, and new for each attempt; it prefixes the names of channels."""
    rank: int
    """0 .. size - 1."""
    size: int
    deadline: float = 60.0
    """Default deadline of a channel operation, in seconds."""
    one_host: bool = False
    """All members share this host's memory and none will come from another host. They then use Unix sockets, if their
    coordinator is on loopback, and large values have no checksum.
    """
    inbound: bool = True
    """Members can be dialled. Otherwise two members dial each other at the same time, and the coordinator relays their
    messages meanwhile.
    """
    identity: str = ""
    """For connections between members off loopback: PEM of a private key and its certificate, which the members share.
    Without it, members off loopback cannot be dialled.
    """
    checkpoint: int = 0
    """Number of the checkpoint from which the gang starts; 0: from the beginning."""
    state: BlockRef | None = None
    """This member's state in that checkpoint."""


STATES = "checkpoints"
"""The folder, below the run's, of the states that members have saved."""


def state_name(gang: Gang, checkpoint: int) -> str:
    """The name of a member's state, which is the same for each attempt: the `#` in a gang's name separates the segment
    from the attempt."""
    return f"{STATES}/{gang.name.rpartition('#')[0]}/{checkpoint}.{gang.rank}"


def folder_of(gang: str) -> str:
    """The folder, below the run's, of the blocks that a gang or one of its members puts; only the gang reads it."""
    return f"{CHANNELS}/{gang}"
