from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from typing import Literal

import pytest
from primitives.peers.faults import HEALTHY, Fault, FaultyPath
from primitives.wire.sides import (
    KEY,
    RUN,
    Other,
    Said,
    at_once,
    dial,
    echo,
    key_of,
    receive,
    serving,
    soon,
    trip,
    until,
)

from treadle.primitives import wire
from treadle.primitives.errors import UsageError
from treadle.primitives.wire.framing import LENGTHS


@pytest.mark.parametrize("size", [0, 1, 1024, 70_000, 5_000_000])
def test_message_is_echoed(tls: wire.Identity | None, size: int) -> None:
    tail = os.urandom(size)
    with serving(echo, tls) as address, dial(address) as connection:
        for number in range(3):
            sender = threading.Thread(target=lambda n=number: connection.send(Said(n), tail, deadline=soon()))
            sender.start()  # so neither side waits for the other to read
            message, returned = receive(connection, Said)
            sender.join()
            assert message == Said(number)
            assert returned == tail
        assert connection.run == RUN


def test_long_heads_and_tails_of_many_pieces_come_whole(tls: wire.Identity | None) -> None:
    pieces = [bytes([index % 256]) * (index % 90) for index in range(3000)]
    with serving(echo, tls) as address, dial(address) as connection:
        connection.send(Said(1, "x" * 200_000), pieces, deadline=soon())
        connection.send(Said(2), deadline=soon())
        message, tail = receive(connection, Said)
        assert message == Said(1, "x" * 200_000)
        assert tail == b"".join(pieces)
        assert receive(connection, Said)[0] == Said(2)


def test_messages_that_come_together_are_taken_one_by_one() -> None:
    def rapid(connection: wire.Connection) -> None:
        for number in range(500):
            connection.send(Said(number), bytes([number % 256]) * (number % 300), deadline=soon())

    with serving(rapid) as address, dial(address) as connection:
        for number in range(500):
            message, tail = receive(connection, Said)
            assert message.number == number
            assert tail == bytes([number % 256]) * (number % 300)
        with pytest.raises(wire.ConnectionClosed):
            receive(connection, Said)


def test_a_tail_can_be_received_in_parts_where_the_caller_wants_it() -> None:
    whole = os.urandom(300_000)
    with serving(lambda server: server.send(Said(1), whole, deadline=soon())) as address, dial(address) as connection:
        target = memoryview(bytearray(300_000))
        message, length = connection.receive_head(Said, soon(), tail_limit=300_000)
        assert (message, length) == (Said(1), 300_000)
        for start in range(0, length, 70_000):
            connection.receive_into(target[start : start + 70_000], soon())
        assert target == whole


def test_a_file_is_sent_as_a_tail(tls: wire.Identity | None, tmp_path: os.PathLike[str]) -> None:
    path = os.path.join(tmp_path, "file")
    with open(path, "wb") as file:
        file.write(content := os.urandom(2_000_000))
    descriptor = os.open(path, os.O_RDONLY)

    def send(connection: wire.Connection) -> None:
        connection.send_file(Said(1), descriptor, 1000, 1_500_000, deadline=soon())
        connection.send_file(Said(2), descriptor, 1_999_990, 100, deadline=soon())

    try:
        with serving(send, tls) as address, dial(address) as connection:
            assert receive(connection, Said) == (Said(1), content[1000:1_501_000])
            with pytest.raises(wire.WireError, match="within a message"):
                receive(connection, Said)  # the file ends before the announced tail
    finally:
        os.close(descriptor)


def test_a_tail_is_sent_in_pieces_as_they_are_had(tls: wire.Identity | None) -> None:
    pieces = [os.urandom(size) for size in (1, 0, 3_000_000, 70_000)]
    content = b"".join(pieces)

    def send(connection: wire.Connection) -> None:
        connection.send_pieces(Said(1), iter(pieces), len(content), deadline=soon())
        connection.send_pieces(Said(2), iter(pieces), len(content) + 1, deadline=soon())

    with serving(send, tls) as address, dial(address) as connection:
        assert receive(connection, Said) == (Said(1), content)
        with pytest.raises(wire.WireError, match="within a message"):
            receive(connection, Said)  # the pieces end before the announced tail


def test_message_of_a_union_is_decoded_by_type_and_any_other_is_an_error() -> None:
    def send(connection: wire.Connection) -> None:
        connection.send(Other(["a"]), deadline=soon())
        connection.send(Other(["b"]), deadline=soon())

    with serving(send) as address, dial(address) as connection:
        assert connection.receive_head(Said | Other, soon())[0] == Other(["a"])
        with pytest.raises(wire.WireError, match="not a Said"):
            receive(connection, Said)
        assert connection.closed


