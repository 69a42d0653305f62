"""The function's side of a long call: a thin shell around `machine`. Tasks run as in ordinary calls."""

from __future__ import annotations

import asyncio
import secrets
import time
from pathlib import Path
from typing import Protocol

import msgspec

from treadle.primitives.asyncio_tasks import spawn
from treadle.primitives.errors import StoreError, TreadleError
from treadle.primitives.peers.gateway import Membership
from treadle.primitives.stores.store import Store

from ..functions.call_records import usable
from ..functions.payload import Adopt, JoinOrder, Order, Request, Response, respond
from ..program import Report, Task
from .block_server import Shelf
from .coordinator_client import ResidentCoordinatorClient
from .lifetime import CallWindow, not_their_fault
from .machine import COPY, Begin, KillTask, MemberMachine

_FIRST_DIAL = 10.0
"""Seconds for the first connection to the coordinator."""
_request = msgspec.json.Decoder(Request)


class Sandbox(Protocol):
    """The function's process, as the member in it uses it."""

    def open(self, request: Request) -> Order | JoinOrder | Adopt | Response:
        """The decrypted content of a call, or a Response with the reason for rejecting it."""

    def run_key(self, run: str) -> bytes:
        """The key of a run."""

    async def hold_blocks(self) -> Path:
        """The folder in which the worker stores blocks of this host from now on."""

    def drop_blocks(self) -> None:
        """Remove the stored blocks: no consumer will read them."""

    async def work(self, task: Task, deadline: float, memory: int) -> list[Report]:
        """The reports of all partitions of a task."""


async def take_part(sandbox: Sandbox, session: str, join: JoinOrder, seconds: float, memory: int) -> Response:
    """Run as a member until dismissed, or until the call's time is over; the provider ends the call after `seconds`.

    `session`: the coordinator's run, whose key authenticates both sides.
    """
    member = _Member(sandbox, session, join, min(usable(seconds), join.seconds), memory)
    try:
        return await member.run()
    finally:
        sandbox.drop_blocks()


class _Member:
    """For one use."""

    def __init__(self, sandbox: Sandbox, session: str, join: JoinOrder, seconds: float, memory: int) -> None:
        self._sandbox, self._session, self._join, self._memory = sandbox, session, join, memory
        self._began = time.monotonic()
        self._ends = self._began + seconds
        self._works_until = self._began + min(join.work, seconds)
        self._uplink = ResidentCoordinatorClient(join.coordinator, session, sandbox.run_key(session))
        self._shelf: Shelf | None = None
        self._machine: MemberMachine
        self._under_way: asyncio.Task[None] | None = None
        self._turn = asyncio.Lock()
        """Held by the running task. A stopped task holds it until its worker is gone."""

    async def run(self) -> Response:
        try:
            await self._uplink.dial(min(self._began + _FIRST_DIAL, self._ends))
        except TreadleError:
            return Response(problem="coordinator")
        try:
            await self._set_up()
            why = await self._uplink.keep_time()
            await self._uplink.finish()
        finally:
            await self._stop()
            self._uplink.close()
            if self._shelf is not None:
                await asyncio.to_thread(self._shelf.close)
        return Response(problem="copy" if why == COPY else "")

    async def _set_up(self) -> None:
        address = host = ""
        if self._join.direct:
            root = await self._sandbox.hold_blocks()
            key_of, here = self._sandbox.run_key, self._uplink.source[0] if self._join.inbound else ""
            membership = Membership(
                self._join.member, self._session, key_of(self._session), self._uplink.say_threadsafe
            )
            self._shelf = await asyncio.to_thread(Shelf, root, key_of, here, self._join.identity, membership)
            address, host = self._shelf.address, self._shelf.host_id
        self._machine = MemberMachine(
            self._join.member,
            address,
            host or secrets.token_hex(8),
            works_until=self._works_until,
            ends=self._ends,
            idle=self._join.idle,
        )
        self._uplink.attend(self._machine, self._act, self._shelf.gateway if self._shelf is not None else None)

    def _act(self, instruction: Begin | KillTask) -> None:
        match instruction:
            case Begin(task, body):
                self._under_way = spawn(self._do(task, body), name=f"task {task}")
            case KillTask():
                if self._under_way is not None:
                    self._under_way.cancel()

    async def _stop(self) -> None:
        if self._under_way is not None:
            self._under_way.cancel()
        async with self._turn:
            pass

    async def _do(self, task: str, body: bytes) -> None:
        try:
            async with self._turn:
                response = await self._respond(body)
        except Exception as error:  # noqa: BLE001 (a full disk, for example, ends this call as it ends an ordinary one)
            self._uplink.fail(error)
        else:
            self._uplink.perform(self._machine.done(task, msgspec.json.encode(response)))

    async def _respond(self, body: bytes) -> Response:
        content = await asyncio.to_thread(lambda: self._sandbox.open(_request.decode(body)))
        match content:
            case Response():
                return content
            case Order():
                return await self._work(content, self._sandbox.run_key(content.task.job.run))
            case Adopt(()):
                return Response()
            case Adopt(sets) if self._shelf is not None:
                for blocks in sets:
                    await asyncio.to_thread(self._shelf.adopt, blocks)
                return Response()
        return Response(problem="order")

    async def _work(self, order: Order, key: bytes) -> Response:
        task = order.task
        if self._shelf is not None:
            try:
                store = await asyncio.to_thread(Store.open, task.job.store)
                await asyncio.to_thread(self._shelf.announce, task.job.run, store)
                if task.gang is not None:
                    await asyncio.to_thread(self._shelf.drop_channels)
            except StoreError:
                return Response(problem="order")
        began = time.monotonic()
        deadline = min(self._works_until, began + order.seconds)
        reports = await self._sandbox.work(task, deadline, self._memory)
        span = CallWindow(self._works_until - self._began, self._ends - self._began)
        reports = not_their_fault(reports, began - self._began, time.monotonic() - self._began, span)
        try:
            return await asyncio.to_thread(respond, order, reports, key)
        except StoreError:
            return Response(problem="order")
