"""The invoker's side of a container: start, initialise, run, read its log, kill it with all processes in it.

It follows the container proxy of OpenWhisk: a container serves one activation at a time, stays warm after a success,
and is destroyed after any error or when its time is up (docs/actions-new.md of apache/openwhisk, "Time limit").
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import httpx
from emulators.openwhisk_proxy import GUARD, descendants

from treadle.executors.local.orphan_guard import Guard

PROXY = Path(__file__).with_name("openwhisk_proxy.py")
_BASE = str(getattr(sys, "_base_executable", sys.executable))
"""The interpreter without the packages of the tests' environment."""


class Reply(NamedTuple):
    """The container's reply. Status 0: none, the container is gone."""

    status: int
    body: bytes


class Container:
    """One sandbox. Made on the emulator's event loop, since the process dies with the thread that started it."""

    def __init__(self, folder: Path, cache: Path, memory: int, guard: Guard) -> None:
        """`guard`: ends the container's remaining processes when this process is killed."""
        self.folder, self._guard = folder, guard
        folder.mkdir(parents=True)
        self._logs = {name: (folder / name).open("ab", buffering=0) for name in ("stdout", "stderr")}
        self._read = dict.fromkeys(self._logs, 0)
        ready, told = os.pipe()
        (folder / "tmp").mkdir()
        command = [_BASE, "-I", "-S", "-B", str(PROXY), str(told), str(cache), str(memory)]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=self._logs["stdout"],
            stderr=self._logs["stderr"],
            env={},
            cwd=folder / "tmp",
            pass_fds=[told],
            start_new_session=True,
        )
        guard.watch(self._process.pid, str(folder))
        os.close(told)
        self._ready = ready
        self._http = httpx.AsyncClient(timeout=None, trust_env=False)
        self._url = ""
        self._gone = False

    async def wait_ready(self) -> None:
        with os.fdopen(self._ready) as file:
            port = await asyncio.to_thread(file.readline)
        self._url = f"http://127.0.0.1:{port.strip()}"

    async def post(self, path: str, body: bytes) -> Reply:
        if self._gone:
            return Reply(0, b"")
        try:
            response = await self._http.post(f"{self._url}/{path}", content=body)
        except httpx.TransportError:
            return Reply(0, b"")
        return Reply(response.status_code, response.content)

    async def kill(self) -> None:
        """Kill all its processes, and wait until they are gone. All at once, so that the proxy cannot report its
        action's end."""
        self._gone = True
        self._process.send_signal(signal.SIGSTOP)
        before: set[int] = set()
        while found := set(descendants(self._process.pid)):
            for pid in found:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            if found == before and all(_is_dead(pid) for pid in found):  # no further process appeared in the meantime
                break
            before = found
            await asyncio.sleep(0.005)
        self._process.kill()
        await asyncio.to_thread(self._process.wait)
        self._guard.forget(self._process.pid)
        await self._http.aclose()
        for file in self._logs.values():
            file.close()
        await asyncio.to_thread(shutil.rmtree, self.folder, ignore_errors=True)

    async def take_log(self) -> list[str]:
        """Lines since the last call, up to the guards, as in an activation record (docs/actions.md)."""
        found: list[str] = []
        for name in self._logs:
            text = await self._up_to_guard(name)
            stamp = datetime.now(UTC).isoformat().replace("+00:00", "Z")
            found += [f"{stamp} {name}: {line}" for line in text.replace(GUARD, "").splitlines()]
        return found

    async def _up_to_guard(self, name: str) -> str:
        """A dead action has not written it. The proxy does, a moment later, or is gone too."""
        text = b""
        for _ in range(20):
            if self._gone:
                break
            text = (self.folder / name).read_bytes()[self._read[name] :]
            if text.endswith(GUARD.encode()) or self._process.poll() is not None:
                break
            await asyncio.sleep(0.01)
        self._read[name] += len(text)
        return text.decode(errors="replace")


def _is_dead(pid: int) -> bool:
    """Gone, or a zombie that waits for its parent."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True
