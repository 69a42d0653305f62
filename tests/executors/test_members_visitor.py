"""The driver's own connection among its members: it reconnects after a break, and repeats requests and answers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from eventually import eventually_async

from treadle.executors.resident import machine
from treadle.executors.resident.driver_peer import Visitor
from treadle.executors.resident.machine import Instruction, MemberMachine
from treadle.primitives.coordinator.server import CoordinatorServer
from treadle.primitives.peers import PeerClient, local_gateways, through
from treadle.primitives.run_paths import run_folder
from treadle.primitives.stores.shared_memory import HostFolder

RUN, KEY, SESSION = "run", bytes(range(32)), "members-1"
HELD = b"a block of its own"
LONG = 60.0


@pytest.fixture
async def coordinator() -> AsyncIterator[CoordinatorServer]:
    async with CoordinatorServer({SESSION: KEY}.get) as server:
        yield server


@pytest.fixture
def came(monkeypatch: pytest.MonkeyPatch) -> list[MemberMachine]:
    """The state machine of a visitor, once for each of its connections."""
    calls: list[MemberMachine] = []
    connected = MemberMachine.connected

    def recorded(machine: MemberMachine, now: float) -> list[Instruction]:
        calls.append(machine)
        return connected(machine, now)

    monkeypatch.setattr(MemberMachine, "connected", recorded)
    return calls


@asynccontextmanager
async def visiting(coordinator: CoordinatorServer, folder: Path) -> AsyncIterator[Visitor]:
    HostFolder(folder).put(f"{run_folder(RUN)}/s/a", [HELD])
    visitor = Visitor(coordinator.address, SESSION, KEY, {RUN: KEY}.__getitem__, lambda member: True, folder)
    visitor.know(RUN, f"file://{folder}/store")
    try:
        yield visitor
    finally:
        await visitor.stop()


async def test_a_visitor_whose_connection_breaks_comes_back_and_is_asked_and_answers(
    coordinator: CoordinatorServer, came: list[MemberMachine], tmp_path: Path
) -> None:
    async with visiting(coordinator, tmp_path / "one") as one, visiting(coordinator, tmp_path / "other") as other:
        await eventually_async(lambda: len(came) == 2)
        assert local_gateways.gateway_to(other.name)
        for connection in list(coordinator._open):  # private: the test cuts the connections
            connection.abort()
        await eventually_async(lambda: len(came) == 4)
        await eventually_async(lambda: all(coordinator.present(SESSION, visitor.name) for visitor in (one, other)))
        assert local_gateways.gateway_to(other.name)
        for reader, holder in ((one, other), (other, one)):
            assert await asyncio.to_thread(read, reader, holder) == HELD
    assert not local_gateways.gateway_to(other.name)


async def test_a_visitor_that_hears_nothing_for_long_dials_again_and_is_there_once(
    coordinator: CoordinatorServer, came: list[MemberMachine], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "SILENCE", 0.2)  # less than the time between two signs of life
    async with visiting(coordinator, tmp_path / "one"):
        await eventually_async(lambda: len(came) == 3)
        assert coordinator.statistics(SESSION).members == 1
    assert not local_gateways.gateway_to("anybody")


def read(reader: Visitor, holder: Visitor) -> bytes:
    client = PeerClient(RUN, KEY)
    try:
        address = through(reader._server.address, holder.name)  # private: the test needs the address
        (found,) = client.fetch(address, [("s/a", 0, len(HELD))], time.monotonic() + LONG)
    finally:
        client.close()
    return bytes(found)
