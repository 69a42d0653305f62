"""AWS Lambda for tests: the Invoke API for boto3, in front of sandboxes that run the real runtime client.

By document, of the AWS Lambda API reference (API) and developer guide (DG):

- API, Invoke: `RequestResponse` answers 200 with the payload, `Event` 202 at once; `X-Amz-Function-Error` and, with
  `X-Amz-Log-Type: Tail`, the last 4 KB of the log in `X-Amz-Log-Result`; 413 beyond the size of a payload, 404 for an
  unknown function, 429 with a reason beyond the concurrency (no `Retry-After`), 500 for Lambda's own failures.
- DG, "Lambda quotas": 6 MB of request and of response when synchronous, 1 MB when asynchronous.
- DG, "Understanding Lambda function scaling": one event at a time in an environment; another one is made when all are
  busy, up to the concurrency.
- DG, "Understanding the Lambda execution environment lifecycle": frozen between invocations, reset after a failure.
- DG, "Invoking a function asynchronously" and "How Lambda handles errors": failed events are tried up to two more
  times, throttled ones are queued; the queue is eventually consistent, so an event may be delivered twice.
- API, CreateFunction and related calls: see `lambda_functions`.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import threading
import time
import uuid
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

from emulators.lambda_faults import Faults
from emulators.lambda_functions import Functions, Refused
from emulators.lambda_http import HangUp, Reply, Request, Server
from emulators.lambda_sandbox import Deployed, Ended, Sandbox
from msgspec import Struct

from treadle.executors.local.orphan_guard import Guard

T = TypeVar("T")
SYNCHRONOUS_LIMIT, ASYNCHRONOUS_LIMIT = 6 << 20, 1 << 20
REGION = "eu-test-1"
ENTRY = "treadle.executors.aws.entry.handler"
_RETRY_SECONDS = 0.1
"""Seconds between tries of an asynchronous event, instead of minutes."""


class Invocation(Struct, frozen=True):
    """One run of a function."""

    function: str
    request: str
    run: int
    """The number of the run of the same event, from 1."""
    begun: float
    """Seconds since the epoch."""
    seconds: float
    cold: bool
    error: str
    """The value of X-Amz-Function-Error."""
    initial: float = 0.0
    """Seconds of initialisation of a cold call."""


class LambdaEmulator:
    """Listens on 127.0.0.1 from `start` to `stop`, in a thread of its own."""

    def __init__(self, folder: Path, *, concurrency: int = 4) -> None:
        """`folder`: for the emulator alone."""
        self.faults = Faults()
        self.invocations: list[Invocation] = []
        self.throttled: list[float] = []
        """Times of calls that were answered with 429."""
        self.taken: list[float] = []
        """Times of accepted calls."""
        self.functions = Functions(REGION, folder / "code")
        self.concurrency = concurrency
        self._folder = folder
        self._numbers = itertools.count()
        self._idle: dict[str, list[Sandbox]] = {}
        self._sandboxes: set[Sandbox] = set()
        self._running = 0
        self._events: set[asyncio.Task[Any]] = set()
        self._guard = Guard()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="lambda emulator", daemon=True)

    # -- for tests

    def start(self) -> LambdaEmulator:
        self._thread.start()
        self._server = Server(self._answer)
        self.endpoint = f"http://127.0.0.1:{self._call(self._server.start())}"
        return self

    def stop(self) -> None:
        self.end_sandboxes()
        self._call(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._guard.close()

    def deploy(
        self, name: str, code: list[str], *, memory: int, environment: dict[str, str], timeout: float = 30
    ) -> None:
        """Deploy a function without the API. Takes the folders of its path, megabytes, seconds."""
        before = self.functions.known.get(name)
        revision = before.revision + 1 if before else 1
        self.functions.known[name] = Deployed(
            name, code, ENTRY, memory, timeout, environment, retries=0, revision=revision
        )

    def end_sandboxes(self) -> None:
        """End all sandboxes, busy ones included. Lambda may end idle ones at any time."""
        self._call(self._end_sandboxes())

    def kill_sandbox(self) -> None:
        """Kill a sandbox that runs an event, like a failing host."""
        self._call(self._kill_sandbox())

    async def _kill_sandbox(self) -> None:
        idle = {sandbox for some in self._idle.values() for sandbox in some}
        next(iter(self._sandboxes - idle)).kill()

    def settle(self) -> None:
        """Wait until no call or event is running, since calls of one test must not meet the next one's faults."""
        self._call(self._settle())

    async def _settle(self) -> None:
        while self._running or self._events:  # noqa: ASYNC110 (two kinds of work)
            await asyncio.sleep(0.01)

    @property
    def credentials(self) -> dict[str, str]:
        """The environment of a process that calls this."""
        return {
            "AWS_ENDPOINT_URL_LAMBDA": self.endpoint,
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_REGION": REGION,
        }

    @property
    def sandboxes(self) -> int:
        return len(self._sandboxes)

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)

    async def _close(self) -> None:
        await self._server.close()
        others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _end_sandboxes(self) -> None:
        self._idle.clear()
        ended, self._sandboxes = self._sandboxes, set()
        await asyncio.gather(*(sandbox.end() for sandbox in ended))

    # -- Invoke

    async def _answer(self, request: Request) -> Reply:
        parts = request.path.strip("/").split("/")
        if parts[-1] != "invocations":
            return await self.functions.answer(request)
        try:
            function = self.functions.of(parts[2])
            return await self._invoke(function, request)
        except Refused as refused:
            return refused.reply

    async def _invoke(self, function: Deployed, request: Request) -> Reply:
        asynchronous = request.headers.get("x-amz-invocation-type") == "Event"
        limit = ASYNCHRONOUS_LIMIT if asynchronous else SYNCHRONOUS_LIMIT
        if len(request.body) > limit:
            kind = "Event" if asynchronous else "RequestResponse"
            text = f"{len(request.body)} byte payload is too large for the {kind} invocation type (limit {limit} bytes)"
            raise Refused("RequestTooLargeException", text, 413)
        if self.faults.strikes("service error"):
            raise Refused("ServiceException", "An internal error occurred.", 500)
        if self.faults.strikes("throttle") or (not asynchronous and self._running >= self.concurrency):
            self.throttled.append(time.time())
            raise Refused(
                "TooManyRequestsException", "Rate Exceeded.", 429, "ReservedFunctionConcurrentInvocationLimitExceeded"
            )
        self.taken.append(time.time())
        name = str(uuid.uuid4())
        if asynchronous:
            task = asyncio.create_task(self._deliver(function, name, request.body))
            self._events.add(task)
            task.add_done_callback(self._events.discard)
            return Reply(202, b"", {"X-Amzn-RequestId": name})
        return await self._synchronous(function, name, request)

    async def _synchronous(self, function: Deployed, name: str, request: Request) -> Reply:
        if self.faults.strikes("two at once"):
            other = asyncio.create_task(self._run(function, name, request.body, 2))
            self._events.add(other)
            other.add_done_callback(self._events.discard)
        ended, log = await self._run(function, name, request.body)
        if self.faults.strikes("twice"):
            await self._run(function, name, request.body, 2)
        if slow := self.faults.strikes("slow"):
            await asyncio.sleep(slow.after)
        if self.faults.strikes("lose the answer"):
            raise HangUp
        headers = {"X-Amzn-RequestId": name, "X-Amz-Executed-Version": "$LATEST", "Content-Type": "application/json"}
        if request.headers.get("x-amz-log-type") == "Tail":
            headers["X-Amz-Log-Result"] = base64.b64encode(log).decode()
        if ended.error:
            headers["X-Amz-Function-Error"] = ended.error
        return Reply(200, ended.payload, headers)

    async def _deliver(self, function: Deployed, name: str, event: bytes) -> None:
        """Deliver an asynchronous event until it succeeds or its tries are used up."""
        runs = 2 if self.faults.strikes("twice") else 1
        if self.faults.strikes("two at once"):
            await asyncio.gather(self._queued(function, name, event, 1), self._queued(function, name, event, 2))
            return
        tries = 1 + function.retries
        for run in range(1, tries * runs + 1):
            ended, _ = await self._queued(function, name, event, run)
            if not ended.error and run >= runs:
                return
            await asyncio.sleep(_RETRY_SECONDS)

    async def _queued(self, function: Deployed, name: str, event: bytes, run: int) -> tuple[Ended, bytes]:
        while self._running >= self.concurrency:  # noqa: ASYNC110 (a queue that looks again, as Lambda's does)
            await asyncio.sleep(0.02)
        return await self._run(function, name, event, run)

    # -- sandboxes

    async def _run(self, function: Deployed, name: str, event: bytes, run: int = 1) -> tuple[Ended, bytes]:
        self._running += 1
        begun, started = time.time(), time.monotonic()
        try:
            sandbox = await self._sandbox(function)
            cold, sandbox.cold = sandbox.cold, False
            started = time.monotonic()
            ended = await self._with_faults(sandbox, name, event)
            ended = _bounded(ended)
            seconds = time.monotonic() - started
            log = sandbox.log_tail() + _report(sandbox, name, seconds, cold)
            initial = sandbox.init_seconds if cold else 0.0
            self.invocations.append(Invocation(function.name, name, run, begun, seconds, cold, ended.error, initial))
            await self._back(sandbox, ended)
            return ended, log[-4096:]
        finally:
            self._running -= 1

    async def _with_faults(self, sandbox: Sandbox, name: str, event: bytes) -> Ended:
        memory = sandbox.function.memory << 20
        if self.faults.strikes("kill at start"):
            sandbox.kill()
            await asyncio.to_thread(sandbox.process.wait)
        for kind in ("kill under way", "out of memory"):
            if fault := self.faults.strikes(kind):
                sandbox.claim(memory if kind == "out of memory" else 0)
                asyncio.get_running_loop().call_later(fault.after, sandbox.kill)
        sandbox.kill_at_the_end = self.faults.strikes("kill at the end") is not None
        return await sandbox.run(name, event)

    async def _sandbox(self, function: Deployed) -> Sandbox:
        idle = self._idle.get(function.name, [])
        while idle:
            sandbox = idle.pop()
            if sandbox.alive and sandbox.revision == function.revision:
                return sandbox
            await self._drop(sandbox)
        sandbox = Sandbox(function, self._folder / f"sandbox-{next(self._numbers)}", REGION, self._guard)
        self._sandboxes.add(sandbox)
        await sandbox.start()
        return sandbox

    async def _back(self, sandbox: Sandbox, ended: Ended) -> None:
        if ended.lost or not sandbox.alive:
            await self._drop(sandbox)
        elif sandbox in self._sandboxes:
            sandbox.freeze()
            self._idle.setdefault(sandbox.function.name, []).append(sandbox)

    async def _drop(self, sandbox: Sandbox) -> None:
        if sandbox in self._sandboxes:
            self._sandboxes.discard(sandbox)
            await sandbox.end()


