"""Any bytes over a socket: the connection ends with a classified error, merely announced sizes take no memory, and all
other connections are served."""

from __future__ import annotations

import contextlib
import socket
import threading
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest
from eventually import eventually
from hypothesis import given
from hypothesis import strategies as st
from primitives.channels import coordinators
from primitives.channels.uplinks import uplink
from primitives.peers.hosts import reader, served
from primitives.wire.sides import GENEROUS, KEY, RUN, dial, serving, soon
from properties.profiles import examples

from treadle.primitives import wire
from treadle.primitives.blocks import Blocks
from treadle.primitives.channels import Gang
from treadle.primitives.channels import messages as c
from treadle.primitives.channels.member import Member
from treadle.primitives.coordinator import messages as m
from treadle.primitives.errors import TreadleError
from treadle.primitives.peers import gateway as gateways
from treadle.primitives.peers import messages as p
from treadle.primitives.peers import through
from treadle.primitives.peers.gateway import Gateway, Membership
from treadle.primitives.stores.shared_memory import HostFolder
from treadle.primitives.stores.store import Store
from treadle.primitives.wire.framing import LENGTHS
from treadle.primitives.wire.message_codec import encode_head
from treadle.primitives.wire.transports import Plain

MEMORY = 4 << 20
"""Maximum of bytes for one conversation. Announced sizes may be up to 1 GiB."""
WANT = p.Want("s/a", 0, 3)
LETTER = c.Letter(1, 0, c.RoundFailed("g/reduce/sum", 1, 1, "because"))
SAID = [
    *(
        p.Pull((WANT,)),
        p.Pull((WANT,), "somebody", True),
        p.PullAnswer((3,)),
        p.PullAnswer((p.GONE,)),
        p.Came({"path": 3}),
    ),
    *(p.Ask(1, RUN, (WANT,)), p.AskAnswer(1, (3,), b"abc"), p.AskAnswer(1, (3,), stored="x")),
    *(
        m.Hello("h", ""),
        m.Join("c", 1),
        m.Wait("b", 2, 0),
        m.Relay("h", b"abc"),
        m.Take(3),
        m.Announce(("x",)),
        m.Bye(),
    ),
    *(m.View("c", 2, 0, (m.SeatChange(0, m.Seat("h", "")),), 2), m.Dial("h", "tcp://127.0.0.1:1", b"t"), m.Alive()),
    *(m.Relayed("h", encode_head(LETTER)), m.AssignedTask("t", 1, b"body"), c.Caller("g/1.00", "g/2.00"), LETTER),
]
FRAMES = [b"".join(wire.encode(encode_head(one), tail)) for one in SAID for tail in (b"", b"abc")]
DEEP = [b"".join(wire.encode(start + b"\x91" * 3_000)) for start in (b"", b"\x82\xa4type\xa4pull\xa1x", b"\x94\x01")]


def framed(said: Sequence[Any]) -> bytes:
    return b"".join(b"".join(wire.encode(encode_head(one))) for one in said)


def damaged(frames: list[bytes], changes: list[tuple[int, int]], cut: int) -> bytes:
    """Consecutive frames with changed bytes and a missing end."""
    data = bytearray(b"".join(frames))
    for place, value in changes:
        data[place % len(data)] = value
    return bytes(data[: len(data) - cut % len(data)])


ABSURD: dict[Any, st.SearchStrategy[Any]] = {
    int: st.sampled_from([-(2**63), -1, 0, 1, 2, 2**31, 2**53, 2**63 - 1, 2**64 - 1]),
    float: st.sampled_from([float("nan"), float("inf"), -float("inf"), -1.0, 0.0, 1e308]),
    str: st.sampled_from(["", "h", "c", "b", "right", "x" * 2000, "s/a", "../a", "/", "\0", "é"]),
    bytes: st.sampled_from([b"", b"abc", bytes(70_000), encode_head(SAID[5]), encode_head(SAID[6])]),
    bool: st.booleans(),
    type(None): st.none(),
}


