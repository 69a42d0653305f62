"""Calls sandboxes on this machine, with a provider's limits and failure modes."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import shutil
import socket
import sys
import tempfile
from collections import defaultdict
from collections.abc import Mapping

from treadle.primitives.asyncio_tasks import spawn
from treadle.primitives.errors import UsageError

from ..functions.invoker import Answer
from ..local.child_process import ChildProcess, Death, starting
from ..local.orphan_guard import Guard
from ..memory_limit import exit_words
from ..worker.environment import KEY_VARIABLE, worker_environment
from .provider_limits import Emulation
from .sandbox import HEAD, LENGTH

LATE = "it took longer than the function may"
FULL = "its temporary folder holds more than there is"
CLOSED = "the executor was stopped"
_SANDBOX = "treadle.executors.emulation.sandbox"
_LOOK_SECONDS = 0.2
"""Seconds between two checks of the temporary folder."""


class ParityInvoker:
    """See `Invoker`. Each sandbox is a process with an empty folder and its own environment, and serves one call at a
    time.

    `environment` holds its variables apart from treadle's settings; secrets are passed as `TREADLE_SECRET_<NAME>`.
    """

    def __init__(self, emulation: Emulation, key: bytes, environment: Mapping[str, str]) -> None:
        self.limits = emulation.limits
        self._emulation = emulation
        self._environment = {**environment, KEY_VARIABLE: base64.b64encode(key).decode()}
        self._idle: dict[int, list[_Sandbox]] = defaultdict(list)
        self._live: set[_Sandbox] = set()
        self._copies: set[asyncio.Task[Answer]] = set()
        self._calls = 0
        self._guard = Guard()

    async def invoke(self, request: bytes, memory: int, seconds: float) -> Answer:
        """See `Invoker.invoke`."""
        if len(request) > self.limits.request:
            raise UsageError(f"a request has {len(request)} bytes; {self.limits.request} are allowed")
        size = self.limits.size(memory)
        seconds = min(seconds or self.limits.seconds, self.limits.seconds)
        self._calls += 1
        if self._emulation.repeated and self._calls % self._emulation.repeated == 0:
            copy = spawn(self._call(request, size, seconds), name="copy of a call")
            self._copies.add(copy)
            copy.add_done_callback(self._copies.discard)
        return await self._call(request, size, seconds)

    async def close(self) -> None:
        """See `Invoker.close`. Running calls are killed."""
        copies = list(self._copies)
        for copy in copies:
            copy.cancel()
        await asyncio.gather(*copies, return_exceptions=True)
        await asyncio.gather(*(sandbox.end(CLOSED) for sandbox in list(self._live)))
        self._idle.clear()
        self._guard.close()

    async def _call(self, request: bytes, size: int, seconds: float) -> Answer:
        sandbox, cold = self._sandbox(size)
        try:
            answer = await sandbox.call(request, seconds, self.limits.temporary, cold)
        except BaseException:
            await self._drop(sandbox, CLOSED)
            raise
        if answer.ended == "answered" and sandbox.calls < self._emulation.warm_calls:
            self._idle[size].append(sandbox)
        else:
            await self._drop(sandbox, answer.how)
        return answer

    def _sandbox(self, size: int) -> tuple[_Sandbox, bool]:
        """(a warm sandbox if there is one, else a new one; whether it is cold)."""
        if self._idle[size]:
            return self._idle[size].pop(), False
        with starting():
            sandbox = _Sandbox(size, self.limits.reserve, self._environment, self._guard)
        self._live.add(sandbox)
        return sandbox, True

    async def _drop(self, sandbox: _Sandbox, why: str) -> None:
        await sandbox.end(why)
        self._live.discard(sandbox)


class _Sandbox:
    """One sandbox process and the connection to it."""

    def __init__(self, memory: int, reserve: int, environment: Mapping[str, str], guard: Guard) -> None:
        self.calls = 0
        self._folder = tempfile.mkdtemp(prefix="parity-sandbox-")
        self._socket, theirs = socket.socketpair()
        with theirs, contextlib.ExitStack() as on_error:
            on_error.enter_context(self._socket)
            on_error.callback(shutil.rmtree, self._folder, ignore_errors=True)
            self._child = ChildProcess(
                [sys.executable, "-P", "-m", _SANDBOX, str(theirs.fileno()), str(memory), str(reserve)],
                {**worker_environment(environment), **_settings(environment), "TMPDIR": self._folder},
                guard,
                pass_fds=[theirs.fileno()],
                folder=self._folder,
            )
            on_error.pop_all()
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def call(self, request: bytes, seconds: float, temporary: int, cold: bool) -> Answer:
        """Run one call and return how it ended. The sandbox can be reused only if it answered."""
        self.calls += 1
        watch = spawn(self._watch(temporary), name="temporary folder of a sandbox")
        try:
            async with asyncio.timeout(seconds):
                response = await self._exchange(request, seconds)
        except TimeoutError:
            self._child.kill(LATE)
            response = b""
        finally:
            watch.cancel()
        if response:
            return Answer("answered", response, cold=cold)
        return _ended(await asyncio.shield(self._child.death), cold)

    async def end(self, why: str) -> None:
        """Kill the process and its children, and remove its folder."""
        await self._child.end(why)
        if self._streams is not None:
            self._streams[1].close()
            with contextlib.suppress(OSError):
                await self._streams[1].wait_closed()
        self._socket.close()
        await asyncio.to_thread(shutil.rmtree, self._folder, ignore_errors=True)

    async def _exchange(self, request: bytes, seconds: float) -> bytes:
        """The response; empty if the process ended."""
        self._streams = self._streams or await asyncio.open_connection(sock=self._socket)
        reader, writer = self._streams
        try:
            writer.write(HEAD.pack(len(request), seconds) + request)
            await writer.drain()
            (length,) = LENGTH.unpack(await reader.readexactly(LENGTH.size))
            return await reader.readexactly(length)
        except (asyncio.IncompleteReadError, ConnectionError):
            return b""

    async def _watch(self, temporary: int) -> None:
        while temporary:
            await asyncio.sleep(_LOOK_SECONDS)
            if await asyncio.to_thread(_size, self._folder) > temporary:
                self._child.kill(FULL)
                return


def _settings(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that the handler removes from its environment: the key and secrets."""
    return {name: value for name, value in environment.items() if name.startswith("TREADLE_")}


def _ended(death: Death, cold: bool) -> Answer:
    """The Answer for a process that ended without a response."""
    about = {"log": death.log, "peak_memory": death.peak_memory, "cold": cold}
    if death.killed == LATE:
        return Answer("timed out", how=LATE, **about)  # type: ignore[arg-type]
    if death.oom_kills and death.code == -9 and not death.killed:
        return Answer("out of memory", how="the kernel killed it for want of memory", **about)  # type: ignore[arg-type]
    return Answer("crashed", how=death.killed or exit_words(death.code), **about)  # type: ignore[arg-type]


def _size(folder: str) -> int:
    """Bytes of all files below it; files that disappear meanwhile do not count."""
    total = 0
    for path, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(path, name)).st_size
    return total
