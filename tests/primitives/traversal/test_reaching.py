"""Members that request a path to each other from a coordinator."""

from __future__ import annotations

import asyncio
import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import namespaces
import pytest
from namespaces import Host, Nat, two_nats
from primitives.traversal.two_sides import BRIEF, KEY, LONG, PATIENT, RUN, carries, introduced, new_token

from treadle.primitives import wire
from treadle.primitives.coordinator import Timing
from treadle.primitives.coordinator.messages import Dial, Hello, Reach, Released, ToMember, Wait
from treadle.primitives.coordinator.server import CoordinatorServer
from treadle.primitives.hole_punching import ANY, Paths, Reacher, Schedule
from treadle.primitives.wire import Connection, Identity, WireError

END = object()


class Outcomes:
    """The connections that a Reacher gave its owner."""

    def __init__(self) -> None:
        self.said: queue.Queue[Connection] = queue.Queue()

    def opened(self, _: str, connection: Connection) -> None:
        self.said.put(connection)

    def next(self) -> Connection:
        return self.said.get(timeout=LONG)


def reacher(me: str, outcomes: Outcomes, ask: Callable[[Reach], None], **options: object) -> Reacher:
    return Reacher(me, RUN, KEY, ask=ask, opened=outcomes.opened, **options)  # type: ignore[arg-type]


def attempts_end() -> None:
    """Attempts end by themselves, together with their threads."""
    for thread in threading.enumerate():
        if thread.name.startswith("treadle-path-"):
            thread.join(LONG)


def test_when_both_ask_one_connection_comes_of_it() -> None:
    with introduced() as (left, right):
        ends = {side.member: Outcomes() for side in (left, right)}
        reachers: dict[str, Reacher] = {}

        def coordinate(_: Reach) -> None:
            token = new_token()
            for side, other in ((left, right), (right, left)):
                dial = Dial(other.member, f"tcp://127.0.0.1:{other.seen[1]}", token, 0.2)
                reachers[side.member].dial(dial, side.source)

        reachers |= {name: reacher(name, outcomes, coordinate, schedule=PATIENT) for name, outcomes in ends.items()}
        assert reachers["left"].want("right")
        coordinate(Reach("left"))
        one, other = ends["left"].next(), ends["right"].next()
        carries(one, other)
        assert not reachers["right"].want("left")
        coordinate(Reach("left"))
        attempts_end()
        assert ends["left"].said.empty()
        assert ends["right"].said.empty()
        one.close()
        other.close()


def test_a_pair_that_failed_is_not_asked_for_again() -> None:
    outcomes, asked = Outcomes(), list[Reach]()
    with introduced() as (left, right):
        one = reacher("left", outcomes, asked.append, schedule=BRIEF)
        one._paths = Paths(first=1000.0)  # private: the pause after a failure is not a setting
        assert one.want("right")
        assert not one.want("right")
        one.dial(Dial("right", f"tcp://127.0.0.1:{right.seen[1]}", new_token()), left.source)
        attempts_end()
        assert not one.want("right")
        assert one.want("somebody else")
    assert asked == [Reach("right"), Reach("somebody else")]
    assert outcomes.said.empty()


def test_a_path_that_no_thread_could_look_for_is_asked_for_again(refusing: Callable[[str], None]) -> None:
    asked = list[Reach]()
    with introduced() as (left, right):
        one = reacher("left", Outcomes(), asked.append, schedule=BRIEF)
        one._paths = Paths(first=0.0)
        refusing("treadle-path-right")
        one.dial(Dial("right", f"tcp://127.0.0.1:{right.seen[1]}", new_token()), left.source)
        assert one.want("right")


def test_what_opens_after_the_end_is_closed() -> None:
    with introduced() as (left, right):
        ends = Outcomes(), Outcomes()
        token = new_token()
        early = reacher("left", ends[0], lambda _: None, schedule=PATIENT)
        late = reacher("right", ends[1], lambda _: None, schedule=PATIENT)
        early.dial(Dial("right", f"tcp://127.0.0.1:{right.seen[1]}", token, 0.2), left.source)
        late.dial(Dial("left", f"tcp://127.0.0.1:{left.seen[1]}", token, 0.2), right.source)
        early.close()
        with ends[1].next() as other, pytest.raises(WireError):
            other.receive_head(Hello, time.monotonic() + LONG)
        attempts_end()
        assert ends[0].said.empty()
        assert not early.want("right")


