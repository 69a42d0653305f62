"""What a reader of blocks and the server of a host say to each other. The run is that of the connection's handshake.

A request is answered by as many `Part` as it takes, in the order of its wants: short ranges share one, a long range has
one of its own. A tail holds the bytes, one range after the other.

A reader asks the gateway of its own host (`gateway`) for blocks of members that it cannot dial; gateways say `Ask` and
`Answer` to each other, over a path or through the coordinator.
"""

from __future__ import annotations

from msgspec import Struct

GONE, REFUSED = -1, -2
"""Lengths of ranges that are not there: the host does not have the block; it may not have this name, or cannot read."""
UNREACHED = -3
"""The gateway could not get it from its member."""
WANTS_LIMIT = 1024
"""Wants of one request."""
REQUEST_LIMIT = 1 << 20
"""Bytes of one request."""
BATCH = 128 << 10
"""Bytes up to which answers share a `Part`; longer ranges go from the file to the socket within the kernel."""
PIECE = 4 << 20
"""Bytes of an `Answer`, at most."""


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
    member: str = ""
    """Of a gateway: from this member."""
    direct: bool = False
    """Over a path to it or not at all: there is another copy, and nothing is gained by a detour through the store."""


class Part(Struct, frozen=True, tag="part"):
    """Answers to the next wants: how many bytes of each are in the tail (fewer than wanted where the block ends)."""

    lengths: tuple[int, ...]


class Came(Struct, frozen=True, tag="came"):
    """After all answers to a `Pull` from a member: bytes that came from it, by what they came over."""

    over: dict[str, int]
    """`path`, `relayed`, `stored`."""


class Ask(Struct, frozen=True, tag="ask"):
    """One member wants these of another one, in this order."""

    number: int
    """Comes back with the answer; the asker uses none twice."""
    run: str
    wants: tuple[Want, ...]


class Answer(Struct, frozen=True, tag="answer"):
    """How many bytes of each want there are. The first PIECE bytes of them, all in all, are in the tail over a path;
    an answer that is relayed has them with it, or says where they are."""

    number: int
    lengths: tuple[int, ...]
    data: bytes = b""
    stored: str = ""
    """What a sealed object in the run's store is called (`passing`), which the asker removes."""
