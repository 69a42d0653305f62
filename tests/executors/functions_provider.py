"""A provider of functions in this process: each call follows a script, without a sandbox."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import msgspec

from treadle.executors.functions.executor import FunctionExecutor
from treadle.executors.functions.invoker import Answer, Limits
from treadle.executors.functions.payload import Order, Request, decode_content, response_of, seal_reports
from treadle.executors.functions.rate_limiter import Rate
from treadle.executors.program import ItemSplit, Job, Keep, Outcome, Partition, Program, Report, Task
from treadle.primitives import sealing
from treadle.primitives.stores.store import Store

RUN = "run"
SIZES = (512 << 20, 1024 << 20, 2048 << 20)

Step = Callable[["Provider", Order], Awaitable[Answer]]


def outcomes(order: Order) -> list[Report]:
    return [Outcome(one.index, one.attempt, "objects", one.index + 1) for one in order.task.partitions]


class Provider:
    """An invoker whose calls take the next step of the script, and succeed when it is used up."""

    def __init__(self, key: bytes, *steps: Step, limits: Limits | None = None) -> None:
        self.limits = limits or Limits(6 << 20, 6 << 20, 900.0, SIZES)
        self.key = sealing.run_key(key, RUN)
        self.steps = list(steps)
        self.orders: list[Order] = []
        self.sizes: list[int] = []
        self.requests: list[bytes] = []
        self.began = asyncio.Event()

    async def invoke(self, request: bytes, memory: int, seconds: float) -> Answer:
        self.requests.append(request)
        order = decode_content(msgspec.json.decode(request, type=Request), self.key)
        assert isinstance(order, Order)
        self.orders.append(order)
        self.sizes.append(memory)
        self.began.set()
        step = self.steps.pop(0) if self.steps else Provider.succeed
        return await step(self, order)

    async def succeed(self, order: Order) -> Answer:
        return self.answer(order, self.leave(order, outcomes(order)))

    def leave(self, order: Order, reports: list[Report]) -> bytes:
        """Write the reports where the handler writes them. The first ones count."""
        store, sealed = Store.open(order.task.job.store), seal_reports(order, reports, self.key)
        return sealed if store.create(order.reports, sealed) else store.get(order.reports)

    def answer(self, order: Order, sealed: bytes) -> Answer:
        return Answer("answered", msgspec.json.encode(response_of(order, sealed)))

    async def close(self) -> None:
        """Has nothing to close."""


class Rig:
    """Executors over one store and key, as successive drivers of one run have them."""

    def __init__(self, folder: str) -> None:
        self.store = f"file://{folder}/store"
        self.key_file = f"{folder}/key"
        self.key = sealing.load_or_create_key(self.key_file)

    def provider(self, *steps: Step, limits: Limits | None = None) -> Provider:
        return Provider(self.key, *steps, limits=limits)

    def executor(self, provider: Provider, slots: int = 4) -> FunctionExecutor:
        return FunctionExecutor(
            "lambda", provider, key_file=self.key_file, slots=slots, rate=Rate(1000, least=200, most=1000)
        )

    def task(self, *partitions: int, attempt: int = 1, items: int = 1, timeout: float = 0.0, memory: int = 0) -> Task:
        job = Job(RUN, "workflow", "2026-01-01T00:00:00Z", 0, self.store, "")
        inputs = tuple(Partition(index, ItemSplit((index,) * items), attempt) for index in partitions)
        return Task("s/0", job, Program("s", (), Keep()), inputs, timeout, memory)


async def run(executor: FunctionExecutor, task: Task, slot: int = 0) -> list[Report]:
    reports: list[Report] = []
    await executor.slots[slot].run(task, reports.append)
    return reports
