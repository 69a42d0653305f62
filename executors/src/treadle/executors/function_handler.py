"""One generic function that runs any task: the same in every provider's sandbox.

The process that the provider calls only supervises. Tasks run in a worker process beside it, the one that local slots
have: it is killed when it is late, its end is told apart (exit code, signal, memory), it is replaced when another
bundle comes, and it never has the deployment key. So user code cannot take a warm sandbox with it.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import ctypes
import functools
import os
import secrets
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, MutableMapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from treadle.primitives import sealing
from treadle.primitives.asyncio_tasks import spawn
from treadle.primitives.errors import CorruptError, FailureClass, MissingError, StoreError, TreadleError, UsageError
from treadle.primitives.stores import request_counts
from treadle.primitives.stores.store import Store

from .functions.call_records import ALIVE_AFTER, ALIVE_EVERY, usable
from .functions.failure_classification import failure_of
from .functions.invoker import RESERVED_MEMORY
from .functions.missing_libraries import explained
from .functions.payload import (
    VERSION,
    Adopt,
    Join,
    Order,
    Request,
    Response,
    alive_object,
    decode_content,
    response_of,
    seal_reports,
    seal_time,
)
from .local.executor import LocalExecutor, LocalSlot
from .program import Charge, Failure, Report, Task
from .worker.environment import secret_variable

KEY_VARIABLE = "TREADLE_KEY"
"""The deployment key in Base64, set at deployment."""
KEY_FROM_VARIABLE = "TREADLE_KEY_FROM"
"""Instead of it: where the key is, in the words of whoever fetches it."""

_CACHE_BYTES = 64 << 20
_GRACE = 1.0
"""Seconds a worker gets to write its stacks down."""
_BRIEF = 0.2
"""Seconds."""
_LEAST = 0.05
"""Seconds left below which no further partition is begun."""
_ENDS_THE_ATTEMPT = (FailureClass.TIMED_OUT, FailureClass.OUT_OF_MEMORY, FailureClass.WORKER_LOST)
_PR_SET_DUMPABLE = 4


class Handler:
    """Kept for the life of a sandbox; one call at a time."""

    def __init__(
        self,
        environment: MutableMapping[str, str] = os.environ,
        fetch_key: Callable[[str], str] | None = None,
        reserve: int = RESERVED_MEMORY,
    ) -> None:
        """Takes every `TREADLE_` variable out of the environment: user code and what it starts will not find them.

        `fetch_key` brings the deployment key from a place outside; whatever it raises is written to the log.
        `reserve`: see `Limits.reserve`.
        """
        self._settings = {name: environment.pop(name) for name in list(environment) if name.startswith("TREADLE_")}
        self._key = _decoded_key(self._settings.get(KEY_VARIABLE, ""))
        self._key_from, self._fetch_key = self._settings.get(KEY_FROM_VARIABLE, ""), fetch_key
        self._find_key()
        self._reserve = reserve
        self._folder = Path(tempfile.mkdtemp(prefix="treadle-function-"))
        self._environment = {
            **environment,
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            "TMPDIR": str(self._folder / "tmp"),
            "XDG_CACHE_HOME": str(self._folder / "cache"),
        }
        self._empty()
        self._loop = asyncio.Runner()
        self._workers: LocalExecutor | None = None
        self._host_root: Path | None = None
        self._bundle = ""
        self._open_store = functools.lru_cache(maxsize=10)(Store.open)

    def start(self, memory: int) -> None:
        """Have a worker process ready in a function of `memory` bytes; `handle` would start it otherwise."""
        self._loop.run(self._ready(memory))

    def handle(self, request: Request, seconds: float, memory: int) -> Response:
        """Run the task of one call, which the provider ends after `seconds`, in a function of `memory` bytes.

        Whatever goes wrong with the task is a report. The reports are in the store before they are returned.
        """
        begun, before = time.monotonic(), request_counts.made()
        content = self.open(request)
        if isinstance(content, Response):
            return content
        if isinstance(content, Adopt):
            return Response(problem="order")
        return self._loop.run(self._handle(request.run, content, seconds, memory, _Begun(begun, before)))

    def open(self, request: Request) -> Order | Join | Adopt | Response:
        """What was sealed into it, or why it is not believed."""
        if request.version != VERSION:
            return Response(problem="version")
        self._find_key()
        if not self._key:
            return Response(problem="key source" if self._key_from else "no key")
        try:
            return decode_content(request, self.run_key(request.run))
        except CorruptError:
            return Response(problem="key")
        except (MissingError, StoreError):
            return Response(problem="order")

    def _find_key(self) -> None:
        """Once, at the cold start; again with the next call when that went wrong."""
        if self._key or not self._key_from or self._fetch_key is None:
            return
        try:
            self._key = _decoded_key(self._fetch_key(self._key_from))
        except Exception as error:  # noqa: BLE001 (a provider's client may raise anything; no secret is in it)
            sys.stderr.write(f"the deployment key cannot be read from {self._key_from}: {error}\n")

    def run_key(self, run: str) -> bytes:
        return sealing.run_key(self._key, run)

    def close(self) -> None:
        """End the worker process and remove the folder; a sandbox that ends does both by itself."""
        if self._workers is not None:
            self._loop.run(self._workers.stop())
        self._loop.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    async def _handle(self, run: str, content: Order | Join, seconds: float, memory: int, begun: _Begun) -> Response:
        if isinstance(content, Join):
            from .resident.function import take_part  # a cold start is short: most functions are no members

            return await take_part(self, run, content, seconds, memory)
        key, store = self.run_key(run), self._open_store(content.task.job.store)
        return await self._serve(_Call(content, key, store, seconds, memory, begun))

    async def hold_blocks(self) -> Path:
        """The folder in which the worker keeps blocks that stay here, from now on.

        Its name makes the host's id, so it is new once blocks were in it: those of an earlier stay may have been handed
        on under that id. (And two sandboxes may be copies of one.)
        """
        if self._host_root is None:
            self._host_root = self._folder / f"blocks-{secrets.token_hex(8)}"
            if self._workers is not None:
                await self._workers.stop()
                self._workers = None
        return self._host_root

    def drop_blocks(self) -> None:
        """Nobody will come for those that are here."""
        if self._host_root is not None and any(self._host_root.glob("*/")):
            shutil.rmtree(self._host_root, ignore_errors=True)
            self._host_root = None

    async def _serve(self, call: _Call) -> Response:
        deadline = time.monotonic() + min(usable(call.seconds), call.order.seconds)
        if call.order.repeats and (earlier := await asyncio.to_thread(call.earlier)):
            return response_of(call.order, earlier)
        alive = spawn(_say_alive(call), name="alive")
        try:
            reports = await self.work(call.order.task, deadline, call.memory)
        finally:
            alive.cancel()
        return await asyncio.to_thread(call.publish, reports)

    async def work(self, task: Task, deadline: float, memory: int) -> list[Report]:
        """Reports of the partitions, as far as time allows (until `deadline`, monotonic); at least of the first.

        Cancelling kills the worker.
        """
        try:
            return [explained(report) for report in await self._reports(task, deadline, memory)]
        finally:
            self._empty()

    async def _reports(self, task: Task, deadline: float, memory: int) -> list[Report]:
        reports: list[Report] = []
        try:
            self._keep_one_bundle(task.job.bundle)
            slot = (await self._ready(memory)).slots[0]
            await _run(slot, task, deadline, reports)
            if not reports:
                reports.append(failure_of(task, FailureClass.TIMED_OUT, "the worker did not end in time"))
        except UsageError as error:
            failure = failure_of(task, FailureClass.USER_ERROR, error.message)
            reports.append(msgspec.structs.replace(failure, retryable=False))
        except TreadleError as error:
            reports.append(failure_of(task, FailureClass.INTERNAL, str(error)))
        return reports

    async def _ready(self, memory: int) -> LocalExecutor:
        if self._workers is None:
            self._workers = LocalExecutor(
                run_key=self.run_key,
                slots=1,
                memory=max(memory - self._reserve, 0),
                host_root=str(self._host_root) if self._host_root else None,
                cache_bytes=_CACHE_BYTES,
                secrets=self._secret,
                environment=self._environment,
            )
        await self._workers.start()
        return self._workers

    def _keep_one_bundle(self, digest: str) -> None:
        """Runs come and go while a sandbox is warm: their bundles must not fill the disk."""
        if digest != self._bundle:
            shutil.rmtree(self._folder / "cache", ignore_errors=True)
            self._bundle = digest

    def _empty(self) -> None:
        """What one task leaves in the temporary folder is not there for the next, and does not fill it up."""
        shutil.rmtree(self._folder / "tmp", ignore_errors=True)
        (self._folder / "tmp").mkdir(exist_ok=True)

    def _secret(self, name: str) -> str:
        try:
            return self._settings[secret_variable(name)]
        except KeyError:
            hint = f"Deploy it with {secret_variable(name)} set."
            raise UsageError(f"the function has no secret {name!r}", hint) from None


class _Begun(NamedTuple):
    """When a call began (monotonic), and what requests this process had made by then."""

    time: float
    requests: dict[str, int]


class _Call(NamedTuple):
    """One call, and where its reports go."""

    order: Order
    key: bytes
    store: Store
    seconds: float
    memory: int
    begun: _Begun

    def earlier(self) -> bytes | None:
        """What another run of this call has reported."""
        with contextlib.suppress(MissingError, StoreError):
            return self.store.get(self.order.reports)
        return None

    def publish(self, reports: list[Report]) -> Response:
        """Put the reports into their object, unless another run of this call was first: then its reports count."""
        sealed = seal_reports(self.order, self._charged(reports), self.key)
        try:
            if not self.store.create(self.order.reports, sealed):
                sealed = self.store.get(self.order.reports)
        except (StoreError, MissingError) as error:
            return self._unwritten(sealed, error)
        return response_of(self.order, sealed)

    def _charged(self, reports: list[Report]) -> list[Report]:
        """The first has what the call took besides its partitions, with the request that will write the reports."""
        first, *others = reports
        made = Counter(request_counts.since(self.begun.requests)) + Counter(first.requests) + Counter(put=1)
        charge = Charge(1, time.monotonic() - self.begun.time, self.memory)
        charged = msgspec.structs.replace(first, requests=dict(made), charge=charge)
        return [charged, *(msgspec.structs.replace(each, charge=Charge()) for each in others)]

    def _unwritten(self, sealed: bytes, error: TreadleError) -> Response:
        """The reports are on their way in the response at least, if they fit."""
        response = response_of(self.order, sealed)
        if response.reports:
            return response
        failure = failure_of(
            self.order.task, FailureClass.UNREACHABLE, f"the reports were not written: {error.message}"
        )
        return response_of(self.order, seal_reports(self.order, [failure], self.key))


async def _run(slot: LocalSlot, task: Task, deadline: float, reports: list[Report]) -> None:
    """Partitions in bunches that double while they are brief, so that time is looked at before it is over."""
    bunch = 1
    while left := task.partitions[len(reports) :]:
        begun = time.monotonic()
        seconds = max(deadline - begun, _LEAST)
        if reports and seconds <= _LEAST:
            return
        timeout = min(task.timeout or seconds, seconds)
        some = msgspec.structs.replace(task, partitions=left[:bunch], timeout=timeout)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds + _GRACE):
                await slot.run(some, reports.append)
        if len(reports) < len(task.partitions) - len(left) + len(some.partitions) or _over(task, reports, timeout):
            return
        bunch = 2 * bunch if time.monotonic() - begun < _BRIEF else 1


def _over(task: Task, reports: list[Report], timeout: float) -> bool:
    """Whether the last report ends the attempt.

    A partition that began late and ran into the end of the function is not reported: it gets a whole call next time.
    """
    last = reports[-1]
    if not isinstance(last, Failure) or last.failure not in _ENDS_THE_ATTEMPT:
        return False
    if last.failure is FailureClass.TIMED_OUT and timeout != task.timeout:
        if len(reports) > 1:
            reports.pop()
        else:
            how = f"the partition ran for {timeout:.1f} s, and the function had no more time"
            reports[-1] = msgspec.structs.replace(last, how=how, message=how)
    return True


async def _say_alive(call: _Call) -> None:
    """Until cancelled: so that whoever waits for the reports of a call that takes long knows that they will come."""
    await asyncio.sleep(ALIVE_AFTER)
    name = alive_object(call.order.reports)
    while True:
        sealed = seal_time(call.order.reports, time.time(), call.key)
        with contextlib.suppress(StoreError):
            await asyncio.to_thread(call.store.put, name, sealed)
        await asyncio.sleep(ALIVE_EVERY)


def _decoded_key(text: str) -> bytes:
    """The key, or nothing when it is not one."""
    try:
        key = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return b""
    return key if len(key) == sealing.KEY_BYTES else b""


def hide_memory() -> None:
    """For the process of a sandbox: no other process of this user may read its memory or its first environment, which
    holds the key (prctl(2))."""
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0)