@contextmanager
def coordinator(host: Host, identity: Identity) -> Iterator[str]:
    """A real coordinator on this host."""
    ready, stop, address = threading.Event(), threading.Event(), list[str]()

    async def serve() -> None:
        server = CoordinatorServer({RUN: KEY}.get, f"tls://{host.address}:0", tls=identity, timing=Timing(lease=600.0))
        async with server:
            address.append(server.address)
            ready.set()
            await asyncio.to_thread(stop.wait, 600)

    def run() -> None:
        with host.entered():
            asyncio.run(serve())

    thread = threading.Thread(target=run)
    thread.start()
    try:
        assert ready.wait(LONG)
        yield address[0]
    finally:
        stop.set()
        thread.join(LONG)


class Member:
    """A member connected to the coordinator, with the minimum of messages."""

    def __init__(self, name: str, host: Host, address: str, identity: Identity, schedule: Schedule) -> None:
        self._host = host
        self.outcomes = Outcomes()
        with host.entered():
            self.uplink = wire.connect(address, RUN, KEY, deadline=time.monotonic() + LONG, source=ANY)
        self.say(Hello(name, ""))
        self.reacher = reacher(name, self.outcomes, self.say, tls=identity, schedule=schedule)

    def say(self, message: Hello | Wait | Reach) -> None:
        self.uplink.send(message, deadline=time.monotonic() + LONG)

    def hear(self) -> ToMember:
        """The next message. A `Dial` is carried out at once. The attempt's thread is on this host."""
        message: ToMember = self.uplink.receive_head(ToMember, time.monotonic() + LONG)[0]
        if isinstance(message, Dial):
            with self._host.entered():
                self.reacher.dial(message, self.uplink.sock.getsockname())
        return message

    def close(self) -> None:
        self.reacher.close()
        self.uplink.close()


@contextmanager
def members(left: Nat, right: Nat, identity: Identity, schedule: Schedule) -> Iterator[tuple[Member, Member]]:
    with two_nats(left, right) as hosts, coordinator(hosts.public, identity) as address, ExitStack() as stack:
        stack.callback(attempts_end)
        both = [Member(host.name, host, address, identity, schedule) for host in hosts[1:]]
        for member in both:
            stack.callback(member.close)
        meet(both[0], both[1], 0)
        yield both[0], both[1]


def meet(one: Member, other: Member, generation: int) -> None:
    """Meet at a barrier of two."""
    for member in (one, other):
        member.say(Wait("meeting", 2, generation))
    for member in (one, other):
        assert member.hear() == Released("meeting", generation)


@pytest.mark.skipif(bool(namespaces.unsupported()), reason=namespaces.unsupported())
def test_members_behind_nats_find_each_other_through_the_coordinator(identity: Identity) -> None:
    """The shared port also keeps its connection to the coordinator."""
    with members(Nat(), Nat(), identity, PATIENT) as (left, right):
        assert right.reacher.want(left._host.name)
        assert isinstance(left.hear(), Dial)
        assert isinstance(right.hear(), Dial)
        with left.outcomes.next() as one, right.outcomes.next() as other:
            carries(one, other)
            meet(left, right, 1)
            carries(other, one)


@pytest.mark.skipif(bool(namespaces.unsupported()), reason=namespaces.unsupported())
def test_members_behind_nats_that_cannot_be_traversed_know_soon(identity: Identity) -> None:
    with members(Nat("random"), Nat(), identity, BRIEF) as (left, right):
        assert left.reacher.want(right._host.name)
        assert isinstance(left.hear(), Dial)
        assert isinstance(right.hear(), Dial)
        attempts_end()
        assert left.outcomes.said.empty()
        assert right.outcomes.said.empty()
        assert not left.reacher.want(right._host.name)
        meet(left, right, 1)


@pytest.mark.skipif(bool(namespaces.unsupported()), reason=namespaces.unsupported())
def test_a_gang_behind_nats_broadcasts_over_a_path(identity: Identity, tmp_path: Path) -> None:
    """Messages before the path exists are relayed. Afterwards the coordinator carries barriers only."""
    with two_nats() as hosts, coordinator(hosts.public, identity) as address:
        processes = [
            _gang_member(host, address, str(rank), f"file://{tmp_path}/store") for rank, host in enumerate(hosts[1:])
        ]
        said = [process.communicate(timeout=LONG) for process in processes]
    for (out, errors), process in zip(said, processes, strict=True):
        assert process.returncode == 0, errors
        assert json.loads(out) == {"heard": ["early", *range(20)], "relayed": 0}


def _gang_member(host: Host, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "primitives.traversal.gang_member", *arguments]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    return host.popen(*command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
