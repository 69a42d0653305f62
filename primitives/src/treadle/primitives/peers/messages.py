"""Messages between a reader of blocks and the server of a host. The run is that of the connection's handshake.

A request is answered by one or more `PullAnswer`, in the order of its ranges: short ranges share a `PullAnswer`, a long
range has its own. Its tail holds the bytes, one range after the other.

A reader asks the gateway of its own host for blocks of members that it cannot dial. Gateways exchange `Ask` and
`AskAnswer`, over a path or through the coordinator.
"""

from __future__ import annotations

from msgspec import Struct

GONE, REFUSED = -1, -2
"""Lengths that report a failure: the host does not have the block; the name is not allowed or the file is
not readable.
"""
UNREACHED = -3
"""The gateway could not reach the member."""
WANTS_LIMIT = 1024
"""Limit of ranges in one request."""
REQUEST_LIMIT = 1 << 20
"""Limit of bytes in one request."""
BATCH = 128 << 10
"""Bytes up to which answers share a `PullAnswer`; longer ranges go from the file to the socket within the kernel."""
PIECE = 4 << 20
"""Limit of bytes in an `AskAnswer`."""


class Want(Struct, frozen=True, array_like=True):
    """A range of a block."""

    name: str
    """The name below the run: `<segment>/<partition>.<attempt>.<nonce>`."""
    offset: int
    length: int
    """-1: to the end of the block."""


class Pull(Struct, frozen=True, tag="pull"):
    """Requests these ranges, in this order."""

    wants: tuple[Want, ...]
    member: str = ""
    """Read from this member, through the gateway that receives the request."""
    direct: bool = False
    """Use only a path to the member: there is another copy, so a detour through the store would gain nothing."""


class PullAnswer(Struct, frozen=True, tag="part"):
    """Answers the next ranges: the number of bytes of each in the tail, fewer than requested where the block ends."""

    lengths: tuple[int, ...]


class Came(Struct, frozen=True, tag="came"):
    """Sent after all answers to a `Pull` from a member: the number of its bytes by their way."""

    over: dict[str, int]
    """Keys: `path`, `relayed`, `stored`."""


class Ask(Struct, frozen=True, tag="ask"):
    """A member requests these ranges from another member, in this order."""

    number: int
    """Returned with the answer; the requesting member uses each number once."""
    run: str
    wants: tuple[Want, ...]


class AskAnswer(Struct, frozen=True, tag="answer"):
    """The number of bytes of each range. Over a path, the tail holds the first PIECE bytes of all ranges together. A
    relayed answer holds them in `data`, or names an object in `stored`.
    """

    number: int
    lengths: tuple[int, ...]
    data: bytes = b""
    stored: str = ""
    """Token of a sealed object in the run's store (`store_relay`), which the requesting member removes."""
    run: str = ""
    """Of the object: the request may be over."""
