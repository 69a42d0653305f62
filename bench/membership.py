"""The cost of membership: messages and bytes for a join, a leave and a loss, over real sockets.

    python bench/membership.py [--members 10 100 1000 10000]

One process has the coordinator, another all members. Each member has a connection of its own to the coordinator, and
the state machine of a broadcast channel. Messages between members are counted and delivered inside their process.
Counts are the same in every run; joins/s and seconds depend on this machine, with one core for each process.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import random
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection

from treadle.primitives.addresses import parse
from treadle.primitives.channels.messages import Message
from treadle.primitives.channels.protocols.broadcast import BroadcastMachine
from treadle.primitives.channels.protocols.membership import Send, advance
from treadle.primitives.coordinator import Timing
from treadle.primitives.coordinator.messages import Bye, FromMember, Hello, Join, Leave, ToMember, View
from treadle.primitives.coordinator.server import CoordinatorServer
from treadle.primitives.wire.handshake import Handshake
from treadle.primitives.wire.message_codec import decoder, encode_head
from treadle.primitives.wire.server_connection import ServerConnection
from treadle.primitives.wire.unauthenticated import raise_descriptor_limit

RUN, KEY, CHANNEL = "bench", bytes(32), "gang/broadcast/values"
AT_ONCE = 200
"""Connections that are made at the same time."""
_decode: Callable[[bytes, str], ToMember] = decoder(ToMember)


class Member:
    """One member: its connection, and its machine."""

    def __init__(self, gang: Gang, rank: int) -> None:
        self.gang, self.rank, self.name = gang, rank, f"gang/{rank}.{random.randbytes(6).hex()}"
        self.machine = BroadcastMachine(CHANNEL, self.name, "go on")
        self.connected = asyncio.get_running_loop().create_future()
        self._connection: ServerConnection

    def say(self, message: FromMember) -> None:
        head = encode_head(message)
        self.gang.counts.update({"messages": 1, "bytes": len(head)})
        self._connection.write([head])

    def join(self, parties: int) -> None:
        epoch, seat = self.machine.epoch, self.machine.roster.seat(self.name)
        self.say(Join(CHANNEL, parties, epoch=epoch, seat=seat if epoch else self.rank, near=True))

    def die(self) -> None:
        self._connection.abort()

    def took(self, sends: list[Send]) -> None:
        self.gang.deliver(self.name, sends)
        if self.machine.behind:
            self.machine.behind = False
            self.join(1)

    # -- called by the connection

    def began(self, connection: ServerConnection) -> None:
        self._connection = connection

    def admitted(self, connection: ServerConnection) -> None:  # noqa: ARG002
        self.connected.set_result(None)

    def arrived(self, connection: ServerConnection, heads: list[bytes]) -> None:
        for head in heads:
            self.gang.counts.update({"messages": 1, "bytes": len(head)})
            message = _decode(head, connection.address)
            if isinstance(message, View) and (roster := advance(self.machine.roster, message)):
                self.took(self.machine.view(roster))

    def ended(self, connection: ServerConnection, why: Exception | None) -> None:
        """Losses are on purpose."""


class Gang:
    """All members."""

    def __init__(self, address: str) -> None:
        self._address = parse(address)
        self.members: dict[str, Member] = {}
        self.counts: Counter[str] = Counter()
        self._mail: deque[tuple[str, str, Message]] = deque()
        self._delivering = False

    async def connect(self, ranks: Sequence[int]) -> list[Member]:
        limit, made = asyncio.Semaphore(AT_ONCE), [Member(self, rank) for rank in ranks]

        async def one(member: Member) -> None:
            def protocol() -> ServerConnection:
                return ServerConnection(member, Handshake.client(RUN, KEY), 0, None)

            async with limit:
                await asyncio.get_running_loop().create_connection(protocol, self._address.host, self._address.port)
                await member.connected
            member.say(Hello(member.name, f"tcp://127.0.0.1:{20_000 + member.rank % 40_000}", "0123456789abcdef"))

        await asyncio.gather(*map(one, made))
        self.members |= {member.name: member for member in made}
        return made

    def deliver(self, source: str, sends: list[Send]) -> None:
        """In the order of sending; not from within a delivery, which would be a deep recursion."""
        self._mail.extend((source, target, message) for target, message in sends)
        if self._delivering:
            return
        self._delivering = True
        while self._mail:
            sender, target, message = self._mail.popleft()
            self.counts["between"] += 1
            if (member := self.members.get(target)) is not None:
                member.took(member.machine.message(sender, message))
        self._delivering = False

    async def settled(self, than: int, members: Sequence[Member]) -> None:
        """Wait until all members have one view that is later than `than`."""
        while True:
            epochs = {member.machine.epoch for member in members}
            if len(epochs) == 1 and min(epochs) > than:
                return
            await asyncio.sleep(0.002)

    @property
    def epoch(self) -> int:
        return max(member.machine.epoch for member in self.members.values())


class Table:
    """Prints a row for each change."""

    HEAD = ("members", "change", "messages", "bytes", "between members", "changes", "seconds")

    def __init__(self) -> None:
        sys.stdout.write(f"| {' | '.join(self.HEAD)} |\n|--:|---|--:|--:|--:|--:|--:|\n")

    def row(self, gang: Gang, what: str, changes: int, seconds: float) -> None:
        found, count = gang.counts, len(gang.members)
        cells = (f"{count:,}", what, f"{found['messages'] / changes:.1f}", f"{found['bytes'] / changes:,.0f}")
        rest = (f"{found['between'] / changes:.1f}", f"{changes / seconds:,.0f}/s", f"{seconds:.2f}")
        sys.stdout.write(f"| {' | '.join((*cells, *rest))} |\n")
        sys.stdout.flush()


async def measure(address: str, count: int, table: Table) -> None:
    gang = Gang(address)
    all_members = await gang.connect(range(count))

    async def change(what: str, changes: int, act: Callable[[], None], before: int) -> None:
        gang.counts.clear()
        began = time.perf_counter()
        act()
        await gang.settled(before, list(gang.members.values()))
        table.row(gang, what, changes, time.perf_counter() - began)

    def forget(gone: Sequence[Member]) -> None:
        for member in gone:
            del gang.members[member.name]

    def leave(gone: Sequence[Member]) -> None:
        forget(gone)
        for member in gone:
            member.say(Leave(CHANNEL))
            member.say(Bye())

    def lose(gone: Sequence[Member]) -> None:
        forget(gone)
        for member in gone:
            member.die()

    def join(new: Sequence[Member], parties: int) -> None:
        for member in new:
            member.join(parties)

    await change("join, all before the first view", count, lambda: join(all_members, count), 0)
    (late,) = await gang.connect([count])
    await change("one late join", 1, lambda: join([late], 1), gang.epoch)
    some = random.Random(1).sample(sorted(gang.members), 2)
    await change("one leaves", 1, lambda: leave([gang.members[some[0]]]), gang.epoch)
    await change("one is lost", 1, lambda: lose([gang.members[some[1]]]), gang.epoch)
    gone = random.Random(2).sample(sorted(gang.members), 3 * count // 10)
    await change(
        "each of 30 % that are lost at once", len(gone), lambda: lose([gang.members[n] for n in gone]), gang.epoch
    )
    lose(list(gang.members.values()))


def serve(pipe: Connection) -> None:
    async def run() -> None:
        raise_descriptor_limit()
        timing = Timing(lease=3600.0, grace=0.05)
        async with CoordinatorServer({RUN: KEY}.get, timing=timing) as server:
            pipe.send(server.address)
            await asyncio.to_thread(pipe.recv)

    asyncio.run(run())


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--members", type=int, nargs="+", default=[10, 100, 1_000, 10_000])
    chosen = parser.parse_args(arguments)
    raise_descriptor_limit()
    table = Table()
    for count in chosen.members:
        ours, theirs = multiprocessing.Pipe()
        server = multiprocessing.get_context("spawn").Process(target=serve, args=(theirs,))
        server.start()
        try:
            asyncio.run(measure(ours.recv(), count, table))
        finally:
            ours.send("end")
            server.join()


if __name__ == "__main__":
    main()
