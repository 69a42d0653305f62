"""Two members that cannot be dialled, and a coordinator that knows both: its state machine without its server."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from primitives.peers.faults import Fault, FaultyPath
from primitives.peers.hosts import KEY, RUN
from primitives.traversal.two_sides import BRIEF, LONG, Side, introduced

from treadle.primitives import wire
from treadle.primitives.blocks import Blocks
from treadle.primitives.coordinator import Coordinator
from treadle.primitives.coordinator.instructions import SendToConnection
from treadle.primitives.coordinator.messages import FromMember, Hello, Reach
from treadle.primitives.encoding.references import BlockRef
from treadle.primitives.hole_punching import Schedule
from treadle.primitives.peers import PeerServer, announce
from treadle.primitives.peers.gateway import Gateway, Membership
from treadle.primitives.peers.hosts import HostPeers
from treadle.primitives.peers.request_router import Patience
from treadle.primitives.stores.shared_memory import HostFolder
from treadle.primitives.stores.store import Store
from treadle.primitives.wire import Connection

SESSION, SESSION_KEY = "members-1", bytes(reversed(range(32)))
PATIENT = Patience(silence=LONG, again=LONG, total=LONG)
"""On any busy machine, no wait is given up too early."""


class Office:
    """Passes messages between members and the state machine, in a thread of its own."""

    def __init__(self) -> None:
        self.said: list[FromMember] = []
        self.drops: Callable[[FromMember], bool] = lambda message: False
        """The messages to drop."""
        self.sees: Callable[[Side], int] = lambda side: side.seen[1]
        """The port that it reports as a member's source."""
        self._machine = Coordinator()
        self._gateways: list[tuple[Gateway, Side]] = []
        self._post: queue.SimpleQueue[tuple[int, FromMember] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="office")
        self._thread.start()

    def enter(self, gateway: Gateway, side: Side) -> None:
        number = len(self._gateways)
        self._gateways.append((gateway, side))
        self._machine.connected(number, time.monotonic(), f"tcp://127.0.0.1:{self.sees(side)}")
        self.say(number, Hello(gateway.name, ""))

    def say(self, number: int, message: FromMember) -> None:
        self._post.put((number, message))

    def close(self) -> None:
        self._post.put(None)
        self._thread.join()

    def _work(self) -> None:
        while (item := self._post.get()) is not None:
            self.said.append(item[1])
            if self.drops(item[1]):
                continue
            for one in self._machine.received(*item, time.monotonic()):
                if isinstance(one, SendToConnection):
                    gateway, side = self._gateways[one.connection]
                    gateway.heard(one.message, side.source)


class Member:
    """A host with blocks, a server that other hosts cannot dial, and a process that reads blocks of others."""

    def __init__(self, name: str, folder: Path, office: Office, side: Side, patience: Patience, schedule: Schedule):
        self.store = Store.open(f"file://{folder}/store")
        self.host = HostFolder(folder / name)
        membership = Membership(name, SESSION, SESSION_KEY, lambda message: office.say(self._number, message))
        self.gateway = Gateway(self.host, lambda run: KEY, membership, schedule=schedule, patience=patience)
        self._number = len(office._gateways)
        office.enter(self.gateway, side)
        self.gateway.know(RUN, self.store)
        self.server = PeerServer(self.host, {RUN: KEY}.get, forward=self.gateway.forward)
        self.announce("")
        self.blocks = Blocks(self.store, RUN, self.host, lambda: self.peers)
        self.peers = HostPeers(self.store, RUN, KEY, self.host, self.blocks.read)

    def announce(self, address: str) -> None:
        announce(self.store, RUN, KEY, self.host.host_id, address, self.gateway.name, self.server.address)

    def put(self, *parts: Any) -> BlockRef:
        return self.blocks.put("segment/0.1", "array", parts, "host")

    def passed(self) -> list[str]:
        """Objects of the store through which blocks passed."""
        return [info.name for info in self.store.list("runs") if "_passed" in info.name]

    def close(self) -> None:
        self.gateway.close()
        self.blocks.close()
        self.server.close()


@contextmanager
def two_members(
    folder: Path,
    *,
    patience: Patience = PATIENT,
    schedule: Schedule = BRIEF,
    paths: bool = True,
    port: int = 0,
) -> Iterator[tuple[Member, Member, Office]]:
    """`paths`: they can be connected; otherwise every such request is lost. `port`: the port at which they look for
    each other, if it is not their own."""
    with ExitStack() as stack:
        sides = stack.enter_context(introduced())
        office = Office()
        stack.callback(attempts_end)
        stack.callback(office.close)
        if port:
            office.sees = lambda side: port
        if not paths:
            office.drops = lambda message: isinstance(message, Reach)
        both = [Member(side.member, folder, office, side, patience, schedule) for side in sides]
        for member in both:
            stack.callback(member.close)
        yield both[0], both[1], office


def attempts_end() -> None:
    """Attempts end by themselves, together with their threads."""
    for thread in threading.enumerate():
        if thread.name.startswith("treadle-path-"):
            thread.join(LONG)


@contextmanager
def connected(one: Member, other: Member, fault: Fault) -> Iterator[None]:
    """A path between the two, with a fault in the messages of `other`."""
    listener = wire.listen("tcp://127.0.0.1:0")
    ends: dict[str, Connection] = {}

    def accept() -> None:
        keys = {SESSION: SESSION_KEY}.get
        ends["other"] = wire.accept(listener.accept()[0], keys, deadline=time.monotonic() + LONG)

    with listener, FaultyPath(wire.address_of(listener), [fault]) as path:
        thread = threading.Thread(target=accept)
        thread.start()
        dialled = wire.connect(path.address, SESSION, SESSION_KEY, deadline=time.monotonic() + LONG)
        thread.join()
        other.gateway._opened(one.gateway.name, ends["other"])  # private: a path that needs no network
        one.gateway._opened(other.gateway.name, dialled)
        yield
