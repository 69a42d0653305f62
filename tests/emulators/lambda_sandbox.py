"""One execution environment of the emulated Lambda: the real runtime client in a process, and its Runtime API.

By the Lambda developer guide, "Using the Lambda runtime API for custom runtimes": GET .../runtime/invocation/next
answers with the next event, and with its id, deadline and function ARN as headers. POST .../{id}/response and
.../{id}/error end the invocation; POST .../init/error ends the environment.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from emulators.lambda_http import Reply, Request, Server
from emulators.openwhisk_proxy import descendants, resident
from msgspec import Struct

from treadle.executors.local.orphan_guard import Guard

_API = "/2018-06-01/runtime/"
_WATCH_SECONDS = 0.05
_TAIL = 4096
"""Bytes of log in an answer (API reference, Invoke, LogType)."""


class Deployed(Struct):
    """A deployed function."""

    name: str
    code: list[str]
    """Folders of the import path. The first one is the task root."""
    handler: str
    memory: int
    """Megabytes."""
    timeout: float
    """Seconds."""
    environment: dict[str, str]
    runtime: str = "python3.11"
    role: str = ""
    zipped: int = 0
    digest: str = ""
    retries: int = 2
    """Retries of asynchronous events (developer guide, "Asynchronous invocation": two by default)."""
    age: int = 21_600
    reserved: int | None = None
    events_unset: bool = True
    storage: int = 512
    """Megabytes of /tmp."""
    role_environment: dict[str, str] = {}
    """Credentials of the role, which Lambda sets in the environment (developer guide, "Defined runtime environment
    variables")."""
    network: dict[str, list[str]] = {}
    """VpcConfig."""
    revision: int = 1


class Ended(Struct):
    """The end of one invocation in its sandbox."""

    payload: bytes
    error: str = ""
    """The value of X-Amz-Function-Error."""
    lost: bool = False
    """True: the sandbox is gone."""


class Sandbox:
    """Serves one invocation at a time. Everything runs in the emulator's loop."""

    def __init__(self, function: Deployed, folder: Path, region: str, guard: Guard) -> None:
        """`guard`: ends the sandbox's remaining processes when this process is killed."""
        self.function = function
        self.cold = True
        self.revision = function.revision
        self.folder, self._region, self._guard = folder, region, guard
        self._frozen: list[int] = []
        self._event: asyncio.Queue[tuple[str, bytes, float]] = asyncio.Queue()
        self._ended: asyncio.Future[Ended] | None = None
        self._ready = asyncio.Event()
        self._peak = self._peak_floor = 0
        self._at = 0
        """The offset of the invocation's log."""
        self._request = ""
        self._init_error = b""
        self.init_seconds = 0.0
        self.kill_at_the_end = False

    async def start(self) -> None:
        """Start it, and wait until it requests its first event or is dead."""
        begun = time.monotonic()
        (self.folder / "tmp").mkdir(parents=True)
        self._server = Server(self._answer)
        port = await self._server.start()
        self.process = self._spawn(f"127.0.0.1:{port}")
        self._guard.watch(self.process.pid, str(self.folder))
        size = self.function.memory << 20
        with contextlib.suppress(ProcessLookupError):
            resource.prlimit(self.process.pid, resource.RLIMIT_DATA, (size, size))
            resource.prlimit(self.process.pid, resource.RLIMIT_NOFILE, (1024, 1024))  # developer guide, quotas
        self._watch = asyncio.create_task(self._look_after())
        await self._ready.wait()
        self.init_seconds = time.monotonic() - begun

    def _spawn(self, api: str) -> subprocess.Popen[bytes]:
        with open(self.folder / "log", "wb") as log:
            return subprocess.Popen(
                [sys.executable, *_NO_SITE, "-m", "awslambdaric", self.function.handler],
                env=self._environment(api),
                cwd=self.function.code[0],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _environment(self, api: str) -> dict[str, str]:
        """Developer guide, "Defined runtime environment variables". From this process it has only the path of
        libraries."""
        function, temporary = self.function, str(self.folder / "tmp")
        return {
            "PATH": os.environ.get("PATH", ""),
            "LANG": "en_US.UTF-8",
            "TZ": ":UTC",
            "HOME": temporary,
            "TMPDIR": temporary,
            "PYTHONPATH": os.pathsep.join(function.code),
            "LAMBDA_TASK_ROOT": function.code[0],
            "_HANDLER": function.handler,
            "AWS_LAMBDA_RUNTIME_API": api,
            "AWS_LAMBDA_FUNCTION_NAME": function.name,
            "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": str(function.memory),
            "AWS_LAMBDA_FUNCTION_VERSION": "$LATEST",
            "AWS_LAMBDA_INITIALIZATION_TYPE": "on-demand",
            "AWS_EXECUTION_ENV": f"AWS_Lambda_{function.runtime}",
            "AWS_REGION": self._region,
            **function.role_environment,
            **function.environment,
        }

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    async def run(self, request: str, event: bytes) -> Ended:
        """Run one invocation. A sandbox that is late or breaks the rules is killed."""
        timeout = self.function.timeout
        self._ended = asyncio.get_running_loop().create_future()
        self._peak, self._at = self._peak_floor, self.log_size()
        self._request = request
        if not self.alive:
            return self._exited()
        self.thaw()
        self._event.put_nowait((request, event, time.time() + timeout))
        try:
            return await asyncio.wait_for(asyncio.shield(self._ended), timeout)
        except TimeoutError:
            self.kill()
            text = f"RequestId: {request} Error: Task timed out after {timeout:.2f} seconds"
            return Ended(_error("Sandbox.Timedout", text), "Unhandled", lost=True)
        finally:
            self._ended = None

    def kill(self) -> None:
        """Also frozen processes whose parent was killed meanwhile."""
        _signal([*self._tree(), *self._frozen], signal.SIGKILL)

    def claim(self, size: int) -> None:
        """Report its memory as if `size` bytes were in use."""
        self._peak_floor = size

    def freeze(self) -> None:
        """Freeze it between invocations (developer guide, "Lambda execution environment lifecycle").

        So no process in it would notice the end of this process.
        """
        self._frozen = self._tree()
        for pid in self._frozen[1:]:
            self._guard.watch(pid)
        _signal(self._frozen, signal.SIGSTOP)

    def thaw(self) -> None:
        _signal(self._frozen, signal.SIGCONT)
        for pid in self._frozen[1:]:
            self._guard.forget(pid)
        self._frozen = []

    async def end(self) -> None:
        self.kill()
        await asyncio.to_thread(self.process.wait)
        for pid in (self.process.pid, *self._frozen):
            self._guard.forget(pid)
        self._watch.cancel()
        await self._server.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    # -- measurements

    def _tree(self) -> list[int]:
        """Its processes, parents first."""
        return [self.process.pid, *descendants(self.process.pid)]

    def peak_memory(self) -> int:
        """The maximum of bytes in use during the invocation."""
        self._peak = max(self._peak, sum(map(resident, self._tree())))
        return self._peak

    def log_size(self) -> int:
        return (self.folder / "log").stat().st_size

    def log_tail(self) -> bytes:
        with open(self.folder / "log", "rb") as file:
            file.seek(max(self._at, self.log_size() - _TAIL))
            return file.read(_TAIL)

    # -- lifetime

    async def _look_after(self) -> None:
        """Notice its death, and act like the kernel for a group of processes that is out of memory."""
        size = self.function.memory << 20
        while self.alive:
            await asyncio.sleep(_WATCH_SECONDS)
            if self._ended is not None and self.peak_memory() > size:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(max(self._tree(), key=resident), signal.SIGKILL)
        self._ready.set()
        if self._ended is not None and not self._ended.done():
            self._ended.set_result(self._exited())

    def _exited(self) -> Ended:
        code = self.process.wait()
        if self._init_error:
            return Ended(self._init_error, "Unhandled", lost=True)
        how = f"exit status {code}" if code >= 0 else f"signal: {_SIGNALS.get(-code, -code)}"
        text = f"RequestId: {self._request} Error: Runtime exited with error: {how}"
        return Ended(_error("Runtime.ExitError", text), "Unhandled", lost=True)

    # -- Runtime API

    async def _answer(self, request: Request) -> Reply:
        path = request.path.removeprefix(_API)
        if path == "invocation/next":
            self._ready.set()
            name, event, deadline = await self._event.get()
            return Reply(200, event, self._headers(name, deadline))
        if path == "init/error":
            self._ready.set()
            self._init_error = request.body
            return Reply.json({"status": "OK"}, 202)
        return self._over(path, request.body)

    def _headers(self, name: str, deadline: float) -> dict[str, str]:
        return {
            "Content-Type": "application/json",
            "Lambda-Runtime-Aws-Request-Id": name,
            "Lambda-Runtime-Deadline-Ms": str(int(deadline * 1000)),
            "Lambda-Runtime-Invoked-Function-Arn": arn(self.function.name, self._region),
        }

    def _over(self, path: str, body: bytes) -> Reply:
        if self.kill_at_the_end:
            self.kill()
            return Reply.json({"status": "OK"}, 202)
        if self._ended is not None and not self._ended.done():
            self._ended.set_result(Ended(body, "Unhandled" if path.endswith("/error") else ""))
        return Reply.json({"status": "OK"}, 202)


def _signal(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


_NO_SITE = ("-S",)
_SIGNALS = {9: "killed", 11: "segmentation fault (core dumped)", 15: "terminated", 6: "aborted (core dumped)"}


def arn(name: str, region: str) -> str:
    return f"arn:aws:lambda:{region}:{ACCOUNT}:function:{name}"


ACCOUNT = "123456789012"


def _error(kind: str, message: str) -> bytes:
    said: dict[str, Any] = {"errorType": kind, "errorMessage": message}
    return json.dumps(said).encode()
