"""What a reader of blocks and the server of a host say to each other. The run is that of the connection's handshake.

A request is answered by as many `Part` as it takes, in the order of its wants: short ranges share one, a long range has
one of its own. A tail holds the bytes, one range after the other.
"""

from __future__ import annotations

from msgspec import Struct

GONE, REFUSED = -1, -2
"""Lengths of ranges that are not there: the host does not have the block; it may not have this name, or cannot read."""
WANTS_LIMIT = 1024
"""Wants of one request."""
REQUEST_LIMIT = 1 << 20
"""Bytes of one request."""
BATCH = 128 << 10
"""Bytes up to which answers share a `Part`; longer ranges go from the file to the socket within the kernel."""


class Want(Struct, frozen=True, array_like=True):
    """A range of a block."""

    name: str
    """Below the run: `<segment>/<partition>.<attempt>.<nonce>`."""
    offset: int
    length: int
    """-1: to the end of the block."""


class Pull(Struct, frozen=True, tag="pull"):
    """Send me these, in this order."""

    wants: tuple[Want, ...]


class Part(Struct, frozen=True, tag="part"):
    """Answers to the next wants: how many bytes of each are in the tail (fewer than wanted where the block ends)."""

    lengths: tuple[int, ...]
