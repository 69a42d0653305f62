"""One attempt in a process of its own: `python -m treadle.executors.isolated.worker`, started by the isolated executor.

It reads a request on stdin, writes the response on what was its stdout, and knows of the driver nothing else.
"""

from __future__ import annotations

import faulthandler
import os
import sys
from typing import Any

import msgspec

from treadle.primitives import trust

from .. import limits
from ..functions.payload import Request, decode_order, respond
from ..program import Report, Task
from ..runtime.failures import Redactor
from ..runtime.runtime import Runtime, prepare_process
from ..spill.room import room_of
from ..worker.log import WorkerLog, publish
from .settings import KEY_VARIABLE, MEMORY_VARIABLE, secrets_of

_CACHE_BYTES = 64 << 20


class IsolatedWorker:
    """Runs one task and collects its reports."""

    def __init__(self, task: Task, secrets: dict[str, str]) -> None:
        self.reports: list[Report] = []
        self._task = task
        self._secrets = secrets
        self._redactor = Redactor(secrets)
        self._log = WorkerLog()

    def run(self, key: bytes, memory: int) -> None:
        """A partition that takes too long ends the process, its stacks written to the log."""
        faulthandler.enable(self._log.fd)
        runtime = Runtime(None, _CACHE_BYTES, self._secrets.__getitem__, room_of(memory))
        limits.limit_allocation(memory and limits.allocated_bytes() + memory)
        self._start_clock()
        runtime.run(self._task, key, self._report)
        faulthandler.cancel_dump_traceback_later()
        limits.limit_allocation(0)

    def _start_clock(self) -> None:
        if self._task.timeout:
            faulthandler.dump_traceback_later(self._task.timeout, exit=True, file=self._log.fd)

    def _report(self, report: Report) -> None:
        if log := self._log.cut():
            report = msgspec.structs.replace(report, log=publish(log, self._redactor))
        self.reports.append(report)
        self._start_clock()


def _take_secrets(task: Task) -> dict[str, str]:
    """Secrets of the task from the environment, where user code and what it starts will not find them."""
    found = secrets_of(task, os.environ)
    for variable in [name for name in os.environ if name.startswith("TREADLE_")]:
        del os.environ[variable]
    return found


def _quiet_streams() -> int:
    """Point fd 0 at nothing and fd 1 at the log; the descriptor of what was stdout."""
    response = os.dup(1)
    os.dup2(2, 1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    streams: tuple[Any, ...] = (sys.stdout, sys.stderr)
    for stream in streams:
        stream.reconfigure(line_buffering=True, errors="backslashreplace")
    return response


def main() -> None:
    """Serve the one request on stdin."""
    request = msgspec.json.decode(sys.stdin.buffer.read(), type=Request)
    response = _quiet_streams()
    key = trust.run_key(trust.load_or_create_key(os.environ[KEY_VARIABLE]), request.run)
    order = decode_order(request, key)
    task = order.task
    memory = task.memory or int(os.environ.get(MEMORY_VARIABLE, "0"))
    worker = IsolatedWorker(task, _take_secrets(task))
    prepare_process()
    worker.run(key, memory)
    with open(response, "wb") as file:
        file.write(msgspec.json.encode(respond(order, worker.reports, key)))
    os._exit(0)  # threads that user code left behind must not keep the attempt open


if __name__ == "__main__":
    main()
