"""One member of a gang of two, as a process on a host of its own; prints what came of it."""

from __future__ import annotations

import json
import sys
import time
from functools import partial
from typing import Any
from unittest import mock

from primitives.traversal.two_sides import KEY, PATIENT, RUN

from treadle.primitives import wire
from treadle.primitives.blocks import Blocks
from treadle.primitives.channels import Barrier, BroadcastChannel, Gang
from treadle.primitives.channels.io import uplink
from treadle.primitives.channels.io.links import Link
from treadle.primitives.channels.io.roads import Road
from treadle.primitives.channels.member import Member
from treadle.primitives.coordinator.messages import Dial, ToMember
from treadle.primitives.store import Store
from treadle.primitives.traversal import ANY, Reacher
from treadle.primitives.wire import Connection

SECONDS = 60.0
ROUNDS = 20


class Traversing(Member):
    """Looks for a path to every member it has to relay to."""

    def __init__(self, gang: Gang, blocks: Blocks) -> None:
        super().__init__(gang, KEY, blocks)
        self._relay_all = self._roads._relay_all
        self._roads._relay_all = self._want  # type: ignore[method-assign]
        self.reacher = Reacher(
            self.name,
            RUN,
            KEY,
            ask=self._uplink.send,
            opened=self._opened,
            failed=lambda member, reason: None,
            tls=self._identity,
            schedule=PATIENT,
        )

    @property
    def connected(self) -> bool:
        return any(road.link is not None for road in self._roads._roads.values())

    def _want(self, road: Road) -> None:
        self._relay_all(road)
        self.reacher.want(road.member)

    def _on_message(self, message: ToMember) -> None:
        if not isinstance(message, Dial):
            super()._on_message(message)
        elif (link := self._uplink._link) is not None:
            self.reacher.dial(message, link._connection.sock.getsockname())

    def _opened(self, member: str, connection: Connection) -> None:
        link = Link(connection)
        self._loop.do(lambda: self._roads._listen(self._roads._road(member), link))


def main(address: str, rank: int, store: str) -> None:
    """The connection to the coordinator is bound before it is made, so that its port can be shared."""
    with mock.patch.object(uplink, "connect", partial(wire.connect, source=ANY)):
        take_part(address, rank, store)


def take_part(address: str, rank: int, store: str) -> None:
    member = Traversing(Gang(address, RUN, "gang", rank, 2, SECONDS), Blocks(Store.open(store), RUN))
    with BroadcastChannel("news", member=member) as news:
        heard = [_tell(news, rank, "early")]
        end = time.monotonic() + SECONDS
        while not member.connected and time.monotonic() < end:
            time.sleep(0.02)
        Barrier("path", member=member).wait()
        before = member.coordinator_messages
        heard += [_tell(news, rank, number) for number in range(ROUNDS)]
        relayed = member.coordinator_messages - before
        Barrier("end", member=member).wait()
    json.dump({"heard": heard, "relayed": relayed}, sys.stdout)
    member.reacher.close()
    member.close()


def _tell(news: BroadcastChannel, rank: int, value: Any) -> Any:
    """The value, at the one that sends it and at the one that receives it."""
    if rank != 0:
        return news.receive()
    news.send(value)
    return value


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
