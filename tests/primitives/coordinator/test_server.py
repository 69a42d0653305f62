"""The coordinator's shell, over real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest
from eventually import eventually_async

from treadle.primitives.coordinator import Deliver, Timing, server
from treadle.primitives.coordinator import messages as m
from treadle.primitives.coordinator.server import CoordinatorServer
from treadle.primitives.errors import UsageError
from treadle.primitives.wire import Decoder, Handshake, encode, parse
from treadle.primitives.wire.tls import client_context, server_digest

KEYS = {"run-1": b"1" * 32, "run-2": b"2" * 32}
SECONDS = 30.0
"""Seconds until a test gives up."""
T = TypeVar("T")
CHANNEL = "c"


class Member:
    """A connection that proves the key, with the messages that it received."""

    def __init__(self, name: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.name, self.reader, self.writer = name, reader, writer
        self._decoder = Decoder()
        self._heads: deque[bytes] = deque()

    def say(self, *messages: m.FromMember) -> None:
        for message in messages:
            self.say_bytes(msgspec.msgpack.encode(message))

    def say_bytes(self, head: bytes) -> None:
        self.writer.writelines(encode(head))

    async def hear(self, kind: type[T]) -> T:
        """The next message of a kind. Earlier ones of other kinds are skipped. Raises EOFError at the end."""
        while True:
            message: Any = msgspec.msgpack.decode(await self._next(), type=m.ToMember)
            if isinstance(message, kind):
                return message

    async def _next(self) -> bytes:
        async with asyncio.timeout(SECONDS):
            while not self._heads:
                if not (data := await self.reader.read(1 << 16)):
                    raise EOFError
                self._heads.extend(self._decoder.feed(data))
        return self._heads.popleft()

    async def greet(self, handshake: Handshake) -> None:
        self.say_bytes(handshake.opening())
        while not handshake.done:
            if answer := handshake.receive(await self._next()):
                self.say_bytes(answer)

    def abort(self) -> None:
        self.writer.transport.abort()


opened: list[Member] = []


@pytest.fixture(autouse=True)
async def all_closed() -> AsyncIterator[None]:
    yield
    while opened:
        one = opened.pop()
        one.abort()
        with contextlib.suppress(ConnectionError):
            async with asyncio.timeout(SECONDS):
                await one.writer.wait_closed()


@pytest.fixture
def ended(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """The reasons for which connections ended, from the log."""
    caplog.set_level(logging.DEBUG, server.__name__)
    return lambda: [record.getMessage() for record in caplog.records if record.name == server.__name__]


async def member(address: str, name: str, run: str = "run-1") -> Member:
    scheme, host, port = parse(address)
    secure: dict[str, Any] = {"ssl": client_context(), "server_hostname": ""} if scheme == "tls" else {}
    found = Member(name, *await asyncio.open_connection(host, port, **secure))
    opened.append(found)
    certificate = server_digest(found.writer.get_extra_info("ssl_object")) if secure else b""
    await found.greet(Handshake.client(run, KEYS[run], certificate))
    found.say(m.Hello(name, ""))
    return found


async def gang(address: str, size: int, run: str = "run-1") -> list[Member]:
    members = [await member(address, f"m{number}", run) for number in range(size)]
    for one in members:
        one.say(m.Join(CHANNEL, size))
    for one in members:
        await one.hear(m.View)
    return members


def quick(**known: Any) -> CoordinatorServer:
    return CoordinatorServer(KEYS.get, timing=Timing(lease=60.0, grace=0.2, settle=1.0), **known)


@pytest.mark.parametrize(
    ("run", "why"), [("run-1", "does not hold the key of run run-1"), ("run-9", "asks for run 'run-9', which is not")]
)
async def test_stranger_without_the_key_is_refused_before_decoding(
    run: str, why: str, monkeypatch: pytest.MonkeyPatch, ended: Callable[[], list[str]]
) -> None:
    decoded: list[bytes] = []
    monkeypatch.setattr(server, "_decode", decoded.append)
    async with quick() as coordinator, asyncio.timeout(SECONDS):
        host, port = parse(coordinator.address)[1:]
        reader, writer = await asyncio.open_connection(host, port)
        false_proof = b"P" + bytes(32)
        for message in (Handshake.client(run, b"").opening(), false_proof, msgspec.msgpack.encode(m.Hello("m", ""))):
            writer.writelines(encode(message))
        await reader.read()
        writer.close()
        await writer.wait_closed()
        (said,) = ended()
        assert why in said
        assert coordinator.statistics(run).connections == 0
    assert decoded == []


@pytest.mark.parametrize(
    "data",
    [
        b"\xc1nothing",
        msgspec.msgpack.encode(m.Hello("m", "")).replace(b"\xa1m", b"\xa1\xff"),
        b"\x82\xa4type\xa5alive\xa1x" + b"\x91" * 100_000,
    ],
    ids=["no MessagePack", "text that is no UTF-8", "too deep"],
)
async def test_malformed_message_ends_its_connection_only(data: bytes, ended: Callable[[], list[str]]) -> None:
    async with quick() as coordinator:
        one, two = await gang(coordinator.address, 2)
        one.say_bytes(data)
        with pytest.raises((EOFError, ConnectionError)):
            await one.hear(m.Seat)
        assert "what is not a message" in ended()[0]
        assert (await two.hear(m.View)).lost == ("m0",)


async def test_abrupt_leave_is_a_loss_and_bye_is_not() -> None:
    async with quick() as coordinator:
        members = await gang(coordinator.address, 4)
        members[1].abort()
        assert [(await members[number].hear(m.View)).lost for number in (0, 2, 3)] == [("m1",)] * 3
        members[0].say(m.Bye())
        view = await members[2].hear(m.View)
        assert view.lost == ()
        assert view.changes[-1] == m.SeatChange(2, None)


async def test_runs_do_not_see_each_other() -> None:
    async with quick() as coordinator:
        (one,) = await gang(coordinator.address, 1, "run-1")
        (two,) = await gang(coordinator.address, 1, "run-2")
        two.say(m.Announce(("x",)))
        one.say(m.Locate("x"), m.Count(CHANNEL))
        assert (await one.hear(m.Located)).seats == ()
        assert (await one.hear(m.Counted)).present == 1


async def test_barrier_of_64_releases_all_members_in_each_generation() -> None:
    async with quick() as coordinator:
        members = await gang(coordinator.address, 64)
        for generation in range(3):
            for one in members:
                one.say(m.Wait("b", 64, generation))
            released = [await one.hear(m.Released) for one in members]
            assert {answer.generation for answer in released} == {generation}


async def test_member_that_does_not_read_is_cut_off_and_others_do_not_wait_for_it(
    ended: Callable[[], list[str]],
) -> None:
    async with quick() as coordinator:
        _deaf, one, two = await gang(coordinator.address, 3)
        _deaf.writer.transport.pause_reading()  # type: ignore[attr-defined]

        async def flood() -> None:
            while not ended():
                one.say(*[m.Relay("m0", b"x" * 60_000) for _ in range(8)], m.Alive())
                await one.hear(m.Alive)

        async with asyncio.timeout(SECONDS):
            await flood()
        assert "does not read" in ended()[0]
        for number in (one, two):
            number.say(m.Wait("b", 2, 0))
        await one.hear(m.Released)
        assert (await two.hear(m.View)).lost == ("m0",)


async def test_members_find_their_seats_again_at_a_new_coordinator() -> None:
    async with quick() as first:
        members = await gang(first.address, 5)
        view = await join_again(members[0], 0)
        members[0].abort()
        await first.stop()
        async with quick(address=first.address) as second:
            again = [await member(second.address, f"m{number}") for number in (4, 2, 0, 1)]
            for one in again:
                seat = int(one.name[1:])
                one.say(m.Join(CHANNEL, 5, epoch=view.epoch, seat=seat), m.Announce((f"block{seat}",)))
            later = [await one.hear(m.View) for one in again]
            assert {one.epoch > view.epoch for one in later} == {True}
            seats = [change.occupant.member for change in later[0].changes if change.occupant]
            assert seats == ["m0", "m1", "m2", "m4"]
            again[0].say(m.Locate("block2"))
            assert [seat.member for seat in (await again[0].hear(m.Located)).seats] == ["m2"]


async def join_again(one: Member, seat: int) -> m.View:
    """The member's view. After a reconnect it announces that it has none."""
    one.say(m.Leave(CHANNEL), m.Join(CHANNEL, 5, seat=seat))
    return await one.hear(m.View)


