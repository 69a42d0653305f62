"""One attempt in a process of its own: `python -m treadle.executors.isolated.worker`, started by the isolated executor.

It reads a request on stdin, writes the response on what was its stdout, and knows of the driver nothing else.
"""

from __future__ import annotations

import faulthandler
import os
import sys

import msgspec

from treadle.primitives import trust

from .. import limits
from ..failures import Redactor
from ..functions.payload import Request, decode_order, respond
from ..program import Report, Task
from ..runtime.process import prepare_process
from ..runtime.runtime import Runtime
from ..spill.room import room_of
from ..worker.log import WorkerLog, line_by_line, publish
from .settings import KEY_VARIABLE, MEMORY_VARIABLE, secrets_of

_CACHE_BYTES = 64 << 20


def _reports(task: Task, key: bytes, secrets: dict[str, str], memory: int) -> list[Report]:
    """Run it. A partition that takes too long ends the process, its stacks written to the log."""
    reports: list[Report] = []
    log, redactor = WorkerLog(), Redactor(secrets)

    def start_clock() -> None:
        if task.timeout:
            faulthandler.dump_traceback_later(task.timeout, exit=True, file=log.fd)

    def take(report: Report) -> None:
        if printed := log.cut():
            report = msgspec.structs.replace(report, log=publish(printed, redactor))
        reports.append(report)
        start_clock()

    faulthandler.enable(log.fd)
    runtime = Runtime(None, _CACHE_BYTES, secrets.__getitem__, room_of(memory))
    limits.limit_allocation(memory and limits.allocated_bytes() + memory)
    start_clock()
    runtime.run(task, key, take)
    faulthandler.cancel_dump_traceback_later()
    limits.limit_allocation(0)
    return reports


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
    line_by_line()
    return response


def main() -> None:
    """Serve the one request on stdin."""
    request = msgspec.json.decode(sys.stdin.buffer.read(), type=Request)
    response = _quiet_streams()
    key = trust.run_key(trust.load_or_create_key(os.environ[KEY_VARIABLE]), request.run)
    order = decode_order(request, key)
    memory = order.task.memory or int(os.environ.get(MEMORY_VARIABLE, "0"))
    secrets = _take_secrets(order.task)
    prepare_process()
    reports = _reports(order.task, key, secrets, memory)
    with open(response, "wb") as file:
        file.write(msgspec.json.encode(respond(order, reports, key)))
    os._exit(0)  # threads that user code left behind must not keep the attempt open


if __name__ == "__main__":
    main()
