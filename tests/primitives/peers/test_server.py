from __future__ import annotations

import contextlib
import errno
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from eventually import eventually
from primitives.peers.hosts import KEY, RUN, content, reader, served, soon
from primitives.wire.sides import receive

from treadle.primitives import wire
from treadle.primitives.errors import StoreError, UsageError
from treadle.primitives.peers import PeerServer, Want, responses
from treadle.primitives.peers.messages import BATCH, GONE, REFUSED, WANTS_LIMIT, Pull, PullAnswer
from treadle.primitives.stores.shared_memory import HostFolder
from treadle.primitives.wire import unauthenticated


def dial(address: str) -> wire.Connection:
    return wire.connect(address, RUN, KEY, deadline=soon())


def ask(connection: wire.Connection, *wants: Want) -> tuple[tuple[int, ...], bytes]:
    connection.send(Pull(wants), deadline=soon())
    return answer(connection)


def answer(connection: wire.Connection) -> tuple[tuple[int, ...], bytes]:
    part, tail = receive(connection, PullAnswer)
    return part.lengths, tail


def test_short_ranges_are_answered_together_and_long_ones_alone(tmp_path: Path) -> None:
    long = content(BATCH + 1)
    with served(tmp_path) as (host, server), dial(server.address) as connection:
        host.put(f"{RUN}/s/a", [b"0123456789"])
        host.put(f"{RUN}/s/b", [long])
        short = [Want("s/a", i, 2) for i in range(9)]
        assert ask(connection, *short)[0] == (2,) * 9
        wants = (short[0], Want("s/b", 0, -1), Want("s/none", 0, 1), short[1])
        assert ask(connection, *wants) == ((2,), b"01")
        assert answer(connection) == ((len(long),), long)
        assert answer(connection) == ((GONE, 2), b"12")


def test_reader_without_a_free_thread_costs_no_other(tmp_path: Path, refusing: Callable[[str], None]) -> None:
    refusing("treadle-peer")
    with served(tmp_path) as (host, server):
        host.put(f"{RUN}/s/a", [b"0123456789"])
        with pytest.raises(wire.WireError):
            dial(server.address)
        with dial(server.address) as connection:
            assert ask(connection, Want("s/a", 0, 4)) == ((4,), b"0123")
            assert server.connections == 1


@pytest.mark.parametrize(
    "name", ["../other/s/a", "/etc/passwd", "s/../../other/s/a", "s/./a", "", ".", "s\0a", ".tmp-x"]
)
def test_name_that_leads_out_of_the_folder_is_refused_by_the_server(tmp_path: Path, name: str) -> None:
    with served(tmp_path) as (host, server), dial(server.address) as connection:
        host.put("other/s/a", [b"secret"])
        host.put(f"{RUN}/s/a", [b"ours"])
        assert ask(connection, Want(name, 0, 6), Want("s/a", 0, 4)) == ((REFUSED, 4), b"ours")


def test_links_and_negative_places_are_refused(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"secret")
    with served(tmp_path) as (host, server), dial(server.address) as connection:
        host.put(f"{RUN}/s/a", [b"ours"])
        host.path(f"{RUN}/s/link").symlink_to(tmp_path / "secret")
        wants = Want("s/link", 0, 6), Want("s/a", -1, 2), Want("s/a", 0, -2)
        assert ask(connection, *wants) == ((REFUSED,) * 3, b"")


def test_too_many_wants_at_once_end_the_connection(tmp_path: Path) -> None:
    with served(tmp_path) as (_, server), dial(server.address) as connection:
        with pytest.raises(wire.WireError):
            ask(connection, *[Want("s/a", 0, 1)] * (WANTS_LIMIT + 1))
        with dial(server.address) as another:
            assert ask(another, *[Want("s/a", 0, 1)] * WANTS_LIMIT)[0] == (GONE,) * WANTS_LIMIT


def test_malformed_request_ends_only_its_connection(tmp_path: Path) -> None:
    with served(tmp_path) as (_, server), dial(server.address) as good, dial(server.address) as bad:
        bad.send_frame(b"\xc1nonsense", deadline=soon())
        with pytest.raises(wire.WireError):
            bad.receive_head(PullAnswer, soon())
        assert ask(good, Want("s/a", 0, 1)) == ((GONE,), b"")


def test_a_reader_that_takes_nothing_does_not_hold_up_others(tmp_path: Path) -> None:
    with served(tmp_path) as (host, server), dial(server.address) as slow, reader() as client:
        host.put(f"{RUN}/s/a", [bytes(50_000_000)])
        slow.send(Pull((Want("s/a", 0, -1),)), deadline=soon())
        for _ in range(3):
            assert client.fetch(server.address, [("s/a", 0, 1_000_000)], soon()) == [bytes(1_000_000)]


def test_a_reader_that_takes_nothing_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(responses, "_PATIENCE", 0.05)
    monkeypatch.setattr(responses, "_SLOWEST", 1 << 40)
    with served(tmp_path) as (host, server), dial(server.address) as slow:
        host.put(f"{RUN}/s/a", [bytes(50_000_000)])
        slow.send(Pull((Want("s/a", 0, -1),)), deadline=soon())
        eventually(lambda: server.connections == 0)


