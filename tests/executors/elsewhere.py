"""Functions on other hosts of this machine: each call is a process there that lasts as long as the call.

python -m executors.elsewhere SECONDS MEMORY < request > response
"""

from __future__ import annotations

import asyncio
import base64
import os
import subprocess
import sys
from pathlib import Path

import msgspec
from namespaces import Host

from treadle.executors.function_handler import Handler
from treadle.executors.functions.invoker import Answer, Limits
from treadle.executors.functions.payload import Request
from treadle.executors.worker.environment import KEY_VARIABLE
from treadle.primitives import sealing

SIZES = (512 << 20,)


class Elsewhere:
    """See `Invoker`. Also a deployment target for `members_rig`. Calls go to the hosts in turn."""

    def __init__(self, hosts: list[Host], folder: Path) -> None:
        self.limits = Limits(6 << 20, 6 << 20, 0.0, SIZES)
        self.calls = 0
        self._hosts, self._folder = hosts, folder
        self._environment: dict[str, str] = {}

    def deploy(self, key_file: str, *, timeout: float) -> None:
        key = base64.b64encode(sealing.load_or_create_key(key_file)).decode()
        path = os.pathsep.join(filter(None, sys.path))
        self._environment = {**os.environ, KEY_VARIABLE: key, "PYTHONPATH": path, "TMPDIR": str(self._folder)}

    def invoker(self, *, seconds: float) -> Elsewhere:
        self.limits = msgspec.structs.replace(self.limits, seconds=seconds)
        return self

    async def invoke(self, request: bytes, memory: int, seconds: float) -> Answer:
        host = self._hosts[self.calls % len(self._hosts)]
        self.calls += 1
        command = (sys.executable, "-m", "executors.elsewhere", str(seconds), str(memory))
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        process = host.popen(*command, env=self._environment, **pipes)
        response, _ = await asyncio.to_thread(process.communicate, request.decode())
        if process.returncode != 0:
            return Answer("crashed", how=f"exit status {process.returncode}")
        return Answer("answered", response.encode())

    async def close(self) -> None:
        """Its processes end with the hosts."""


def main(seconds: float, memory: int) -> None:
    handler = Handler()
    request = msgspec.json.decode(sys.stdin.buffer.read(), type=Request)
    response = handler.handle(request, seconds, memory)
    sys.stdout.buffer.write(msgspec.json.encode(response))
    handler.close()


if __name__ == "__main__":
    main(float(sys.argv[1]), int(sys.argv[2]))
