from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from primitives.peers.faults import Fault, FaultyPath
from primitives.wire.leaks import nothing_left
from primitives.wire.sides import KEY, RUN, Other, Said, at_once, dial, echo, key_of, received, serving, soon

from treadle.primitives import wire
from treadle.primitives.errors import UsageError


async def echo_all(connection: wire.AsyncConnection) -> None:
    while True:
        message, tail = await connection.receive(Said, soon())
        await connection.send(message, tail, deadline=soon())


@asynccontextmanager
async def echoing(tls: wire.Identity | None) -> AsyncIterator[str]:
    async with await wire.serve(echo_all, f"{'tls' if tls else 'tcp'}://127.0.0.1:0", key_of, tls) as server:
        yield server.address


async def opened(address: str) -> wire.AsyncConnection:
    return await wire.open_connection(address, RUN, KEY, soon())


@pytest.mark.parametrize("size", [0, 1, 1024, 70_000, 5_000_000])
async def test_what_is_said_comes_back(tls: wire.Identity | None, size: int) -> None:
    tail = os.urandom(size)
    async with echoing(tls) as address:
        connection = await opened(address)
        for number in range(3):
            send = asyncio.ensure_future(connection.send(Said(number), tail, deadline=soon()))
            assert await connection.receive(Said, soon()) == (Said(number), tail)
            await send
        connection.close()
        await connection.wait_closed()


async def test_threads_and_loops_speak_the_same(tls: wire.Identity | None) -> None:
    def talk(address: str) -> None:
        with dial(address) as connection:
            for number in range(5):
                connection.send(Said(number), bytes(number * 5000), deadline=soon())
                assert received(connection) == (Said(number), bytes(number * 5000))

    async with echoing(tls) as address:
        await asyncio.to_thread(talk, address)
    with serving(echo, tls) as address:
        connection = await opened(address)
        await connection.send(Said(1), b"tail", deadline=soon())
        assert await connection.receive(Said, soon()) == (Said(1), b"tail")
        connection.close()
        await connection.wait_closed()


async def test_a_first_message_right_behind_the_proof_is_heard(tls: wire.Identity | None) -> None:
    """Limits for strangers must be gone by then, on both sides."""

    async def greet(connection: wire.AsyncConnection) -> None:
        connection.send_nowait(Said(0, "x" * 5000), bytes(5000))
        await echo_all(connection)

    address = f"{'tls' if tls else 'tcp'}://127.0.0.1:0"
    async with await wire.serve(greet, address, key_of, tls) as server:
        connection = await opened(server.address)
        connection.send_nowait(Said(1, "y" * 5000), bytes(6000))
        assert await connection.receive(Said, soon()) == (Said(0, "x" * 5000), bytes(5000))
        assert await connection.receive(Said, soon()) == (Said(1, "y" * 5000), bytes(6000))
        connection.close()
        await connection.wait_closed()


@pytest.mark.parametrize(("run", "key"), [(RUN, bytes(32)), ("another", KEY)])
async def test_who_does_not_hold_the_key_never_reaches_the_handler(
    tls: wire.Identity | None, run: str, key: bytes
) -> None:
    heard: list[wire.AsyncConnection] = []
    refused = asyncio.Queue[Exception]()

    async def hear(connection: wire.AsyncConnection) -> None:
        heard.append(connection)

    address = f"{'tls' if tls else 'tcp'}://127.0.0.1:0"
    async with await wire.serve(hear, address, key_of, tls, on_refused=refused.put_nowait) as server:
        with pytest.raises(wire.NotAuthentic):
            await wire.open_connection(server.address, run, key, soon())
        async with asyncio.timeout(60):
            assert isinstance(await refused.get(), wire.NotAuthentic | wire.WireError)
    assert heard == []


async def test_closing_a_server_ends_its_handlers_and_connections(tls: wire.Identity | None) -> None:
    ended = asyncio.Event()

    async def stay(connection: wire.AsyncConnection) -> None:
        try:
            await connection.receive(Said, soon())
        finally:
            ended.set()

    server = await wire.serve(stay, f"{'tls' if tls else 'tcp'}://127.0.0.1:0", key_of, tls)
    connections = [await opened(server.address) for _ in range(5)]
    await server.close()
    assert ended.is_set()
    for connection in connections:
        with pytest.raises(wire.WireError):
            await connection.receive(Said, soon())
        await connection.wait_closed()
    with pytest.raises(wire.WireError):
        await opened(server.address)


