"""The context of treadle: its own classes where the standard ones need a fork, inherited descriptors or the kernel."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from multiprocessing import context, forkserver, sharedctypes
from typing import Any

from . import buffers, connections, pool, processes, queues, synchronize
from .installation import FUNCTIONS, LOCKS
from .places import spans_machines

METHODS = ["spawn", "fork", "forkserver"]


_standard = {name: getattr(sharedctypes, name) for name in FUNCTIONS}
"""`install` replaces the names."""


def _memory(name: str) -> Any:
    """A function of the context: memory of this machine, or of several."""

    def make(self: Any, *arguments: Any, **settings: Any) -> Any:
        if not name.startswith("Raw"):
            settings.setdefault("ctx", self)
        return (buffers.functions if spans_machines() else _standard)[name](*arguments, **settings)

    return make


class TreadleContext(context.BaseContext):
    """All start methods are one: processes start without memory or descriptors of their parent."""

    Process = processes.Process
    JoinableQueue: Any = queues.JoinableQueue
    Pipe: Any = staticmethod(connections.pipe)
    Queue: Any = queues.Queue
    SimpleQueue: Any = queues.SimpleQueue

    def __init__(self, method: str) -> None:
        self._name = method

    RawValue, RawArray, Value, Array = map(_memory, FUNCTIONS)

    def Manager(self) -> Any:
        """Return a manager. Its server runs, in a process of this context."""
        manager = connections.SyncManager(ctx=self)
        manager.start()
        return manager

    def Pool(
        self,
        processes: int | None = None,
        initializer: Callable[..., object] | None = None,
        initargs: Iterable[Any] = (),
        maxtasksperchild: int | None = None,
        *,
        treadle_retries: int = 0,
    ) -> Any:
        """Return a pool of processes. `treadle_retries`: how often a task runs again when its worker died."""
        return pool.Pool(processes, initializer, initargs, maxtasksperchild, self, treadle_retries)

    def set_forkserver_preload(self, module_names: list[str]) -> None:
        """Let the fork server import these modules, so that processes need not. It never runs the program's file."""
        names = [name for name in module_names if name != "__main__"]
        forkserver.set_forkserver_preload(["treadle.multiprocessing", *names])

    def get_context(self, method: str | None = None) -> Any:
        """Return the context of a start method. Raises ValueError for an unknown one."""
        if method is None:
            return self
        if method not in METHODS:
            raise ValueError(f"cannot find context for {method!r}")
        return contexts[method]


for _name in LOCKS:
    setattr(TreadleContext, _name, getattr(synchronize, _name))


class DefaultContext(TreadleContext):
    """The context of the functions of the package, whose start method can be set once."""

    def __init__(self) -> None:
        super().__init__(METHODS[0])
        self._is_set = False

    def set_start_method(self, method: str | None, force: bool = False) -> None:
        """Set the name that `get_start_method` returns; None with `force`: it may be set again."""
        if self._is_set and not force:
            raise RuntimeError("context has already been set")
        self._name = METHODS[0] if method is None and force else self.get_context(method)._name
        self._is_set = method is not None

    def get_start_method(self, allow_none: bool = False) -> Any:
        """Return the name of the start method; None when it is not set, if that is allowed."""
        if allow_none and not self._is_set:
            return None
        self._is_set = True
        return self._name

    def get_all_start_methods(self) -> list[str]:
        """Return the names of the start methods, the default first."""
        return METHODS


contexts = {method: TreadleContext(method) for method in METHODS}
default = DefaultContext()
default.set_forkserver_preload([])