def absurd(kind: Any) -> st.SearchStrategy[Any]:
    """An unlikely value of this type."""
    if get_origin(kind) is Literal:
        return st.sampled_from([*get_args(kind), "x"])
    inner = [absurd(one) for one in get_args(kind) if one is not ...]
    if get_origin(kind) is tuple:
        return st.lists(inner[0], max_size=3).map(tuple)
    if get_origin(kind) is dict:
        return st.dictionaries(*inner, max_size=3)
    if inner:
        return st.one_of(inner)
    if kind in ABSURD:
        return ABSURD[kind]
    return st.builds(kind, **{name: absurd(of) for name, of in get_type_hints(kind).items()})


MESSAGES = absurd(m.FromMember | m.ToMember | p.Pull | p.PullAnswer | p.Came | p.Ask | p.AskAnswer)
BYTES = st.integers(0, 255)
HOSTILE = st.one_of(
    st.binary(max_size=200),
    st.builds(lambda *announced: LENGTHS.pack(*announced) + bytes(2000), st.integers(0, 2**25), st.integers(0, 2**33)),
    st.builds(
        damaged,
        st.lists(st.sampled_from(FRAMES), min_size=1, max_size=3),
        st.lists(st.tuples(st.integers(0, 400), BYTES), max_size=3),
        st.just(0) | st.integers(0, 400),
    ),
    st.sampled_from(DEEP),
    st.lists(MESSAGES, max_size=4).map(lambda said: framed([m.Hello("h", ""), *said])),
    st.lists(MESSAGES, min_size=1, max_size=4).map(lambda said: framed(said)),
)


@contextlib.contextmanager
def sparing() -> Iterator[None]:
    """Fails when the test takes more than MEMORY."""
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        yield
        assert tracemalloc.get_traced_memory()[1] - before < MEMORY
    finally:
        tracemalloc.stop()


def attack(address: str, data: bytes, proved: bool) -> None:
    """Send the data, and wait until the other side has ended the connection. `proved`: after the challenge."""
    connection = dial(address) if proved else None
    sock = connection.sock if connection else socket.create_connection(wire.parse(address)[1:])
    with connection or sock:
        sock.settimeout(GENEROUS)
        with contextlib.suppress(ConnectionError):
            sock.sendall(data)
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_WR)
            while sock.recv(1 << 16):
                pass


def attacked(address: str, still_works: Callable[[], None]) -> None:
    @examples(80)
    @given(data=HOSTILE, proved=st.booleans())
    def check(data: bytes, proved: bool) -> None:
        with sparing():
            attack(address, data, proved)
        still_works()

    check()


def test_block_server_serves_others_after_any_message(tmp_path: Path) -> None:
    with served(tmp_path) as (host, server), reader() as client:
        host.put(f"{RUN}/s/a", [b"abc"])

        def serves() -> None:
            assert client.fetch(server.address, [("s/a", 0, 3)], soon()) == [b"abc"]

        attacked(server.address, serves)


def test_coordinator_answers_others_after_any_message(caplog: pytest.LogCaptureFixture) -> None:
    def answers() -> None:
        with dial(address) as witness:
            witness.send(m.Hello("witness", ""), deadline=soon())
            witness.send(m.Alive(), deadline=soon())
            assert witness.receive_head(m.ToMember, soon())[0] == m.Alive()

    with coordinators.running(RUN, KEY) as address:
        attacked(address, answers)
    assert not [record for record in caplog.records if record.name == "asyncio"], "an error without a class"


def test_member_goes_on_after_any_message_of_others(tmp_path: Path) -> None:
    with coordinators.running(RUN, KEY) as address:
        blocks = Blocks(Store.open(f"file://{tmp_path}"), RUN)
        member = Member(Gang(address, RUN, "g", 0, 1), KEY, blocks)
        try:
            attacked(member.address, lambda: member.wait_at("b", 1, soon()))
        finally:
            member.close()


