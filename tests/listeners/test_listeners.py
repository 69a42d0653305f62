"""Strangers cannot exhaust any listener: their number and time are bounded, and legitimate callers get in."""

from __future__ import annotations

import asyncio
import time
import urllib.request
from typing import ClassVar

import httpx
from listeners.servers import KEY, NONCE, RUN
from listeners.suite import ListenerSuite
from orchestrator.run_requests.known_runs import refused

from treadle.orchestrator.run_requests.driver_client import DriverRuns
from treadle.orchestrator.run_requests.requests import FindRun
from treadle.primitives import sealing, wire
from treadle.primitives.coordinator import messages as m
from treadle.primitives.objects import messages as objects
from treadle.primitives.peers import PeerClient


class TestCoordinator(ListenerSuite):
    server = "coordinator"

    def work(self, address: str, deadline: float) -> None:
        with wire.connect(address, RUN, KEY, deadline=deadline) as connection:
            connection.send(m.Hello(f"m{time.monotonic_ns()}", "", ""), deadline=deadline)
            connection.send(m.Count("none"), deadline=deadline)
            connection.receive_head(m.Counted, deadline)
            connection.send(m.Bye(), deadline=deadline)


class TestCoordinatorWithTls(TestCoordinator):
    server = "coordinator_tls"


class TestBlockServer(ListenerSuite):
    server = "peers"

    def work(self, address: str, deadline: float) -> None:
        client = PeerClient(RUN, KEY)
        try:
            (found,) = client.fetch(address, [("s/a", 0, 3)], deadline)
            assert bytes(found) == b"abc"
        finally:
            client.close()


class TestGangMember(ListenerSuite):
    server = "member"

    def work(self, address: str, deadline: float) -> None:
        wire.connect(address, RUN, KEY, deadline=deadline).close()


class TestSlotLender(ListenerSuite):
    server = "lender"

    def work(self, address: str, deadline: float) -> None:
        wire.connect(address, RUN, sealing.run_key(KEY, RUN), deadline=deadline).close()


class TestRequests(ListenerSuite):
    server = "requests"

    def work(self, address: str, deadline: float) -> None:
        async def found() -> bool:
            async with asyncio.timeout(deadline - time.monotonic()):
                return await DriverRuns(address, KEY, refused).ask(FindRun("known"))

        assert asyncio.run(found())


class TestKeeper(ListenerSuite):
    server = "keeper"

    def work(self, address: str, deadline: float) -> None:
        with wire.connect(address, f"{address}#{NONCE}", KEY, deadline=deadline) as connection:
            connection.send(objects.OpenSession(0, 1), deadline=deadline)
            connection.receive_head(objects.NotPrimary, deadline)


class TestKeeperWithTls(TestKeeper):
    server = "keeper_tls"


class TestWebhooks(ListenerSuite):
    server = "webhooks"
    words: ClassVar[bytes] = b"POST /hooks/orders/body HTTP/1.1\r\nhost: x\r\nx-slow: " + b"a" * 1000

    def work(self, address: str, deadline: float) -> None:
        with httpx.Client(base_url=address, trust_env=False, timeout=deadline - time.monotonic()) as client:
            answer = client.post("/hooks/orders/any", json={"a": 1})
            assert answer.status_code == 202


class TestWebhooksWithSlowBodies(TestWebhooks):
    words: ClassVar[bytes] = (
        b"POST /hooks/orders/any HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n"
    ) + b" " * 99


class TestMetrics(ListenerSuite):
    server = "metrics"
    words: ClassVar[bytes] = b"GET /metrics HTTP/1.1\r\nx-slow: " + b"a" * 1000

    def work(self, address: str, deadline: float) -> None:
        with urllib.request.urlopen(address, timeout=deadline - time.monotonic()) as page:
            assert b"python_info" in page.read()
