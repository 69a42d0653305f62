"""A worker process as its driver sees it: started, written to, read from, killed, and asked how it ended.

All methods run on the driver's event loop, in the thread that started the process (the kernel ties a worker's life to
the thread that made it).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from . import limits
from .program import Failure, Outcome
from .worker_log import open_log, read_tail
from .worker_messages import Done, FrameBuffer, FrameEncoder, Ready, Reply, Setup

_READ = 1 << 18


class Death(Struct, frozen=True):
    """How a worker process ended."""

    code: int
    """Exit code; negative: the signal."""
    killed: str
    """Why its driver killed it; empty: it did not."""
    log: bytes
    """The tail of its log since the last report."""
    peak_memory: int
    """Bytes resident at most; 0: unknown."""
    oom_kills: int
    """Processes the kernel killed for want of memory while this one lived."""


Event = Outcome | Failure | Done | Death


def _ignore(event: Event) -> None:
    """Nobody has given the worker anything to do."""


class WorkerProcess:
    """One running worker. `listener` gets what it says, and at last its Death."""

    def __init__(self, setup: Setup, environment: Mapping[str, str]) -> None:
        self.listener: Callable[[Event], None] = _ignore
        self.bundle: str | None = None
        """Digest of the bundle it has imported from; None: it has run nothing."""
        self._loop = asyncio.get_running_loop()
        self.started: asyncio.Future[Death | None] = self._loop.create_future()
        """None once it is ready; its death if that came first."""
        self.gone: asyncio.Future[Death] = self._loop.create_future()
        self._killed = ""
        self._oom_kills = limits.oom_kills()
        self._frames, self._encoder = FrameBuffer(), FrameEncoder()
        self._decoder = msgspec.msgpack.Decoder(Reply)
        self._unsent = bytearray()
        self._log = open_log()
        self._start(environment)
        self.send(setup)

    def _start(self, environment: Mapping[str, str]) -> None:
        self._socket, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "treadle.executors.worker", str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                env=dict(environment),
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        self._socket.setblocking(False)
        self._exit = os.pidfd_open(self.pid)
        self._loop.add_reader(self._socket, self._readable)
        self._loop.add_reader(self._exit, self._exited)

    @property
    def pid(self) -> int:
        """Also the id of its process group, which holds what user code started."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        return not self.gone.done() and not self._killed

    def send(self, message: Any) -> None:
        """Write the message; what does not fit into the socket goes out as the worker reads."""
        self._unsent += self._encoder.encode(message)
        self._pump()

    def _pump(self) -> None:
        try:
            del self._unsent[: self._socket.send(self._unsent)]
        except BlockingIOError:
            pass
        except OSError:  # it is dead: _exited will tell
            self._unsent.clear()
        if self._unsent:
            self._loop.add_writer(self._socket, self._pump)
        else:
            self._loop.remove_writer(self._socket)

    def _readable(self) -> None:
        try:
            data = self._socket.recv(_READ)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._loop.remove_reader(self._socket)
        for body in self._frames.feed(data):
            self._receive(self._decoder.decode(body))

    def _receive(self, reply: Reply) -> None:
        if not isinstance(reply, Ready):
            self.listener(reply)
        elif not self.started.done():
            self.started.set_result(None)

    def dump_stacks(self) -> None:
        """Have it write the stack of every thread to its log; works while C code holds the interpreter."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGUSR1)

    def read_log(self) -> bytes:
        """What it printed since its last report; the tail of it."""
        return b"" if self.gone.done() else read_tail(self._log)

    def kill(self, why: str) -> None:
        """End it and what it started, at once; its Death follows."""
        if self.alive:
            self._killed = why
            self._kill_group()

    def _kill_group(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)

    def _exited(self) -> None:
        """Reap it: first the group, while its zombie keeps the id from being given to another."""
        self._kill_group()
        _, status, usage = os.wait4(self.pid, 0)
        self._process.returncode = os.waitstatus_to_exitcode(status)
        self._drain()
        death = Death(
            code=self._process.returncode,
            killed=self._killed,
            log=read_tail(self._log),
            peak_memory=_peak(usage.ru_maxrss),
            oom_kills=limits.oom_kills() - self._oom_kills,
        )
        self._close()
        self.gone.set_result(death)
        if not self.started.done():
            self.started.set_result(death)
        self.listener(death)

    def _drain(self) -> None:
        """Reports that were sent before the end count."""
        with contextlib.suppress(OSError):
            while data := self._socket.recv(_READ):
                for body in self._frames.feed(data):
                    self._receive(self._decoder.decode(body))

    def _close(self) -> None:
        self._loop.remove_reader(self._exit)
        self._loop.remove_reader(self._socket)
        self._loop.remove_writer(self._socket)
        os.close(self._exit)
        os.close(self._log)
        self._socket.close()


def _peak(kibibytes: int) -> int:
    """Bytes. A started process inherits the peak of its driver (execve keeps it): a value below that says nothing."""
    inherited = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return kibibytes * 1024 if kibibytes > inherited else 0
