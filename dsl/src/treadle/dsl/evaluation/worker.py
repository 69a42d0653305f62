"""A worker process: runs one job after the other. The kernel ends it when a job exceeds its processor time.

Neither a thread nor a signal handler can stop a regular expression that backtracks. The default action of SIGPROF can:
it ends the process at any time.
"""

from __future__ import annotations

import contextlib
import pickle
import resource
import signal
import socket
import sys
from typing import Any

from treadle.primitives.errors import UsageError

from .jobs import JOBS, Unfit
from .messages import CPU_SECONDS, MEMORY_BYTES, receive, send


def main() -> None:
    """`argv[1]`: the descriptor of the connected socket. Returns when the other side closes it."""
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides when this process ends
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))
    with contextlib.suppress(ImportError):
        import jsonschema.exceptions  # noqa: F401  # before a budget is running
    with socket.socket(fileno=int(sys.argv[1])) as sock, contextlib.suppress(EOFError, OSError):
        while True:
            send(sock, _answer(receive(sock)))


def _answer(request: bytes) -> bytes:
    signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)
    try:
        return pickle.dumps(_outcome(request), pickle.HIGHEST_PROTOCOL)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def _outcome(request: bytes) -> tuple[Any, ...]:
    try:
        name, arguments = pickle.loads(request)
        return "value", JOBS[name](*arguments)
    except Unfit as error:
        return "unfit", error.message, error.hint
    except UsageError as error:
        return "usage", error.message, error.hint
    except MemoryError:
        return ("memory",)


if __name__ == "__main__":
    main()