@examples(80)
@given(data=HOSTILE, member=st.sampled_from(["", "somebody"]))
def test_reader_has_bytes_or_an_error_after_any_answer(data: bytes, member: str) -> None:
    def answer(connection: wire.Connection) -> None:
        connection.receive_head(p.Pull, soon())
        connection.sock.sendall(data)

    with serving(answer) as address, reader() as client, sparing():
        try:
            found = client.fetch(through(address, member) if member else address, [("s/a", 0, 3)], soon())
        except TreadleError:
            return
        assert len(found[0]) <= 3


@examples(40)
@given(data=HOSTILE)
def test_member_dials_again_after_any_message_of_its_coordinator(data: bytes) -> None:
    heard: list[m.ToMember] = []
    with (
        serving(lambda connection: connection.sock.sendall(data)) as address,
        sparing(),
        uplink(address, heard.append) as (loop, one),
    ):
        first = one._link  # private: the test waits for another connection
        loop.do(one.begin)
        loop.wait(lambda: one._link is not first or None, soon())


def test_gateway_goes_on_after_any_message_of_a_member(tmp_path: Path) -> None:
    host = HostFolder(tmp_path / "host")
    gateway = Gateway(host, lambda run: KEY, Membership("left", "members", KEY, lambda message: None))

    @examples(80)
    @given(data=HOSTILE)
    def check(data: bytes) -> None:
        ours, theirs = socket.socketpair()
        with theirs, sparing():
            # private: a path that needs no network
            gateway._opened("right", wire.Connection(ours, Plain(ours), name="right"))
            with contextlib.suppress(ConnectionError):
                theirs.settimeout(GENEROUS)
                theirs.sendall(data)
            with contextlib.suppress(OSError):
                theirs.shutdown(socket.SHUT_WR)
            eventually(lambda: not gateway._open)  # private: an open path has no other sign
            gateway.heard(m.Relayed("right", data), ("", 0))
            gateway.heard(m.Relayed("right", data[LENGTHS.size :]), ("", 0))
            with pytest.raises(wire.WireError, match="no path"):
                gateway.ask("right", RUN, [WANT], Counter(), direct=True)

    try:
        check()
    finally:
        gateway.close()


def test_client_that_does_not_read_is_disconnected(tmp_path: Path) -> None:
    host = HostFolder(tmp_path / "host")
    host.put(f"{RUN}/s/a", [bytes(1 << 20)])
    gateway = Gateway(host, lambda run: KEY, Membership("left", "members", KEY, lambda message: None))
    ours, theirs = socket.socketpair()
    try:
        gateway._opened("right", wire.Connection(ours, Plain(ours), name="right"))
        theirs.settimeout(GENEROUS)
        ask = b"".join(wire.encode(encode_head(p.Ask(1, RUN, (p.Want("s/a", 0, -1),)))))
        with contextlib.suppress(ConnectionError):
            while gateway._open:
                theirs.sendall(ask * 100)
        eventually(lambda: not gateway._open)
    finally:
        theirs.close()
        gateway.close()


def test_no_more_asks_wait_than_there_is_room_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    free = threading.Event()
    answers: list[m.FromMember] = []
    room = gateways._ANSWERING + gateways._WAITING  # private: the limits are not settings

    def slow(ask: p.Ask, _: HostFolder) -> tuple[p.AskAnswer, list[bytes]]:
        free.wait(GENEROUS)
        return p.AskAnswer(ask.number, ()), []

    monkeypatch.setattr(gateways, "answer_ask", slow)
    host = HostFolder(tmp_path / "host")
    gateway = Gateway(host, lambda run: KEY, Membership("left", "members", KEY, answers.append))
    try:
        for number in range(room + 50):
            gateway.heard(m.Relayed("right", encode_head(p.Ask(number, RUN, ()))), ("", 0))
        free.set()
        eventually(lambda: len(answers) == room)
        eventually(lambda: gateway._room._value == room)  # private: free places have no other sign
        gateway.heard(m.Relayed("right", encode_head(p.Ask(room + 50, RUN, ()))), ("", 0))
        eventually(lambda: len(answers) == room + 1)
    finally:
        free.set()
        gateway.close()
