"""The process of the standard library, below which is an own `Popen`."""

from __future__ import annotations

from multiprocessing import connection, process
from typing import Any

from .places import workers
from .popen import Popen
from .remote import RemotePopen

_REPORT_SECONDS = 0.2


class Process(process.BaseProcess):
    """A process. Its target and arguments are pickled, with definitions of `__main__` by value."""

    _start_method = None

    @staticmethod
    def _Popen(process_obj: process.BaseProcess) -> Popen:
        serves_here = getattr(getattr(process_obj, "_target", None), "__name__", "") == "_run_server"  # a manager's
        return Popen(process_obj) if serves_here or workers() is None else RemotePopen(process_obj)

    @staticmethod
    def _after_fork() -> None:
        """The process shares nothing with its parent: nothing has to be repaired."""


def killed() -> list[Any]:
    """Return the child processes that a signal has ended and that are not joined."""
    found: list[Any] = list(process._children)  # type: ignore[attr-defined]
    # The fork server may still have to report it.
    connection.wait([one.sentinel for one in found], _REPORT_SECONDS if found else 0)
    return [one for one in found if (one.exitcode or 0) < 0]
