"""A warm worker process: `python -m treadle.executors.worker.main FD`, started by the local executor.

It serves tasks from the socket FD until the socket closes. A report is sent to the kernel before the next partition
begins, so it is not lost if that partition kills the process. Nothing here imports asyncio: a worker must be ready
within milliseconds.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import gc
import os
import select
import signal
import sys
from typing import Any

import msgspec

from treadle.primitives.encoding.tabular import type_name
from treadle.primitives.errors import FailureClass

from .. import memory_limit
from ..failures import full_traceback, message_of
from ..program import Failure, Report, Task
from ..redaction import Redactor
from ..runtime.process_setup import give_back_memory, import_numpy, prepare_process
from ..runtime.runtime import ProcessUsed, Runtime
from .environment import Surroundings, WorkFolder
from .log import WorkerLog, line_by_line, publish
from .messages import FrameBuffer, FrameEncoder, Ready, RunTask, Setup, TaskDone

_PR_SET_PDEATHSIG = 1
_USED = 75
"""The exit code when a task needs a new process: EX_TEMPFAIL of sysexits.h."""
_LITTLE = 512 << 20
"""Bytes of memory beside which that of NumPy matters."""
_REST_SECONDS = 1.0
"""Idle seconds after which a worker releases the memory that it kept for the next task."""


class Channel:
    """The worker's end of the socket, blocking."""

    def __init__(self, fd: int) -> None:
        os.set_inheritable(fd, False)
        self._fd = fd
        self._frames = FrameBuffer()
        self._encoder = FrameEncoder()
        self._poll = select.poll()  # not select(), which supports descriptors below 1024 only
        self._poll.register(fd, select.POLLIN)

    def is_silent(self, seconds: float) -> bool:
        """Whether `seconds` pass without a message."""
        return not self._poll.poll(seconds * 1000)

    def receive(self) -> bytes | None:
        """The next message; None when the driver has closed its end. The driver sends one message at a time."""
        while data := os.read(self._fd, 1 << 18):
            if bodies := self._frames.feed(data):
                return bodies[0]
        return None

    def send(self, *messages: Any) -> None:
        left = memoryview(self._encoder.encode(*messages))
        while left:
            left = left[os.write(self._fd, left) :]


class Worker:
    """Runs tasks one after the other and sends each report when it is ready."""

    def __init__(self, channel: Channel, log: WorkerLog, setup: Setup) -> None:
        self._channel = channel
        self._log = log
        self._secrets: dict[str, str] = {}
        self._runtime = Runtime(setup.host_root, setup.cache_bytes, lambda name: self._secrets[name], setup.room)
        self._kept_at_most = memory_limit.allocated_bytes() + setup.cache_bytes
        self._machine = memory_limit.host_memory()
        self._redactor = Redactor({})
        self._folder = WorkFolder(setup.folder)
        self._reported = self._expected = 0
        self._last: tuple[Report, ...] = ()
        """The last report of a task is sent with the end of the task, to save the driver a wake-up."""

    def serve(self) -> None:
        """Run tasks until the driver closes the socket."""
        decoder = msgspec.msgpack.Decoder(RunTask)
        gc.freeze()  # modules stay: collections, such as between two runs, skip them
        self._channel.send(Ready())
        while (body := self._channel.receive()) is not None:
            self._run(decoder.decode(body))
            self._channel.send(*self._last, TaskDone())
            if self._channel.is_silent(_REST_SECONDS):
                self._runtime.rest()

    def _run(self, message: RunTask) -> None:
        self._secrets, self._redactor = message.secrets, Redactor(message.secrets)
        self._reported, self._expected, self._last = 0, len(message.task.partitions), ()
        self._limit(message.memory)
        self._folder.enter()
        before = Surroundings()
        try:
            self._runtime.run(message.task, message.key, self._report)
        except ProcessUsed as error:
            sys.stderr.write(f"another process takes over, since this one has served another run: {error}\n")
            os._exit(_USED)
        except Exception as error:  # noqa: BLE001 (user errors are caught before: a defect or no memory)
            memory_limit.limit_allocation(0)
            self._send(self._defect(message.task, error))
        finally:
            memory_limit.limit_allocation(0)
            before.restore()

    def _limit(self, memory: int) -> None:
        """Limit the task's memory. Cached data of earlier tasks does not count against it, but their memory leaks
        do."""
        if 0 < memory < _LITTLE:
            import_numpy()  # a task that spills needs it
        if 0 < memory < self._machine:
            give_back_memory()  # memory that the allocator keeps would be granted twice
        memory_limit.limit_allocation(memory and min(memory_limit.allocated_bytes(), self._kept_at_most) + memory)

    def _report(self, report: Report) -> None:
        try:
            self._send(report)
        except MemoryError:
            memory_limit.limit_allocation(0)
            self._send(report)
        self._reported += 1
        self._folder.empty()

    def _send(self, report: Report) -> None:
        if log := self._log.cut():
            report = msgspec.structs.replace(report, log=publish(log, self._redactor))
        if self._reported + 1 < self._expected:
            self._channel.send(report)
        else:
            self._last = (report,)

    def _defect(self, task: Task, error: Exception) -> Failure:
        """The failure of the running partition when the runtime itself raised."""
        partition = task.partitions[min(self._reported, len(task.partitions) - 1)]
        memory = isinstance(error, MemoryError)
        return Failure(
            partition.index,
            partition.attempt,
            FailureClass.OUT_OF_MEMORY if memory else FailureClass.INTERNAL,
            how="exception in the task runtime",
            error=self._redactor.text(type_name(error)),
            message=message_of(error, self._redactor),
            traceback=self._redactor.text(full_traceback(error)),
        )


def _die_with(driver: int) -> None:
    """Make the kernel kill this process when its driver dies in any way."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != driver:  # it died before the line above
        os._exit(1)


def _volunteer_for_the_oom_killer() -> None:
    """If the host runs out of memory, the kernel should kill a worker, which is replaced, instead of the driver."""
    try:
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write("500")
    except OSError:
        return


def main(fd: int) -> None:
    """Serve the socket `fd`; end the whole process group when the driver is gone."""
    channel, log = Channel(fd), WorkerLog()
    body = channel.receive()
    if body is None:
        return
    setup = msgspec.msgpack.decode(body, type=Setup)
    _die_with(setup.driver)
    _volunteer_for_the_oom_killer()
    faulthandler.enable(log.fd)
    faulthandler.register(signal.SIGUSR1, log.fd, all_threads=True)
    line_by_line()
    prepare_process()
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        Worker(channel, log, setup).serve()
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    main(int(sys.argv[1]))
