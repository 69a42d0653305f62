"""Provider functions as slots. A slot is a permit for one running call, so a thousand slots cost nothing."""

from __future__ import annotations

import asyncio
import functools
import secrets
from collections.abc import Callable, Sequence

from treadle.primitives import sealing
from treadle.primitives.errors import UsageError
from treadle.primitives.stores.store import Store

from ..interface import Capabilities, Executor
from ..program import Report, Task
from .attempt import CallCounts, FunctionAttempt, Means
from .call_log import CallBook
from .call_records import ObjectNames, usable
from .in_flight import Underway
from .invoker import Invoker
from .memory_sizes import Sizes
from .rate_limiter import Rate, RateLimiter

_BOOKS = 1000
"""Segments whose calls are cached; the calls of an evicted segment are read again."""


class FunctionExecutor:
    """Makes at most `slots` calls at a time, at the rate that the provider accepts.

    `name` is the provider's, as in `treadle deploy NAME`; `key_file` holds the deployment key. A call cannot be killed:
    cancelling frees the slot while the function continues. Its later work is fenced, because its blocks and reports
    have unique names, and the next attempt adopts its outcomes.
    """

    def __init__(
        self, name: str, invoker: Invoker, *, key_file: str, slots: int = 100, rate: Rate | None = None
    ) -> None:
        if slots < 1:
            raise UsageError(f"the executor {name} needs at least one slot, not {slots}", "Give slots=1 or more.")
        sizes = Sizes(invoker.limits.memory, invoker.limits.reserve)
        self.means = Means(name, invoker, RateLimiter(rate or Rate()), sizes)
        """The shared resources for calling functions, also used for resident functions."""
        self.members: Executor | None = None
        """The same functions as residents (`treadle.executors.resident`); None: no coordinator is available."""
        self._deployment_key = sealing.load_or_create_key(key_file)
        self._book = functools.lru_cache(maxsize=_BOOKS)(self._open_book)
        self.capabilities = Capabilities(
            name, slots, shares_host=False, memory_limit=sizes.memory_limit, time_limit=usable(invoker.limits.seconds)
        )
        self._slots = [FunctionSlot(f"{name}-{i}", self) for i in range(slots)]

    @property
    def slots(self) -> Sequence[FunctionSlot]:
        return self._slots

    @property
    def usage(self) -> CallCounts:
        """Counts of the calls so far."""
        return self.means.usage

    @property
    def rate(self) -> float:
        """The current rate limit, in calls per second."""
        return self.means.gate.rate.now

    async def start(self) -> None:
        """Does nothing: no process runs between calls."""

    async def stop(self) -> None:
        """Give up every running attempt; return when connections are closed. Functions end by themselves."""
        await asyncio.gather(*(slot.stop() for slot in self._slots if slot.busy))
        self.means.mailbox.close()
        await self.means.invoker.close()

    async def attempt(self, task: Task) -> list[Report]:
        """See `FunctionAttempt.run`."""
        book = self._book(task.job.store, task.job.run, task.program.segment)
        return await FunctionAttempt(self.means, book, task).run()

    def _open_book(self, store: str, run: str, segment: str) -> CallBook:
        names = ObjectNames.of(run, segment, secrets.token_hex(8))
        return CallBook(Store.open(store), names, sealing.run_key(self._deployment_key, run))


class FunctionSlot:
    """A permit for one running call."""

    def __init__(self, name: str, executor: FunctionExecutor) -> None:
        self.name = name
        self._executor, self._underway = executor, Underway(name)

    @property
    def busy(self) -> bool:
        return self._underway.busy

    @property
    def task(self) -> str:
        """See `Slot.task`."""
        return self._underway.task

    async def stop(self) -> None:
        """Give up the running attempt, which is reported as lost."""
        await self._underway.stop()

    async def run(self, task: Task, report: Callable[[Report], None]) -> None:
        """See `Slot.run`. Raises UsageError when the task needs more memory than any function has, or when the
        deployment must be corrected."""
        await self._underway.run(task, self._executor.attempt, report)
