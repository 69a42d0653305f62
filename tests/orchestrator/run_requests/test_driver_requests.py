"""Requests about runs at a driver's socket: the answers, the errors, and clients and drivers that go away."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from eventually import eventually_async
from orchestrator.run_requests.known_runs import ANSWERS, ERRORS, REQUESTS, KnownRuns, refused

from treadle.orchestrator.environment.connection_errors import Unreachable
from treadle.orchestrator.run_requests import driver_server
from treadle.orchestrator.run_requests import requests as r
from treadle.orchestrator.run_requests.driver_client import DriverRuns
from treadle.orchestrator.run_requests.driver_server import DriverServer
from treadle.primitives import wire
from treadle.primitives.errors import InternalError, TreadleError, UsageError

KEY = bytes(range(32))
PATIENCE = 60.0


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda one: type(one).__name__)
async def test_driver_gives_the_same_answer_as_its_service(request_: Any) -> None:
    known = KnownRuns()
    async with DriverServer(known, KEY) as server:
        assert await DriverRuns(server.address, KEY, refused).ask(request_) == ANSWERS[type(request_)]
    assert known.asked == [request_]


def test_every_request_has_an_answer_in_these_tests() -> None:
    kinds: set[type] = set(r.AnyRequest.__args__)
    assert kinds == set(ANSWERS) == {type(one) for one in REQUESTS}


@pytest.mark.parametrize("run", ERRORS)
async def test_errors_keep_class_message_and_hint(run: str) -> None:
    raised = ERRORS[run]
    async with DriverServer(KnownRuns(), KEY) as server:
        with pytest.raises(TreadleError) as caught:
            await DriverRuns(server.address, KEY, refused).ask(r.ViewRun(run))
    if isinstance(raised, TreadleError):
        assert (caught.value.message, caught.value.hint) == (raised.message, raised.hint)
    else:
        assert caught.value.message == "the driver: ZeroDivisionError: division by zero"
    assert type(caught.value) is r.ERRORS.get(type(raised).__name__, InternalError)


async def test_requests_do_not_wait_for_each_other() -> None:
    known = KnownRuns()
    async with DriverServer(known, KEY) as server:
        runs = DriverRuns(server.address, KEY, refused)
        waiting = asyncio.create_task(runs.ask(r.AwaitEnd("endless")))
        await eventually_async(lambda: asyncio.sleep(0, bool(known.asked)))
        assert await runs.ask(r.FindRun("known"))
        waiting.cancel()
        await eventually_async(lambda: asyncio.sleep(0, known.cancelled == 1))


async def test_client_with_another_key_is_refused_and_told_what_to_do() -> None:
    known = KnownRuns()
    async with DriverServer(known, KEY) as server:
        with pytest.raises(UsageError, match="does not accept this command") as caught:
            await DriverRuns(server.address, bytes(32), refused).ask(r.FindRun("known"))
    assert "treadle dev down" in caught.value.hint
    assert known.asked == []


async def test_driver_that_is_gone_is_replaced_by_a_direct_connection() -> None:
    direct = KnownRuns()
    async with DriverServer(KnownRuns(), KEY) as server:
        pass
    runs = DriverRuns(server.address, KEY, lambda: asyncio.sleep(0, direct))
    assert await runs.ask(r.FindRun("known"))
    await runs.ask(r.StartRun({}, "w", "treadle", {}))  # it was not sent to the driver, so it may be made
    assert len(direct.asked) == 2


async def test_request_is_repeated_directly_when_the_driver_dies_during_it() -> None:
    known, direct = KnownRuns(), KnownRuns()
    async with DriverServer(known, KEY) as server:
        runs = DriverRuns(server.address, KEY, lambda: asyncio.sleep(0, direct))
        waiting = asyncio.create_task(runs.ask(r.ViewRun("endless")))
        await eventually_async(lambda: asyncio.sleep(0, bool(known.asked)))
    await eventually_async(lambda: asyncio.sleep(0, bool(direct.asked)))
    waiting.cancel()
    assert direct.asked == [r.ViewRun("endless")]


async def test_start_is_not_repeated_when_the_driver_dies_during_it() -> None:
    known, direct = KnownRuns(), KnownRuns()
    async with DriverServer(known, KEY) as server:
        runs = DriverRuns(server.address, KEY, lambda: asyncio.sleep(0, direct))
        waiting = asyncio.create_task(runs.ask(r.StartRun({}, "endless", "treadle", {})))
        await eventually_async(lambda: asyncio.sleep(0, bool(known.asked)))
    with pytest.raises(Unreachable, match="it is unknown whether it has started the run") as caught:
        await waiting
    assert "treadle list" in caught.value.hint
    assert direct.asked == []


async def test_driver_that_does_not_answer_in_time_is_replaced_directly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(r.RunRequest, "patience", 0.2)
    known, direct = KnownRuns(), KnownRuns()
    async with DriverServer(known, KEY) as server:
        runs = DriverRuns(server.address, KEY, lambda: asyncio.sleep(0, direct))
        waiting = asyncio.create_task(runs.ask(r.ViewRun("endless")))
        await eventually_async(lambda: asyncio.sleep(0, direct.asked == known.asked == [r.ViewRun("endless")]))
        waiting.cancel()


@pytest.mark.parametrize("heads", [[b"no json"], [b'{"request":"eval"}'], [b'{"request":"find"}'], [b"{}"] * 2])
async def test_invalid_message_ends_its_connection_only(heads: list[bytes]) -> None:
    known = KnownRuns()

    def talk(address: str) -> None:
        deadline = time.monotonic() + PATIENCE
        with wire.connect(address, r.NAME, r.socket_key(KEY), deadline=deadline) as connection:
            for head in heads:
                connection.send_frame(head, deadline=deadline)
            connection.receive_head(r.RunAnswer, deadline)

    async with DriverServer(known, KEY) as server:
        with pytest.raises(wire.WireError):
            await asyncio.to_thread(talk, server.address)
        assert await DriverRuns(server.address, KEY, refused).ask(r.FindRun("known"))
    assert known.asked == [r.FindRun("known")]


async def test_driver_without_a_unix_socket_has_no_address(monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(address: str) -> None:
        raise wire.WireError(f"cannot listen at {address}: Operation not permitted")

    monkeypatch.setattr(driver_server, "listen", forbidden)
    async with DriverServer(KnownRuns(), KEY) as server:
        assert server.address == ""