def test_the_connection_idle_for_longest_makes_room(tmp_path: Path) -> None:
    with served(tmp_path, connections=2) as (host, server), reader() as client:
        host.put(f"{RUN}/s/a", [b"abc"])
        first, second = dial(server.address), dial(server.address)
        for connection, idle in ((first, 1), (second, 2), (first, 2)):  # so the second has been idle for longer
            ask(connection, Want("s/a", 0, 1))
            while len(server._idle) != idle:  # private: an idle connection has no other sign
                time.sleep(0.005)
        with dial(server.address) as third:
            assert ask(third, Want("s/a", 0, 3)) == ((3,), b"abc")
            assert ask(first, Want("s/a", 1, 1)) == ((1,), b"b")
            with pytest.raises(wire.WireError):
                ask(second, Want("s/a", 0, 1))
        first.close()
        assert client.fetch(server.address, [("s/a", 0, 3)], soon()) == [b"abc"]


def test_more_readers_than_connections_are_all_served(tmp_path: Path) -> None:
    with served(tmp_path, connections=3) as (host, server):
        host.put(f"{RUN}/s/a", [block := content(300_000)])
        wrong: list[object] = []

        def read() -> None:
            with reader() as client:
                for _ in range(5):
                    if client.fetch(server.address, [("s/a", 0, -1)], soon()) != [block]:
                        wrong.append(block)

        threads = [threading.Thread(target=read) for _ in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert wrong == []


@pytest.fixture
def crowd() -> Iterator[Callable[[PeerServer, int], None]]:
    """Opens this many connections that send nothing."""
    with contextlib.ExitStack() as stack:

        def call(server: PeerServer, count: int) -> None:
            for _ in range(count):
                stack.enter_context(socket.create_connection(wire.parse(server.address)[1:]))

        yield call


def test_callers_that_prove_nothing_cost_each_other_and_no_reader(
    tmp_path: Path, crowd: Callable[[PeerServer, int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unauthenticated, "GRACE", 0.05)
    with served(tmp_path, connections=8) as (host, there), contextlib.ExitStack() as stack:
        host.put(f"{RUN}/s/a", [b"abc"])
        readers = [stack.enter_context(dial(there.address)) for _ in range(4)]
        for connection in readers:
            ask(connection, Want("s/a", 0, 1))
        crowd(there, 30)
        with dial(there.address) as late:
            assert ask(late, Want("s/a", 0, 3)) == ((3,), b"abc")
        for connection in readers:
            assert ask(connection, Want("s/a", 1, 1)) == ((1,), b"b")


def test_reader_displaces_an_unproved_connection_before_an_idle_one(
    tmp_path: Path, crowd: Callable[[PeerServer, int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unauthenticated, "GRACE", 0.0)
    with served(tmp_path, connections=2) as (host, there), dial(there.address) as idle:
        host.put(f"{RUN}/s/a", [b"abc"])
        ask(idle, Want("s/a", 0, 1))
        crowd(there, 1)
        eventually(lambda: there.connections == 2)
        with dial(there.address) as another:
            assert ask(another, Want("s/a", 0, 3)) == ((3,), b"abc")
            assert ask(idle, Want("s/a", 0, 3)) == ((3,), b"abc")


def test_closing_ends_every_thread_in_any_state(tmp_path: Path, tls: wire.Identity | None) -> None:
    """The threads are idle, send to a reader that takes nothing, or wait for a handshake."""
    before = set(threading.enumerate())
    with served(tmp_path, tls) as (host, server):
        host.put(f"{RUN}/s/a", [bytes(50_000_000)])
        target = wire.parse(server.address)
        with dial(server.address), dial(server.address) as slow, socket.create_connection(target[1:]):
            slow.send(Pull((Want("s/a", 0, -1),)), deadline=soon())
            eventually(lambda: server.connections == 3)
            server.close()
            server.close()
            assert server.connections == 0
            assert set(threading.enumerate()) == before


def test_started_answer_is_completed_when_its_run_is_deleted(tmp_path: Path) -> None:
    with served(tmp_path) as (host, server), dial(server.address) as connection:
        host.put(f"{RUN}/s/a", [block := content(20_000_000)])
        connection.send(Pull((Want("s/a", 0, -1), Want("s/a", 0, 1), Want("s/b", 0, 1))), deadline=soon())
        _, length = connection.receive_head(PullAnswer, soon(), tail_limit=1 << 30)
        host.delete_run(RUN)
        view = memoryview(bytearray(length))
        connection.receive_into(view, soon())
        assert view == block
        assert ask(connection, Want("s/a", 0, 1))[0][-1] == GONE


def test_off_loopback_it_listens_with_tls_only(tmp_path: Path) -> None:
    host = HostFolder(tmp_path / "host")
    with pytest.raises(UsageError, match="would not be encrypted"):
        PeerServer(host, {RUN: KEY}.get, "tcp://10.0.0.1:0")
    for nowhere in ("tls://0.0.0.0:0", "tls://[::]:0"):  # would be announced, but cannot be dialled
        with pytest.raises(UsageError, match="no address to dial"):
            PeerServer(host, {RUN: KEY}.get, nowhere)


def test_a_full_disk_leaves_no_room_for_an_identity(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("cryptography")

    def full(descriptor: int, views: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "writev", full)
    with pytest.raises(StoreError, match="is full"):
        PeerServer(HostFolder(tmp_path / "host"), {RUN: KEY}.get, "tls://127.0.0.1:0")


def test_without_an_identity_one_is_kept_in_the_host_folder(tmp_path: Path) -> None:
    pytest.importorskip("cryptography")
    host = HostFolder(tmp_path / "host")
    host.put(f"{RUN}/s/a", [b"abc"])
    for _ in range(2):
        with PeerServer(host, {RUN: KEY}.get, "tls://127.0.0.1:0") as server, reader() as client:
            assert client.fetch(server.address, [("s/a", 0, -1)], soon()) == [b"abc"]
    assert host.folders() == [RUN]
    assert sorted(os.listdir(host.root)) == [RUN, "tls.pem"]