async def test_who_does_not_read_is_not_sent_without_bound(tls: wire.Identity | None) -> None:
    async def wait(connection: wire.AsyncConnection) -> None:
        await connection.wait_closed()

    async with await wire.serve(wait, f"{'tls' if tls else 'tcp'}://127.0.0.1:0", key_of, tls) as server:
        connection = await opened(server.address)
        sent = 0
        with pytest.raises(wire.TimedOut):  # noqa: PT012
            while sent < 1 << 30:
                await connection.send(Said(1), bytes(1 << 20), deadline=at_once())
                sent += 1 << 20
        assert sent < 100 << 20
        await connection.wait_closed()


async def test_no_answer_in_time_leaves_the_connection_usable() -> None:
    go = asyncio.Event()

    async def late(connection: wire.AsyncConnection) -> None:
        await go.wait()
        await connection.send(Said(1), deadline=soon())

    async with await wire.serve(late, "tcp://127.0.0.1:0", key_of) as server:
        connection = await opened(server.address)
        with pytest.raises(wire.TimedOut):
            await connection.receive(Said, at_once())
        go.set()
        assert (await connection.receive(Said, soon()))[0] == Said(1)
        with pytest.raises(wire.Closed):
            await connection.receive(Said, soon())
        connection.close()


async def test_what_is_not_the_expected_message_ends_the_connection() -> None:
    async with echoing(None) as address:
        connection = await opened(address)
        connection.send_nowait(Said(1))
        with pytest.raises(wire.WireError, match="not a Other"):
            await connection.receive(Other, soon())
        with pytest.raises(wire.WireError):
            connection.send_nowait(Said(1))
        await connection.wait_closed()


FAULTS = [
    Fault("silent"),
    Fault("reset"),
    Fault("cut", 5),
    Fault("cut", 60, requests=True),
    Fault("cut", 1500),
    Fault("stall", 60),
    Fault("stall", 5, requests=True),
    Fault("stall", 1500),
]


@pytest.mark.parametrize("fault", FAULTS, ids=str)
async def test_a_path_that_fails_ends_in_an_error_by_the_deadline(tls: wire.Identity | None, fault: Fault) -> None:
    async with echoing(tls) as address:
        with FaultyPath(address, [fault]) as path, pytest.raises(wire.WireError):
            await trip(path.address, time.monotonic() + 0.2)


async def trip(address: str, deadline: float) -> None:
    connection = await wire.open_connection(address, RUN, KEY, deadline)
    try:
        await connection.send(Said(1), bytes(3000), deadline=deadline)
        assert await connection.receive(Said, deadline) == (Said(1), bytes(3000))
    finally:
        connection.abort()
        await connection.wait_closed()


async def test_reading_pauses_while_nobody_takes_what_came() -> None:
    """The sender is slowed down, and everything arrives once it is wanted."""
    sent: list[int] = []

    def flood(connection: wire.Connection) -> None:
        for number in range(300):
            connection.send(Said(number), bytes(100_000), deadline=soon())
            sent.append(number)

    with serving(flood) as address:
        connection = await opened(address)
        before = -1
        while before != len(sent):  # until the sender makes no more progress
            before = len(sent)
            await asyncio.sleep(0.2)
        assert len(sent) < 300
        for number in range(300):
            assert await connection.receive(Said, soon()) == (Said(number), bytes(100_000))
        connection.close()
        await connection.wait_closed()


async def test_many_clients_at_once_get_their_own_answers() -> None:
    async def talk(address: str, number: int) -> None:
        connection = await opened(address)
        for turn in range(10):
            await connection.send(Said(number, str(turn)), deadline=soon())
            assert (await connection.receive(Said, soon()))[0] == Said(number, str(turn))
        connection.close()
        await connection.wait_closed()

    async with echoing(None) as address:
        await asyncio.gather(*(talk(address, number) for number in range(50)))


def test_a_loop_leaves_nothing_behind(tls: wire.Identity | None) -> None:
    async def main() -> None:
        async with echoing(tls) as address:
            await asyncio.gather(*(trip(address, soon()) for _ in range(5)))
            with pytest.raises(wire.NotAuthentic):
                await wire.open_connection(address, RUN, bytes(32), soon())

    with nothing_left():
        asyncio.run(main())


async def test_an_identity_goes_with_tls_and_only_with_it(identity: wire.Identity) -> None:
    for address, tls in (("tcp://127.0.0.1:0", identity), ("tls://127.0.0.1:0", None)):
        with pytest.raises(UsageError, match="goes with tls"):
            await wire.serve(echo_all, address, key_of, tls)
    with pytest.raises(UsageError, match="would not be encrypted"):
        await wire.open_connection("tcp://10.0.0.1:5", RUN, KEY, soon())
