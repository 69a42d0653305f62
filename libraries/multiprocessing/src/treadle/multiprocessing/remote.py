"""Starts a process at a worker of the program's session: a function, or another machine of a cluster.

A process is one call of the session. The call starts an ordinary process beside it and waits for its end. So memory,
exit codes and signals are as usual. What the process shares with others lives at the session's keepers.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from multiprocessing import forkserver, util
from typing import Any

from treadle.primitives.errors import TreadleError, UsageError
from treadle.primitives.objects import Handle

from .places import new, workers
from .popen import Popen
from .state import RemoteProcess

_numbers = itertools.count((1 << 22) + 1)
"""Above all ids of processes of this machine: `os.kill` finds none."""
_OF_MACHINE = "sys_path", "dir", "orig_dir", "authkey"
"""Settings that mean nothing elsewhere, or must not be stored."""


class RemotePopen(Popen):
    """Starts a process at a worker and watches it."""

    def _launch(self, process_obj: Any) -> None:
        from treadle.client.project_modules import take_by_value  # not at workers

        if getattr(process_obj._target, "__name__", "") == "_process_worker" and process_obj._args[-1] is not None:
            text = (
                "max_tasks_per_child of ProcessPoolExecutor needs the ids of its processes, which workers do not have"
            )
            raise UsageError(text, "Use multiprocessing.Pool(maxtasksperchild=...).")
        take_by_value()  # their modules are not at the worker
        super()._launch(process_obj)

    def duplicate_for_child(self, fd: int) -> int:  # noqa: ARG002
        text = "a descriptor or memory of this machine cannot be sent to a process at a worker"
        raise UsageError(text, "Make pipes, values and arrays with the functions of multiprocessing.")

    def _start(self, settings: dict[str, Any], arrival: tuple[Any, ...]) -> None:
        session = workers()
        assert session is not None
        for name in _OF_MACHINE:
            settings.pop(name, None)
        self.pid, self._remote = next(_numbers), new(RemoteProcess)
        self.sentinel, writer = os.pipe()
        self.finalizer = util.Finalize(self, os.close, (self.sentinel,))
        call = session.submit(_run, settings, ({}, *arrival[1:]), self._remote)
        call.add_done_callback(partial(_report, writer, settings["name"], self.journeys))

    def _send_signal(self, sig: int) -> None:
        if self.returncode is None:
            with contextlib.suppress(TreadleError):  # the keepers have ended, and the process with them
                self._remote.send(sig)


def _report(writer: int, name: str, journeys: list[Callable[[], None]], call: Future[int]) -> None:
    """Write the exit code to the sentinel, after an end of the journeys of ends of pipes to the process."""
    try:
        status = call.result()
    except Exception as error:  # noqa: BLE001  the worker was lost, or the call refused
        sys.stderr.write(f"{name}: {error}\n")
        status = -signal.SIGKILL
    with contextlib.suppress(TreadleError):  # the keepers have ended
        for arrive in journeys:
            arrive()
    with contextlib.suppress(OSError), open(writer, "wb") as file:  # the sentinel may be closed
        forkserver.write_signed(file.fileno(), status)


def _run(settings: dict[str, Any], arrival: tuple[Any, ...], remote: Handle[RemoteProcess]) -> int:
    """At the worker: run the process; returns its exit code. A second attempt of the call runs nothing."""
    if refusal := int(remote.begin()):
        return -refusal
    settings["dir"] = os.getcwd()  # the folder of this call: an earlier one may have started the fork server
    process: Any = Popen.started(settings, arrival)
    threading.Thread(target=_signal, args=(process, remote), daemon=True).start()
    status: int = process.wait()
    remote.send(0)
    process.close()
    return status


def _signal(process: Any, remote: Handle[RemoteProcess]) -> None:
    try:
        while sig := remote.take():
            process._send_signal(sig)
    except TreadleError:  # the program has ended
        process._send_signal(signal.SIGKILL)
