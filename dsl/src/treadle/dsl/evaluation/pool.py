"""The workers of this process. They start on demand, and end with this process at the latest."""

from __future__ import annotations

import atexit
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
from typing import Any

from treadle.primitives.errors import TreadleError, UsageError

from .jobs import WORDS, Unfit
from .messages import CPU_SECONDS, MEMORY_BYTES, receive, send

MOST = 2
"""Limit of workers: two jobs that exceed their budgets leave the other processors free."""
PATIENCE = 30.0
"""Seconds to wait for an answer. Processor time is the budget; a worker that is silent for longer is stopped or
starved.
"""
_HINT = "Simplify the filter, schema or pattern (see `Time budget` in docs/triggers.md), or send less data."


class EvaluatorLost(TreadleError):
    """A worker ended or did not answer, through no fault of the job: try again later."""


class _Ended(Exception):
    """The kernel ended a worker that exceeded its processor time."""


class WorkerPool:
    """A pool of workers. Thread-safe; a job waits while all workers are busy."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._idle: list[_Worker] = []
        self._count = 0

    def run(self, job: str, arguments: tuple[Any, ...]) -> Any:
        """Return the job's value. Raises the errors of the job; Unfit when it exceeds a budget; EvaluatorLost."""
        request = pickle.dumps((job, arguments), pickle.HIGHEST_PROTOCOL)
        try:
            answer = self._ask_twice(request)
        except _Ended:
            took = f"more than {CPU_SECONDS:g} s of processor time"
            raise Unfit(f"{WORDS[job]}: timed out: the evaluation took {took}", _HINT) from None
        match answer:
            case ("value", value):
                return value
            case ("unfit", message, hint):
                raise Unfit(message, hint)
            case ("memory",):
                needs = f"more than {MEMORY_BYTES >> 20} MiB"
                raise Unfit(f"{WORDS[job]}: out of memory: the evaluation needs {needs}", _HINT)
            case (_, message, hint):
                raise UsageError(message, hint)

    def close(self) -> None:
        """End idle workers. The pool may be used again."""
        with self._changed:
            idle, self._idle = self._idle, []
            self._count -= len(idle)
        for worker in idle:
            worker.end()

    def _ask_twice(self, request: bytes) -> Any:
        """Ask once more when a worker is lost: an idle worker may have been killed long ago."""
        try:
            return self._ask(request)
        except EvaluatorLost:
            return self._ask(request)

    def _ask(self, request: bytes) -> Any:
        worker = self._take()
        try:
            answer = worker.ask(request)
        except BaseException:
            worker.end()
            self._return(None)
            raise
        self._return(worker)
        return answer

    def _take(self) -> _Worker:
        with self._changed:
            self._changed.wait_for(lambda: self._idle or self._count < MOST)
            if self._idle:
                return self._idle.pop()
            self._count += 1
        try:
            return _Worker()
        except BaseException:
            self._return(None)
            raise

    def _return(self, worker: _Worker | None) -> None:
        with self._changed:
            if worker is None:
                self._count -= 1
            else:
                self._idle.append(worker)
            self._changed.notify()


class _Worker:
    """One process, and the socket to it."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair()
        command = [sys.executable, "-P", "-m", "treadle.dsl.evaluation.worker", str(theirs.fileno())]
        with theirs:
            try:
                self._process = subprocess.Popen(command, pass_fds=[theirs.fileno()], start_new_session=True)
            except OSError as error:
                self._socket.close()
                raise EvaluatorLost(f"no process can be started for an evaluation: {error}", "Try again.") from error
        self._socket.settimeout(PATIENCE)

    def ask(self, request: bytes) -> Any:
        """Return the answer to one request. Raises _Ended, EvaluatorLost."""
        try:
            send(self._socket, request)
            return pickle.loads(receive(self._socket))
        except TimeoutError:
            hint = "The machine is overloaded, or the process was stopped."
            raise EvaluatorLost(f"an evaluation did not end within {PATIENCE:.0f} s", hint) from None
        except (EOFError, OSError):
            raise self._failure() from None

    def end(self) -> None:
        """Kill the process and reap it."""
        self._socket.close()
        self._process.kill()
        self._process.wait()

    def _failure(self) -> Exception:
        status = self._process.wait()
        if status == -signal.SIGPROF:
            return _Ended()
        return EvaluatorLost(f"the process of an evaluation ended with status {status}", "Try again.")


def _forget() -> None:
    """In a forked child, start with an empty pool: the workers belong to the parent."""
    global POOL
    POOL = WorkerPool()


POOL = WorkerPool()
atexit.register(lambda: POOL.close())
os.register_at_fork(after_in_child=_forget)
