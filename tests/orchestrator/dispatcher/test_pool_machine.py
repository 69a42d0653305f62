"""The pool under offers, aborts, leaves and faulty slots, in any order of the loop's turns."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from properties.profiles import examples

from .pool_faults import CountingClient, Fault, FaultySlots, faulty_pool

FAULTS: list[Fault] = ["none", "waits", "dies", "raises", "is silent", "forgets", "clings", "lingers"]


class PoolMachine(RuleBasedStateMachine):
    """Each rule runs between two turns of the loop. `turns` lets some pass."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.clients: list[CountingClient] = []
        self.gone: list[CountingClient] = []
        self.leaving: list[asyncio.Task[None]] = []
        self.executor: FaultySlots

    @initialize(slots=st.integers(1, 3), faults=st.lists(st.sampled_from(FAULTS), max_size=12))
    def make(self, slots: int, faults: list[Fault]) -> None:
        self.pool, self.executor = faulty_pool(slots, *faults)

    def within(self, work: Callable[[], None]) -> None:
        """Run work that needs a running loop."""

        async def call() -> None:
            work()

        self.loop.run_until_complete(call())

    @rule(partitions=st.integers(0, 4))
    def join(self, partitions: int) -> None:
        client = CountingClient(partitions)
        self.clients.append(client)
        self.within(lambda: self.pool.join(client))

    @precondition(lambda self: self.clients)
    @rule(which=st.integers(0, 9), slot=st.integers(0, 2), twice=st.booleans())
    def abort(self, which: int, slot: int, twice: bool) -> None:
        client = self.clients[which % len(self.clients)]
        for _ in range(1 + twice):
            self.within(lambda: self.pool.abort(client, [f"s{slot}"]))

    @precondition(lambda self: self.clients)
    @rule(which=st.integers(0, 9), partitions=st.integers(1, 3))
    def join_and_abort_in_one_turn(self, which: int, partitions: int) -> None:
        client = CountingClient(partitions)
        self.clients.append(client)

        def both() -> None:
            self.pool.join(client)
            self.pool.abort(client, [slot.name for slot in self.executor.slots])

        self.within(both)

    @precondition(lambda self: self.clients)
    @rule(which=st.integers(0, 9))
    def leave(self, which: int) -> None:
        client = self.clients.pop(which % len(self.clients))
        client.waiting.clear()
        self.gone.append(client)
        self.leaving.append(self.loop.create_task(self.pool.leave(client)))

    @rule(slot=st.integers(0, 2))
    def end(self, slot: int) -> None:
        self.executor.slots[slot % len(self.executor.slots)].end()

    @rule(turns=st.integers(1, 4))
    def turns(self, turns: int) -> None:
        for _ in range(turns):
            self.loop.run_until_complete(asyncio.sleep(0))

    @rule()
    def pause(self) -> None:
        """Wait long enough for the watchdog."""
        self.loop.run_until_complete(asyncio.sleep(0.04))

    @invariant()
    def no_end_is_heard_of_twice(self) -> None:
        for client in (*self.clients, *self.gone):
            for index, ended in client.ended_.items():
                assert 0 <= client.offered[index] - ended <= 1

    def teardown(self) -> None:
        if hasattr(self, "executor"):
            self.loop.run_until_complete(self._settle())
        self.loop.close()

    async def _settle(self) -> None:
        """Without further faults, all clients get their tasks done, and every slot is idle again."""
        self.executor.faults.clear()
        async with asyncio.timeout(60):
            await asyncio.gather(*self.leaving)
            while self.pool.busy or any(client.running or client.waiting for client in self.clients):
                for slot in self.executor.slots:
                    slot.end()
                await asyncio.sleep(0.001)
            for client in self.clients:
                assert client.refused or len(client.done) == len(client.offered)
                await self.pool.leave(client)
            for client in (*self.clients, *self.gone):
                assert client.ended_ == client.offered
            await self._every_slot_takes_a_task()

    async def _every_slot_takes_a_task(self) -> None:
        last = CountingClient(len(self.executor.slots))
        self.executor.faults.extend(["waits"] * len(self.executor.slots))
        self.pool.join(last)
        while not all(slot.task for slot in self.executor.slots):  # noqa: ASYNC110  # slots announce nothing
            await asyncio.sleep(0.001)
        await self.pool.leave(last)


TestPool = PoolMachine.TestCase
TestPool.settings = settings(examples(40), stateful_step_count=25)
