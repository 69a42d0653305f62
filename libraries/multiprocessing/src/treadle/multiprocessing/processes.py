"""The process of the standard library, below which is an own `Popen`."""

from __future__ import annotations

from multiprocessing import process

from .places import workers
from .popen import Popen
from .remote import RemotePopen


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