def _bounded(ended: Ended) -> Ended:
    """API, Invoke: a response beyond 6 MB is an error of the function."""
    if len(ended.payload) <= SYNCHRONOUS_LIMIT:
        return ended
    text = f"Response payload size exceeded maximum allowed payload size ({SYNCHRONOUS_LIMIT} bytes)."
    said = {"errorType": "Function.ResponseSizeTooLarge", "errorMessage": text}
    return Ended(json.dumps(said).encode(), "Unhandled")


def _report(sandbox: Sandbox, name: str, seconds: float, cold: bool) -> bytes:
    """DG, "Viewing CloudWatch logs for Python Lambda functions". Billed by the millisecond, rounded up, initialisation
    included (AWS compute blog, "AWS Lambda standardizes billing for INIT Phase", 2025)."""
    init = f"\tInit Duration: {sandbox.init_seconds * 1000:.2f} ms" if cold else ""
    billed = seconds + (sandbox.init_seconds if cold else 0.0)
    size, peak = sandbox.function.memory, min(sandbox.peak_memory() >> 20, sandbox.function.memory)
    text = (
        f"REPORT RequestId: {name}\tDuration: {seconds * 1000:.2f} ms\tBilled Duration: {int(billed * 1000) + 1} ms"
        f"\tMemory Size: {size} MB\tMax Memory Used: {peak} MB{init}\t\n"
    )
    return text.encode()