def test_no_answer_in_time_leaves_the_connection_usable() -> None:
    go = threading.Event()

    def late(connection: wire.Connection) -> None:
        go.wait(60)
        connection.send(Said(1), b"late", deadline=soon())

    with serving(late) as address, dial(address) as connection:
        with pytest.raises(wire.TimedOut):
            receive(connection, Said, at_once())
        go.set()
        assert receive(connection, Said) == (Said(1), b"late")


def test_a_reader_that_takes_nothing_does_not_hold_its_sender(tls: wire.Identity | None) -> None:
    done = threading.Event()
    with serving(until(done), tls) as address, dial(address) as connection:
        with pytest.raises(wire.TimedOut):
            connection.send(Said(1), bytes(50_000_000), deadline=at_once())
        assert connection.closed
        done.set()


def test_connection_aborted_by_another_thread_is_closed_for_the_waiting_thread(tls: wire.Identity | None) -> None:
    with serving(echo, tls) as address, dial(address) as connection:
        timer = threading.Timer(0.05, connection.abort)
        timer.start()
        with pytest.raises(wire.ConnectionClosed):
            receive(connection, Said)
        timer.join()
        connection.close()
        with pytest.raises(wire.ConnectionClosed):
            connection.send(Said(1), deadline=soon())


def test_stale_means_that_something_came_unasked() -> None:
    said = threading.Event()
    with serving(until(said)) as address, dial(address) as connection:
        assert not connection.stale
        said.set()
        with pytest.raises(wire.ConnectionClosed):
            receive(connection, Said)
        assert connection.stale


@pytest.mark.parametrize(("run", "key"), [(RUN, bytes(32)), ("another", KEY)])
def test_stranger_without_the_key_is_refused(tls: wire.Identity | None, run: str, key: bytes) -> None:
    heard: list[wire.Connection] = []
    with serving(heard.append, tls) as address, pytest.raises(wire.NotAuthentic):
        wire.connect(address, run, key, deadline=soon())
    assert heard == []


def test_relay_with_a_certificate_of_its_own_is_detected(identity: wire.Identity, tmp_path: os.PathLike[str]) -> None:
    """The intermediary ends TLS on one side and starts it on the other, and forwards every byte."""
    his = wire.tls_identity(tmp_path)

    def relay(sock: socket.socket, server: str) -> None:
        target = wire.parse(server)
        with his.context().wrap_socket(sock, server_side=True) as victim, socket.create_connection(target[1:]) as raw:
            from treadle.primitives.wire.tls import client_context

            with client_context().wrap_socket(raw) as real:
                victim.settimeout(60)
                real.settimeout(60)
                real.sendall(victim.recv(4096))
                victim.sendall(real.recv(4096))
                assert victim.recv(4096) == b"", "the victim says nothing more"

    with serving(echo, identity) as address, socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=lambda: relay(listener.accept()[0], address))
        thread.start()
        with pytest.raises(wire.NotAuthentic, match="does not hold"):
            dial(f"tls://127.0.0.1:{listener.getsockname()[1]}")
        thread.join()


def test_closed_port_is_an_error_at_once(tls: wire.Identity | None) -> None:
    with pytest.raises(wire.WireError, match=r"a\.\.b"):
        dial("tls://a..b:1")  # not a valid host name
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(wire.WireError, match=f"127.0.0.1:{port}") as caught:
        dial(f"{'tls' if tls else 'tcp'}://127.0.0.1:{port}")
    assert caught.value.retryable


KINDS: tuple[Literal["cut", "stall"], ...] = ("cut", "stall")
LEFT_OPEN = pytest.mark.filterwarnings("ignore:.*<ssl.SSLSocket:pytest.PytestUnraisableExceptionWarning")
"""Python's wrap_socket leaves a socket open that was reset just before."""
FAULTS = [
    Fault("silent"),
    pytest.param(Fault("reset"), marks=LEFT_OPEN),
    *(Fault(kind, after, requests) for kind in KINDS for after in (5, 95) for requests in (False, True)),
]


@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_a_path_that_fails_ends_in_an_error_by_the_deadline(tls: wire.Identity | None, fault: Fault) -> None:
    with serving(echo, tls) as address, FaultyPath(address, [fault]) as path:
        expected = wire.TimedOut if fault.kind in ("silent", "stall") else wire.WireError
        with pytest.raises(expected):
            trip(path.address, time.monotonic() + 0.2)


