"""Tests of the test network: hosts reach each other, NATs block callers, a cut link is silent and heals."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
from collections.abc import Iterator

import namespaces
import pytest
from namespaces import Host, Nat, cut, two_hosts, two_nats

pytestmark = pytest.mark.skipif(bool(namespaces.unsupported()), reason=namespaces.unsupported())

LONG = 20.0
"""Seconds in which expected events happen, also on a busy machine."""
SILENCE = 0.3
"""Seconds to wait for events that must not happen."""


@pytest.fixture
def pair() -> Iterator[tuple[Host, Host]]:
    with two_hosts() as hosts:
        yield hosts


def listen(host: Host) -> socket.socket:
    with host.entered():
        return socket.create_server((host.address, 0))


def dial(host: Host, server: socket.socket, address: str = "", timeout: float = LONG) -> socket.socket:
    name, port = server.getsockname()
    with host.entered():
        return socket.create_connection((address or name, port), timeout)


def talk(server: socket.socket, client: socket.socket) -> str:
    """Send bytes both ways. Returns the client's address for the server."""
    server.settimeout(LONG)
    accepted, address = server.accept()
    with accepted:
        accepted.settimeout(LONG)
        client.sendall(b"there")
        assert accepted.recv(5, socket.MSG_WAITALL) == b"there"
        accepted.sendall(b"back")
        assert client.recv(4, socket.MSG_WAITALL) == b"back"
    return str(address[0])


def test_two_hosts_reach_each_other(pair: tuple[Host, Host]) -> None:
    left, right = pair
    with listen(left) as server, dial(right, server) as client:
        assert talk(server, client) == right.address


def test_this_thread_is_back_home_afterwards(pair: tuple[Host, Host]) -> None:
    home = os.readlink("/proc/thread-self/ns/net")
    with contextlib.suppress(ZeroDivisionError), pair[0].entered():
        assert os.readlink("/proc/thread-self/ns/net") != home
        _ = 1 // 0
    assert os.readlink("/proc/thread-self/ns/net") == home


def test_a_command_runs_on_its_host(pair: tuple[Host, Host]) -> None:
    left, right = pair
    assert f"{left.address}/24" in left.run("ip", "address")
    with pytest.raises(namespaces.CommandFailed, match=r"cat: /not/there"):
        right.run("cat", "/not/there")


@pytest.mark.parametrize("both_ways", [True, False])
def test_a_cut_link_is_silent_and_heals(pair: tuple[Host, Host], both_ways: bool) -> None:
    left, right = pair
    with listen(left) as server:
        with cut(left, right, both_ways=both_ways), pytest.raises(TimeoutError):
            dial(right, server, timeout=SILENCE)
        with dial(right, server) as client:
            client.settimeout(LONG)
            talk(server, client)


def test_a_link_cut_one_way_still_carries_the_other(pair: tuple[Host, Host]) -> None:
    left, right = pair
    with listen(left) as server, dial(right, server) as client:
        server.settimeout(LONG)
        accepted, _ = server.accept()
        with accepted, cut(left, right, both_ways=False):
            accepted.settimeout(LONG)
            client.sendall(b"heard")
            assert accepted.recv(5, socket.MSG_WAITALL) == b"heard"
            accepted.sendall(b"lost")
            client.settimeout(SILENCE)
            with pytest.raises(TimeoutError):
                client.recv(4)


@pytest.mark.parametrize("mapping", ["preserving", "random"])
def test_nat_lets_its_host_out_and_no_stranger_in(mapping: str) -> None:
    with two_nats(left=Nat(mapping)) as (public, left, right):
        with listen(public) as server, dial(left, server) as client:
            assert talk(server, client) == left.public
        with listen(left) as server:
            for outsider in (public, right):
                with pytest.raises(OSError):
                    dial(outsider, server, left.public, SILENCE)


def test_a_nat_keeps_the_port_or_does_not() -> None:
    with two_nats(left=Nat("preserving"), right=Nat("random")) as (public, left, right), listen(public) as server:
        kept = []
        for host in (left, right):
            with dial(host, server) as client:
                server.settimeout(LONG)
                accepted, seen = server.accept()
                accepted.close()
                kept.append(seen[1] == client.getsockname()[1])
        assert kept == [True, False]


def test_a_nat_may_answer_strangers_with_a_reset() -> None:
    with (
        two_nats(left=Nat(unsolicited="reset")) as (public, left, _),
        listen(left) as server,
        pytest.raises(ConnectionRefusedError),
    ):
        dial(public, server, left.public)


def mine() -> set[str]:
    return {name for name in os.listdir("/run/netns") if name.startswith(f"treadle-{os.getpid()}-")}


def test_nothing_is_left_behind() -> None:
    before = mine()
    with contextlib.suppress(ZeroDivisionError), two_nats() as (_, left, _):
        process = left.popen(sys.executable, "-c", "import time; time.sleep(600)")
        assert len(mine() - before) == 5
        _ = 1 // 0
    assert process.returncode is not None
    assert mine() == before


def test_namespaces_of_the_dead_are_swept() -> None:
    gone = "treadle-999999999-0-left"
    namespaces._run("ip", "netns", "add", gone)  # private: the test makes a namespace that fails
    with two_hosts():
        assert gone not in os.listdir("/run/netns")
