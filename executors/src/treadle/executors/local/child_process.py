"""A child process of the driver with its own session and log: started, killed with all its descendants, reaped.

All methods run on the driver's event loop, in the thread that started the process, because the kernel ties a worker's
life to the thread that started it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from treadle.primitives.errors import UsageError

from .. import memory_limit
from ..worker.log import bound, open_log, read_tail
from .orphan_guard import Guard, remove_temporary

_LOOK = 1.0
"""Seconds between two checks of the log's length."""


class Death(Struct, frozen=True):
    """How a child process ended."""

    code: int
    """Exit code; negative: the signal."""
    killed: str
    """The reason why the driver killed it; empty: the driver did not."""
    log: bytes
    """The last part of its log, since the last cut."""
    peak_memory: int
    """Peak resident bytes; 0: unknown."""
    oom_kills: int
    """Processes that the kernel killed for lack of memory while this one lived."""


def _nothing() -> None:
    """Default of `at_exit`."""


@contextlib.contextmanager
def starting() -> Iterator[None]:
    """Convert an OSError from starting a process to a UsageError."""
    try:
        yield
    except OSError as error:
        hint = "Use fewer slots, or raise the limits of processes and open files (ulimit -u, ulimit -n)."
        raise UsageError(f"a worker process cannot be started: {error}", hint) from error


class ChildProcess:
    """One running child, whose output goes to its log."""

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        guard: Guard,
        *,
        pass_fds: Sequence[int] = (),
        folder: str | None = None,
        at_exit: Callable[[], None] = _nothing,
    ) -> None:
        """`folder`: the process's own working directory, which the guard removes if the driver dies. `at_exit` is
        called after the process has ended and before `death` is set."""
        guard.start()
        self._loop = asyncio.get_running_loop()
        self.death: asyncio.Future[Death] = self._loop.create_future()
        self._at_exit = at_exit
        self._guard = guard
        self._killed = ""
        self._oom_kills = memory_limit.oom_kills()
        self._log = open_log()
        self._temporary = environment.get("TMPDIR") or tempfile.gettempdir()
        try:
            self._process: subprocess.Popen[Any] = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                env=dict(environment),
                pass_fds=pass_fds,
                cwd=folder,
                start_new_session=True,
            )
            self._exit = self._open_exit()
        except BaseException:
            os.close(self._log)
            raise
        guard.watch(self.pid, folder or "", self._temporary)
        self._loop.add_reader(self._exit, self._exited)
        self._look = self._loop.call_later(_LOOK, self._bound_log)

    def _open_exit(self) -> int:
        """A descriptor that becomes readable when the process has ended."""
        try:
            return os.pidfd_open(self.pid)
        except OSError:
            self._process.kill()
            self._process.wait()
            raise

    @property
    def pid(self) -> int:
        """Also the id of its process group, which contains processes started by user code."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        return not self.death.done() and not self._killed

    def signal(self, number: signal.Signals) -> None:
        if not self.death.done():
            os.kill(self.pid, number)

    def read_log(self) -> bytes:
        """The last part of its output since the last cut."""
        return b"" if self.death.done() else read_tail(self._log)

    def _bound_log(self) -> None:
        bound(self._log)
        self._look = self._loop.call_later(_LOOK, self._bound_log)

    def kill(self, why: str) -> None:
        """Kill the process and its group at once; its Death follows."""
        if self.alive:
            self._killed = why
            self._kill_group()

    async def end(self, why: str) -> None:
        """Kill the process, and return when it is gone."""
        self.kill(why)
        await asyncio.shield(self.death)

    def _kill_group(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)

    def _exited(self) -> None:
        """Reap the process. Kill its group first: until then the zombie prevents reuse of the id."""
        self._kill_group()
        self._look.cancel()
        self._guard.forget(self.pid)
        _, status, usage = os.wait4(self.pid, 0)
        self._process.returncode = os.waitstatus_to_exitcode(status)
        self._loop.remove_reader(self._exit)
        self._at_exit()
        death = Death(
            code=self._process.returncode,
            killed=self._killed,
            log=read_tail(self._log),
            peak_memory=_peak(usage.ru_maxrss),
            oom_kills=memory_limit.oom_kills() - self._oom_kills,
        )
        os.close(self._exit)
        os.close(self._log)
        self.death.set_result(death)
        threading.Thread(target=remove_temporary, args=(self.pid, self._temporary), name="remove temporary").start()


def _peak(kibibytes: int) -> int:
    """Bytes. A child inherits the peak of its driver (execve keeps it), so a value up to that peak is meaningless."""
    inherited = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return kibibytes * 1024 if kibibytes > inherited else 0
