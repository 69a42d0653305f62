"""One member of a gang of two, as a process on a separate host. Prints its result."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from typing import Any

from primitives.traversal.two_sides import KEY, RUN

from treadle.primitives.blocks import Blocks
from treadle.primitives.channels import Barrier, BroadcastChannel, Gang
from treadle.primitives.channels.member import Member
from treadle.primitives.stores.store import Store
from treadle.primitives.wire import tls_identity

SECONDS = 60.0
ROUNDS = 20


def main(address: str, rank: int, store: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        identity = tls_identity(folder).path.read_text("ascii")
    gang = Gang(address, RUN, "gang", rank, 2, SECONDS, identity=identity)
    member = Member(gang, KEY, Blocks(Store.open(store), RUN))
    with BroadcastChannel("news", member=member) as news:
        heard = [_tell(news, rank, "early")]
        end = time.monotonic() + SECONDS
        while not _has_path(member) and time.monotonic() < end:
            time.sleep(0.02)
        Barrier("path", member=member).wait()
        before = member.coordinator_messages
        heard += [_tell(news, rank, number) for number in range(ROUNDS)]
        relayed = member.coordinator_messages - before
        Barrier("end", member=member).wait()
    json.dump({"heard": heard, "relayed": relayed}, sys.stdout)
    member.close()


def _has_path(member: Member) -> bool:
    # private: the kind of path has no other sign
    return any(road.link is not None for road in member._roads._roads.values())


def _tell(news: BroadcastChannel, rank: int, value: Any) -> Any:
    """The value, at the sender and at the receiver."""
    if rank != 0:
        return news.receive()
    news.send(value)
    return value


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
