"""The driver's view of a warm worker process: the messages to and from a child process."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from ..program import Failure, Outcome
from ..worker.messages import FrameBuffer, FrameEncoder, Ready, Reply, RunTask, Setup, TaskDone
from .child_process import ChildProcess, Death
from .orphan_guard import Guard

_READ = 1 << 18
READY_SECONDS = 120.0
"""A worker that does not accept tasks after this time is killed; it usually needs a fifth of a second."""
_BATCH_SECONDS = 0.001
"""With many reports still expected, reading pauses this long, so that the next reports are read together."""
_MANY = 20

Event = Outcome | Failure | TaskDone | Death


def _ignore(event: Event) -> None:
    """Ignores events while the worker has no task."""


class WorkerProcess:
    """One running worker. `listener` receives its messages, and finally its Death."""

    def __init__(self, setup: Setup, environment: Mapping[str, str], guard: Guard, folder: str | None = None) -> None:
        """`folder`: see `ChildProcess`."""
        self.listener: Callable[[Event], None] = _ignore
        self.bundle: str | None = None
        """Digest of the bundle it has imported from; None: it has run no task."""
        self.ahead = 0
        """Messages that the worker will still send if all goes well."""
        self._task = ""
        self._loop = asyncio.get_running_loop()
        self._ready: asyncio.Future[None] = self._loop.create_future()
        self._frames, self._encoder = FrameBuffer(), FrameEncoder()
        self._decoder = msgspec.msgpack.Decoder(Reply)
        self._unsent = bytearray()
        self._pause: asyncio.TimerHandle | None = None
        self._socket, theirs = socket.socketpair()
        with theirs, contextlib.ExitStack() as on_error:
            on_error.enter_context(self._socket)
            command = [sys.executable, "-P", "-m", "treadle.executors.worker.main", str(theirs.fileno())]
            self.child = ChildProcess(
                command, environment, guard, pass_fds=[theirs.fileno()], folder=folder, at_exit=self._hang_up
            )
            on_error.pop_all()
        self._socket.setblocking(False)
        self._fd = self._socket.fileno()
        self._loop.add_reader(self._fd, self._readable)
        self.child.death.add_done_callback(lambda death: self.listener(death.result()))
        self.send(msgspec.structs.replace(setup, folder=folder) if folder else setup)

    @property
    def task(self) -> str:
        """Id of the task that it is running; empty: none."""
        return "" if self.child.death.done() else self._task

    def give(self, message: RunTask) -> None:
        """Make the worker run a task."""
        self._task, self.ahead = message.task.id, len(message.task.partitions)
        self.send(message)

    async def wait_ready(self) -> Death | None:
        """Return None once the worker accepts tasks, or its death if it dies first. After READY_SECONDS it is
        killed."""
        if not self._ready.done():
            either: set[asyncio.Future[Any]] = {self._ready, self.child.death}
            done, _ = await asyncio.wait(either, timeout=READY_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            if not done:
                await self.child.end(f"its worker process was not ready within {READY_SECONDS:g} s")
        return self.child.death.result() if self.child.death.done() else None

    def send(self, message: Any) -> None:
        """Send the message; bytes that do not fit into the socket are sent when the worker reads."""
        if self.child.death.done():
            return
        self._unsent += self._encoder.encode(message)
        self._pump()

    def _pump(self) -> None:
        try:
            del self._unsent[: self._socket.send(self._unsent)]
        except BlockingIOError:
            pass
        except OSError:  # the worker is dead: its Death follows
            self._unsent.clear()
        if self._unsent:
            self._loop.add_writer(self._fd, self._pump)
        else:
            self._loop.remove_writer(self._fd)

    def _readable(self) -> None:
        try:
            data = self._socket.recv(_READ)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._loop.remove_reader(self._fd)
        if self._receive(data):
            self._loop.remove_reader(self._fd)
            self._pause = self._loop.call_later(_BATCH_SECONDS, self._loop.add_reader, self._fd, self._readable)

    def _receive(self, data: bytes) -> bool:
        """Handle the received data. Returns whether it contained messages and many more are expected."""
        before = self.ahead
        for body in self._frames.feed(data):
            reply: Reply = self._decoder.decode(body)
            self.ahead -= 1
            if isinstance(reply, TaskDone):
                self._task = ""
            if not isinstance(reply, Ready):
                self.listener(reply)
            elif not self._ready.done():
                self._ready.set_result(None)
        return before > self.ahead > _MANY

    def _hang_up(self) -> None:
        """The process is gone. Read the reports that it sent before, which still count."""
        if self._pause is not None:
            self._pause.cancel()
        with contextlib.suppress(OSError):
            while data := self._socket.recv(_READ):
                self._receive(data)
        self._loop.remove_reader(self._fd)
        self._loop.remove_writer(self._fd)
        self._socket.close()
