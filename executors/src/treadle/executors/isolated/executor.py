"""Attempts that share nothing with the driver but the store: the local stand-in for functions of a provider.

Every attempt is a fresh process with its own empty folder and an environment of its own; it gets a payload of bounded
size and answers with one. Reports are seen when it ends. What runs here needs nothing of the driver's host.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence

from treadle.primitives import trust
from treadle.primitives.errors import CorruptError, MissingError, StoreError, UsageError
from treadle.primitives.run_names import run_folder

from ..functions.endings import unreachable
from ..functions.payload import Order, decode_response, encode_request, take_reports
from ..functions.underway import Underway
from ..interface import Capabilities
from ..local.child import ChildProcess, Death, starting
from ..local.failures import TIMED_OUT, failure_at_death
from ..local.guard import Guard
from ..program import Report, Task
from ..worker.environment import worker_environment
from .settings import KEY_VARIABLE, MEMORY_VARIABLE, secrets_of

PAYLOAD_LIMIT = 6 << 20
"""Bytes of a request or a response: what providers of functions allow."""
START_SECONDS = 10.0
"""Granted on top of a task's own time."""
CANCELLED = "the attempt was cancelled"


class IsolatedExecutor:
    """Fresh processes, at most `slots` at a time.

    `key_file` holds the deployment key; `memory` is what an attempt may allocate when its task does not say (0: no
    limit); `environment` is all that workers find in theirs, apart from treadle's settings.
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
        self.capabilities = Capabilities(
            "isolated", slots, shares_host=False, payload_limit=PAYLOAD_LIMIT, memory_limit=memory
        )
        settings = {KEY_VARIABLE: key_file, MEMORY_VARIABLE: str(memory)}
        own = worker_environment({}) | dict(environment or {}) | settings
        deployment_key = trust.load_or_create_key(key_file)
        self._slots = [IsolatedSlot(f"isolated-{i}", own, memory, deployment_key) for i in range(slots)]

    @property
    def slots(self) -> Sequence[IsolatedSlot]:
        return self._slots

    async def start(self) -> None:
        """Nothing is kept running between attempts."""

    async def stop(self) -> None:
        """Kill every attempt; returns when they are gone."""
        await asyncio.gather(*(slot.stop() for slot in self._slots))


class IsolatedSlot:
    """Starts one process after the other."""

    def __init__(self, name: str, environment: Mapping[str, str], memory: int, deployment_key: bytes) -> None:
        self.name = name
        self._environment = environment
        self._memory = memory
        self._deployment_key = deployment_key
        self._underway = Underway(name)

    async def stop(self) -> None:
        """Give up the attempt under way, which is reported as lost."""
        await self._underway.stop()

    async def run(self, task: Task, report: Callable[[Report], None]) -> None:
        """See `Slot.run`. Raises UsageError, before anything is started, when the task is too long for a payload."""
        await self._underway.run(task, self._run, report)

    async def _run(self, task: Task) -> list[Report]:
        key = trust.run_key(self._deployment_key, task.job.run)
        reports = f"runs/{run_folder(task.job.run)}/responses/{secrets.token_hex(12)}"
        order = Order(task, reports, seconds=0.0, inline=PAYLOAD_LIMIT)
        death, response = await self._invoke(task, _request(order, key))
        return await asyncio.to_thread(self._reports, order, death, response, key)

    async def _invoke(self, task: Task, request: bytes) -> tuple[Death, bytes]:
        with (
            starting(),
            contextlib.closing(Guard()) as guard,
            tempfile.TemporaryDirectory(prefix="treadle-attempt-") as folder,
            tempfile.TemporaryFile() as stdin,
            tempfile.TemporaryFile() as stdout,
        ):
            stdin.write(request)
            stdin.seek(0)
            child = ChildProcess(
                [sys.executable, "-P", "-m", "treadle.executors.isolated.worker"],
                self._environment,
                guard,
                stdin=stdin.fileno(),
                stdout=stdout.fileno(),
                folder=folder,
            )
            try:
                await asyncio.wait({child.death}, timeout=_patience(task))
                child.kill(TIMED_OUT)
            finally:
                await child.end(CANCELLED)
            stdout.seek(0)
            return child.death.result(), stdout.read()

    def _reports(self, order: Order, death: Death, response: bytes, key: bytes) -> list[Report]:
        """What the attempt came to. Where a process ended is known only if it had one partition."""
        task = order.task
        if death.code == 0 and response:
            try:
                return take_reports(order, decode_response(response), key)
            except StoreError as error:
                return [unreachable(task, error)]
            except (MissingError, CorruptError):  # it is not what the worker writes
                pass
        partition = task.partitions[0] if len(task.partitions) == 1 else None
        known = secrets_of(task, self._environment)
        return [failure_at_death(task, partition, death, task.memory or self._memory, known)]


def _patience(task: Task) -> float | None:
    """Seconds for the whole attempt, should it not keep time itself."""
    return task.timeout * len(task.partitions) + START_SECONDS if task.timeout else None


def _request(order: Order, key: bytes) -> bytes:
    """Raises UsageError when the task does not fit into a payload."""
    request = encode_request(order, key)
    if len(request) > PAYLOAD_LIMIT:
        raise UsageError(
            f"task {order.task.id} is {len(request)} bytes as a payload; {PAYLOAD_LIMIT} are allowed",
            "Put fewer partitions into a task, keep large items in files, or lower the inline limit of blocks.",
        )
    return request
