"""The generic function that runs any task, identical in the sandbox of every provider.

The process that the provider calls only supervises. Tasks run in a separate worker process, the same one that local
slots use. The supervisor kills a worker that exceeds its time, determines why it ended (exit code, signal, memory), and
replaces it when another bundle arrives. The worker never has the deployment key. Therefore user code cannot destroy a
warm sandbox.
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
    JoinOrder,
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
from .worker.environment import KEY_FROM_VARIABLE, KEY_VARIABLE, secret_variable

_CACHE_BYTES = 64 << 20
_GRACE = 1.0
"""Seconds a worker gets to write its stacks to the log."""
_BRIEF = 0.2
"""Seconds."""
_LEAST = 0.05
"""With fewer seconds left, no further partition is started."""
_ENDS_THE_ATTEMPT = (FailureClass.TIMED_OUT, FailureClass.OUT_OF_MEMORY, FailureClass.WORKER_LOST)
_PR_SET_DUMPABLE = 4


class Handler:
    """The state of one sandbox, kept for its lifetime. It serves one call at a time."""

    def __init__(
        self,
        environment: MutableMapping[str, str] = os.environ,
        fetch_key: Callable[[str], str] | None = None,
        reserve: int = RESERVED_MEMORY,
    ) -> None:
        """Remove every `TREADLE_` variable from the environment, so that user code and its subprocesses cannot read
        them.

        `fetch_key` reads the deployment key from an external location. Any exception it raises is written to the log.
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
        """Start a worker process in a function of `memory` bytes. Without this call, `handle` starts it."""
        self._loop.run(self._ready(memory))

    def handle(self, request: Request, seconds: float, memory: int) -> Response:
        """Run the task of one call in a function of `memory` bytes; the provider ends the call after `seconds`.

        Every failure of the task becomes a report. The reports are in the store before this method returns them.
        """
        begun, before = time.monotonic(), request_counts.made()
        content = self.open(request)
        if isinstance(content, Response):
            return content
        if isinstance(content, Adopt):
            return Response(problem="order")
        return self._loop.run(self._handle(request.run, content, seconds, memory, _Begun(begun, before)))

    def handle_json(self, request: bytes, seconds: float, memory: int) -> bytes:
        """`handle` for the bytes that an invoker sends; returns the bytes of its `Answer`."""
        return msgspec.json.encode(self.handle(msgspec.json.decode(request, type=Request), seconds, memory))

    def open(self, request: Request) -> Order | JoinOrder | Adopt | Response:
        """The decrypted content of the request, or a Response with the reason for rejecting it."""
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
        """Fetch the key once, at the cold start. If that fails, the next call tries again."""
        if self._key or not self._key_from or self._fetch_key is None:
            return
        try:
            self._key = _decoded_key(self._fetch_key(self._key_from))
        except Exception as error:  # noqa: BLE001 (a provider's client may raise any exception; none contains a secret)
            sys.stderr.write(f"the deployment key cannot be read from {self._key_from}: {error}\n")

    def run_key(self, run: str) -> bytes:
        return sealing.run_key(self._key, run)

    def close(self) -> None:
        """End the worker process and remove the folder. A provider that destroys the sandbox does both."""
        if self._workers is not None:
            self._loop.run(self._workers.stop())
        self._loop.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    async def _handle(
        self, run: str, content: Order | JoinOrder, seconds: float, memory: int, begun: _Begun
    ) -> Response:
        if isinstance(content, JoinOrder):
            from .resident.function import take_part  # keeps the cold start short: most functions are not members

            return await take_part(self, run, content, seconds, memory)
        key, store = self.run_key(run), self._open_store(content.task.job.store)
        return await self._serve(_Call(content, key, store, seconds, memory, begun))

    async def hold_blocks(self) -> Path:
        """The folder in which the worker stores blocks of this host. The first call restarts the worker.

        The folder's name determines the host's id. The name is new after `drop_blocks` removed blocks, because blocks
        of an earlier membership may have been registered under the old id. It is random because two sandboxes may be
        copies of one snapshot.
        """
        if self._host_root is None:
            self._host_root = self._folder / f"blocks-{secrets.token_hex(8)}"
            if self._workers is not None:
                await self._workers.stop()
                self._workers = None
        return self._host_root

    def drop_blocks(self) -> None:
        """Remove the stored blocks: no consumer will read them."""
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
        """Run the task until `deadline` (monotonic); return the reports of the partitions that finish, at least of the
        first.

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
        """Remove the code of the previous bundle. A warm sandbox serves many runs, and their bundles must not fill the
        disk."""
        if digest != self._bundle:
            shutil.rmtree(self._folder / "cache", ignore_errors=True)
            self._bundle = digest

    def _empty(self) -> None:
        """Clear the temporary folder, so that one task's files are not visible to the next and do not fill the disk.

        The folders of `multiprocessing` stay: its fork server listens in one, and serves later tasks, too.
        """
        temporary = self._folder / "tmp"
        temporary.mkdir(exist_ok=True)
        for entry in temporary.iterdir():
            if entry.is_symlink() or not entry.is_dir():
                entry.unlink(missing_ok=True)
            elif not entry.name.startswith("pymp-"):
                shutil.rmtree(entry, ignore_errors=True)

    def _secret(self, name: str) -> str:
        try:
            return self._settings[secret_variable(name)]
        except KeyError:
            hint = f"Deploy it with {secret_variable(name)} set."
            raise UsageError(f"the function has no secret {name!r}", hint) from None


class _Begun(NamedTuple):
    """The start of a call (monotonic), and the number of store requests that this process had made until then, by
    kind."""

    time: float
    requests: dict[str, int]


class _Call(NamedTuple):
    """One call, and the place for its reports."""

    order: Order
    key: bytes
    store: Store
    seconds: float
    memory: int
    begun: _Begun

    def earlier(self) -> bytes | None:
        """The reports of another execution of this call, if they are in the store."""
        with contextlib.suppress(MissingError, StoreError):
            return self.store.get(self.order.reports)
        return None

    def publish(self, reports: list[Report]) -> Response:
        """Write the reports to their object. If another execution of this call wrote first, return its reports
        instead."""
        sealed = seal_reports(self.order, self._charged(reports), self.key)
        try:
            if not self.store.create(self.order.reports, sealed):
                sealed = self.store.get(self.order.reports)
        except (StoreError, MissingError) as error:
            return self._unwritten(sealed, error)
        return response_of(self.order, sealed)

    def _charged(self, reports: list[Report]) -> list[Report]:
        """Add to the first report the duration of the call, and the requests made outside the partitions. The count
        includes the request that will write the reports."""
        first, *others = reports
        made = Counter(request_counts.since(self.begun.requests)) + Counter(first.requests) + Counter(put=1)
        charge = Charge(1, time.monotonic() - self.begun.time, self.memory)
        charged = msgspec.structs.replace(first, requests=dict(made), charge=charge)
        return [charged, *(msgspec.structs.replace(each, charge=Charge()) for each in others)]

    def _unwritten(self, sealed: bytes, error: TreadleError) -> Response:
        """Return the reports in the response if they fit; otherwise return a failure."""
        response = response_of(self.order, sealed)
        if response.reports:
            return response
        failure = failure_of(
            self.order.task, FailureClass.UNREACHABLE, f"the reports were not written: {error.message}"
        )
        return response_of(self.order, seal_reports(self.order, [failure], self.key))


async def _run(slot: LocalSlot, task: Task, deadline: float, reports: list[Report]) -> None:
    """Run partitions in batches. The batch size doubles while batches are short, so that the deadline is checked in
    time."""
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

    A partition that started late and reached the function's time limit is not reported. The next attempt gives it a
    whole call.
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
    """Write the time to the store at intervals until cancelled. The driver, which waits for the reports of a long call,
    then knows that the call is still running."""
    await asyncio.sleep(ALIVE_AFTER)
    name = alive_object(call.order.reports)
    while True:
        sealed = seal_time(call.order.reports, time.time(), call.key)
        with contextlib.suppress(StoreError):
            await asyncio.to_thread(call.store.put, name, sealed)
        await asyncio.sleep(ALIVE_EVERY)


def _decoded_key(text: str) -> bytes:
    """The decoded key, or no bytes if `text` is not a key."""
    try:
        key = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return b""
    return key if len(key) == sealing.KEY_BYTES else b""


def hide_memory() -> None:
    """Forbid other processes of this user to read this process's memory or initial environment, which holds the key
    (prctl(2)). For the supervising process of a sandbox."""
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0)
