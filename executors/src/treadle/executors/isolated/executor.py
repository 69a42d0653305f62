"""Attempts that share only the store with the driver: a local substitute for provider functions.

Every attempt is a fresh process with its own empty folder and environment. It needs nothing of the driver's host.
"""

from __future__ import annotations

import asyncio
import functools
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence

from treadle.primitives import sealing
from treadle.primitives.errors import UsageError

from ..interface import Capabilities
from ..local.executor import LocalSlot
from ..local.orphan_guard import Guard
from ..local.worker_process import WorkerProcess
from ..program import Report, Task
from ..spill.memory_budget import room_of
from ..worker.environment import secret_variable, worker_environment
from ..worker.messages import Setup

OVER = "its attempt is over"
_CACHE_BYTES = 64 << 20


class IsolatedExecutor:
    """Runs at most `slots` fresh processes at a time.

    `key_file` holds the deployment key. `memory` is the number of bytes an attempt may allocate if its task does not
    set it (0: no limit). `environment` is the workers' full environment, and holds the secrets that they may use.
    """

    def __init__(
        self,
        *,
        key_file: str,
        slots: int = 2,
        memory: int = 0,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        if slots < 1:
            raise UsageError(f"the isolated executor needs at least one slot, not {slots}", "Give slots=1 or more.")
        self.capabilities = Capabilities("isolated", slots, shares_host=False, memory_limit=memory)
        given = dict(environment or {})
        setup = Setup(os.getpid(), None, _CACHE_BYTES, room_of(memory))
        self._guard = Guard()
        start = functools.partial(WorkerProcess, setup, worker_environment(given), self._guard)
        run_key = functools.partial(sealing.run_key, sealing.load_or_create_key(key_file))
        secrets = functools.partial(_secret, given)
        self._slots = [IsolatedSlot(f"isolated-{i}", start, memory, run_key, secrets) for i in range(slots)]

    @property
    def slots(self) -> Sequence[IsolatedSlot]:
        return self._slots

    async def start(self) -> None:
        """Does nothing: no worker is kept between attempts."""

    async def stop(self) -> None:
        """Kill every attempt; return when they are gone."""
        await asyncio.gather(*(slot.stop() for slot in self._slots))
        self._guard.close()


class IsolatedSlot(LocalSlot):
    """Starts one worker after the other, each for one attempt and in a folder of its own."""

    def __init__(
        self,
        name: str,
        start: Callable[[str], WorkerProcess],
        memory: int,
        run_key: Callable[[str], bytes],
        secrets: Callable[[str], str],
    ) -> None:
        super().__init__(name, lambda: start(self._folder), memory, run_key, secrets)
        self._folder = ""

    async def _run(self, task: Task, report: Callable[[Report], None]) -> None:
        with tempfile.TemporaryDirectory(prefix="treadle-attempt-", ignore_cleanup_errors=True) as self._folder:
            try:
                await super()._run(task, report)
            finally:
                if self._worker is not None:
                    await self._worker.child.end(OVER)


def _secret(environment: Mapping[str, str], name: str) -> str:
    try:
        return environment[secret_variable(name)]
    except KeyError:
        raise UsageError(
            f"isolated workers are not given the secret {name!r}", "Name it in `secrets` of the executor's table."
        ) from None