def test_slow_drip_does_not_extend_the_deadline() -> None:
    with serving(echo) as address, FaultyPath(address, [Fault("drip")]) as path, dial(path.address) as connection:
        connection.send(Said(1), bytes(10_000_000), deadline=soon())
        with pytest.raises(wire.TimedOut):
            receive(connection, Said, at_once())


@pytest.mark.parametrize("at", range(0, 140, 7))
def test_a_changed_byte_under_tls_is_never_taken_for_the_right_one(identity: wire.Identity, at: int) -> None:
    fault = Fault("corrupt", 90 * at)
    with serving(echo, identity) as address, FaultyPath(address, [fault, HEALTHY]) as path:
        with pytest.raises((wire.WireError, wire.NotAuthentic)):
            trip(path.address, time.monotonic() + 2, times=4, size=5000)
        trip(path.address, soon())


def test_announced_lengths_beyond_the_limits_end_the_connection() -> None:
    def boast(connection: wire.Connection) -> None:
        connection.sock.sendall(LENGTHS.pack(1 << 31, 0))

    with serving(boast) as address, dial(address) as connection:
        with pytest.raises(wire.WireError, match="announces"):
            receive(connection, Said)
        assert connection.closed


def test_memory_is_allocated_for_received_not_for_announced_bytes() -> None:
    size, come = 16 << 20, threading.Event()

    def boast(connection: wire.Connection) -> None:
        connection.sock.setblocking(True)
        connection.sock.sendall(LENGTHS.pack(size, 0) + bytes(100_000))
        come.wait(60)
        connection.sock.sendall(bytes(size - 100_000))
        connection.send(Said(1), deadline=soon())

    with serving(boast) as address, dial(address) as connection:
        with pytest.raises(wire.TimedOut):
            connection.receive_head(Said, at_once())
        assert len(connection._buffer) < 300_000  # private: allocated memory has no other sign
        come.set()
        with pytest.raises(wire.WireError, match="not a Said"):
            connection.receive_head(Said, soon())
        assert len(connection._buffer) >= size


@pytest.mark.parametrize("address", ["tcp://10.0.0.1:1", "tcp://0.0.0.0:0", "tcp://example.org:80", "tcp://[::]:0"])
def test_off_loopback_only_tls_is_spoken(address: str) -> None:
    for use in (wire.listen, dial):
        with pytest.raises(UsageError, match="would not be encrypted"):
            use(address)
    assert str(wire.parse(address, plain=True)) == address
    assert str(wire.parse(address.replace("tcp", "tls"))) == address.replace("tcp", "tls")


@pytest.mark.parametrize(
    "address", ["", "tcp://", "tcp://127.0.0.1", "udp://127.0.0.1:1", "127.0.0.1:80", "tls://a:99999", "unix://a"]
)
def test_invalid_address_is_refused(address: str) -> None:
    with pytest.raises(UsageError, match="is not an address"):
        wire.parse(address)


@pytest.mark.parametrize("address", ["tcp://127.0.0.9:1", "tcp://localhost:1", "tcp://[::1]:1"])
def test_loopback_has_many_names(address: str) -> None:
    assert str(wire.parse(address)) == address


def test_silent_or_malformed_caller_is_dismissed() -> None:
    refused: list[str] = []

    def attempt(sock: socket.socket) -> None:
        try:
            wire.accept(sock, key_of, deadline=time.monotonic() + 0.3)
        except (wire.WireError, wire.NotAuthentic) as error:
            refused.append(type(error).__name__)

    for words in (b"", b"GET / HTTP/1.1\r\n\r\n", LENGTHS.pack(3, 0) + b"abc"):
        with (
            socket.create_server(("127.0.0.1", 0)) as listener,
            socket.create_connection(listener.getsockname()) as raw,
        ):
            raw.sendall(words)
            attempt(listener.accept()[0])
    assert refused == ["TimedOut", "WireError", "NotAuthentic"]


def test_one_can_dial_from_a_chosen_port() -> None:
    seen: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with (
        serving(lambda connection: seen.append(connection.name)) as address,
        wire.connect(address, RUN, KEY, deadline=soon(), source=("127.0.0.1", port)) as connection,
        pytest.raises(wire.ConnectionClosed),
    ):
        receive(connection, Said)
    assert seen == [f"127.0.0.1:{port}"]


def test_importing_wire_loads_neither_ssl_nor_asyncio() -> None:
    code = "import sys, treadle.primitives.wire; print({'ssl', 'asyncio', 'numpy', 'cryptography'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "set()\n"