async def test_tasks_are_handed_out_and_results_delivered() -> None:
    results: list[tuple[str, Deliver]] = []
    async with quick(on_result=lambda run, result: results.append((run, result))) as coordinator:
        coordinator.offer("run-1", "t", b"body")
        (one,) = await gang(coordinator.address, 1)
        one.say(m.Take())
        task = await one.hear(m.AssignedTask)
        one.say(m.Finished("t", task.epoch, b"result"))
        await one.hear(m.Accepted)
    assert (task.body, results) == (b"body", [("run-1", Deliver("t", "m0", b"result"))])


async def test_off_loopback_it_is_encrypted_or_not_at_all(tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        CoordinatorServer(KEYS.get, "tcp://0.0.0.0:0")
    pytest.importorskip("cryptography")
    from treadle.primitives.wire import tls_identity

    async with CoordinatorServer(KEYS.get, "tls://127.0.0.1:0", tls=tls_identity(tmp_path)) as coordinator:
        assert coordinator.address.startswith("tls://")
        assert len(await gang(coordinator.address, 2)) == 2


async def test_stranger_without_tls_is_dropped_and_hinders_no_member(tmp_path: Path) -> None:
    pytest.importorskip("cryptography")
    from treadle.primitives.wire import tls_identity

    async with CoordinatorServer(KEYS.get, "tls://127.0.0.1:0", tls=tls_identity(tmp_path)) as coordinator:
        reader, writer = await asyncio.open_connection(*parse(coordinator.address)[1:])
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        async with asyncio.timeout(SECONDS):
            await reader.read()
        writer.close()
        assert coordinator._open == set()  # private: a released connection has no other sign
        assert len(await gang(coordinator.address, 2)) == 2


async def test_gang_is_dismissed_together_with_members_that_come_later() -> None:
    async with quick() as coordinator, asyncio.timeout(SECONDS):
        coordinator.own("run-1", "one", lambda _: None)
        early, other = await member(coordinator.address, "one/0.a"), await member(coordinator.address, "two/0.a")
        for one in (early, other):
            one.say(m.Count("nothing"))
            await one.hear(m.Counted)
        coordinator.dismiss_gang("run-1", "one")
        await early.hear(m.Dismissed)
        late = await member(coordinator.address, "one/1.a")
        await late.hear(m.Dismissed)
        coordinator.disown("run-1", "one")
        for one in (other, await member(coordinator.address, "one/2.a")):
            one.say(m.Count("nothing"))
            assert isinstance(await one.hear(object), m.Counted)


async def test_nothing_is_kept_of_a_run_whose_members_have_left() -> None:
    async with quick() as coordinator:
        members = await gang(coordinator.address, 2)
        members[0].say(m.Bye())
        members[1].abort()
        await eventually_async(lambda: not coordinator._runs)  # private: a forgotten run has no other sign
