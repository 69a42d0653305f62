"""A third-party executor in one file: every call runs a command.

`command` precedes the interpreter and chooses its place: `["ssh", "host"]`, `["docker", "run", "-i", "image"]`,
`["srun"]`, or nothing. There the same file serves the single request on its stdin. docs/plugins.md explains it.
"""

import asyncio
import json
import os
import signal
import sys
from collections.abc import Mapping
from typing import Any

import msgspec

from treadle.executors import Answer, Executor, FunctionExecutor, Handler, Limits, Place, convert_table


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The keys of the table `[PROFILE.executors.NAME]` besides `kind`."""

    command: tuple[str, ...] = ()
    slots: int = 2
    megabytes: int = 1024
    seconds: float = 3600.0
    secrets: tuple[str, ...] = ()


class CommandInvoker:
    """Makes calls. FunctionExecutor turns them into tasks, and their ends into failures with a class."""

    def __init__(self, settings: Settings, environment: Mapping[str, str]) -> None:
        self.limits = Limits(64 << 20, 64 << 20, settings.seconds, (settings.megabytes << 20,))
        self._command = [*settings.command, sys.executable, "-P", __file__]
        self._environment = environment

    async def invoke(self, request: bytes, memory: int, seconds: float) -> Answer:
        """One call: a process that gets the request, and answers on its stdout."""
        head = json.dumps([self._environment, seconds, memory])  # over stdin: other users can see a command line
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            *self._command, stdin=pipe, stdout=pipe, stderr=pipe, limit=64 << 20, start_new_session=True
        )
        try:
            async with asyncio.timeout(seconds):
                response, log = await process.communicate(f"{head}\n".encode() + request)
        except TimeoutError:
            return Answer("timed out", how=f"it was not over after {seconds:g} s")
        finally:
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGKILL)
                await process.communicate()
        if process.returncode == 0:
            return Answer("answered", response)
        return Answer("crashed", how=f"the command ended with {process.returncode}", log=log[-(64 << 10) :])

    async def close(self) -> None:
        """Nothing to close: the process of a call ends with it."""


def settings(table: Mapping[str, Any]) -> Settings:
    return convert_table(table, Settings)


def open(settings: Settings, place: Place) -> Executor:
    invoker = CommandInvoker(settings, place.function_environment(settings.secrets))
    return FunctionExecutor("command", invoker, key_file=place.key_file, slots=settings.slots)


def serve() -> None:
    """The other side: one request on stdin, its response on stdout. Output of user code goes to the report."""
    environment, seconds, memory = json.loads(sys.stdin.buffer.readline())
    handler = Handler({**os.environ, **environment})
    response = handler.handle_json(sys.stdin.buffer.read(), seconds, memory)
    handler.close()
    sys.stdout.buffer.write(response)


if __name__ == "__main__":
    serve()
