"""Starts a process on this machine.

The fork server of the standard library starts each process, as a copy of a process that has only imported this package
and the libraries of the program. The process inherits no memory: all that it gets is in one pickle, and the descriptors
of the connections in it.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import sys
import types
from collections.abc import Callable
from multiprocessing import (
    context,
    forkserver,
    popen_forkserver,
    process,
    resource_tracker,
    spawn,
    util,
)
from typing import Any

from treadle.primitives import run_keys

from . import consistency
from .by_value import dumps_with_definitions, forget_digests, loads_with_definitions
from .installation import install, is_installed
from .places import inherited

_server: Any = forkserver._forkserver
_LIBRARIES = "libraries"
_DEFINITIONS = types.ModuleType, type, types.FunctionType, types.BuiltinFunctionType


class Popen(popen_forkserver.Popen):
    """Starts a process and watches it."""

    method = "treadle"
    _fds: list[int]

    @classmethod
    def started(cls, settings: dict[str, Any], arrival: tuple[Any, ...]) -> Popen:
        """Start a process that another machine has prepared."""
        found = cls.__new__(cls)
        found.returncode, found._fds = None, []
        found._start(settings, arrival)
        return found

    def poll(self, flag: int = os.WNOHANG) -> int | None:
        """Return the exit code; None while the process runs."""
        before, status = self.returncode, super().poll(flag)
        if status != before:
            consistency.refresh()
        return status

    def _launch(self, process_obj: Any) -> None:
        self.journeys: list[Callable[[], None]] = []
        forget_digests()
        consistency.publish()
        process_obj._config.update(inherited())
        settings = spawn.get_preparation_data(process_obj._name)
        for name in ("init_main_from_name", "init_main_from_path"):
            settings.pop(name, None)  # the program's file does not run again
        settings[_LIBRARIES] = _libraries()
        context.set_spawning_popen(self)
        try:
            content, file = dumps_with_definitions(process_obj), vars(sys.modules["__main__"]).get("__file__")
            self._start(settings, (dict(os.environ), inherited(), file, is_installed(), *content))
        finally:
            context.set_spawning_popen(None)

    def _start(self, settings: dict[str, Any], arrival: tuple[Any, ...]) -> None:
        _preload(settings.pop(_LIBRARIES))
        self.pid, self.sentinel, writer = _ask(self._fds)
        alive = os.dup(writer)  # its end tells the process that its parent has ended
        self.finalizer = util.Finalize(self, util.close_fds, (alive, self.sentinel))  # type: ignore[attr-defined]
        with open(writer, "wb") as file:
            file.write(pickle.dumps(settings) + pickle.dumps(_Arrival(run_keys.held(), *arrival)))


def _libraries() -> list[str]:
    """The modules whose definitions are globals of the program, without the modules of its folder."""
    values = [value for value in vars(sys.modules["__main__"]).values() if isinstance(value, _DEFINITIONS)]
    names = {value.__name__ if isinstance(value, types.ModuleType) else value.__module__ for value in values}
    files = {name: getattr(sys.modules.get(name), "__file__", None) or "" for name in names}
    folder = os.path.abspath(sys.path[0])
    own = {name for name, file in files.items() if file.startswith(os.path.join(folder, name.partition(".")[0]))}
    return sorted(name for name, file in files.items() if file and name not in own)


def _preload(libraries: list[str]) -> None:
    """Let the fork server import the libraries when it starts, as far as they are on this machine."""
    own = [f"{__package__}.fork_server", *([f"{__package__}.installed"] if is_installed() else [])]
    forkserver.set_forkserver_preload(list(dict.fromkeys([*own, *_server._preload_modules, *libraries])))


def _ask(descriptors: list[int]) -> tuple[int, int, int]:
    """Ask the fork server of the program for a process; returns its id, and the descriptors of its status and input.

    It has no input yet, so that one that is asked for twice ends.
    """
    try:
        return _asked(descriptors)
    except (OSError, EOFError):  # it has ended, or a worker has cleared its temporary folder, with the socket
        vars(_server).pop("ensure_running", None)  # see `_arrived`
        with contextlib.suppress(FileNotFoundError):
            _server._stop()
        if not os.path.isdir(util.get_temp_dir()):
            process.current_process()._config.pop("tempdir")  # type: ignore[attr-defined]
        return _asked(descriptors)


def _asked(descriptors: list[int]) -> tuple[int, int, int]:
    sentinel, writer = forkserver.connect_to_new_process(descriptors)
    try:
        return forkserver.read_signed(sentinel), sentinel, writer
    except EOFError:
        util.close_fds(sentinel, writer)  # type: ignore[attr-defined]
        raise


class _Arrival:
    """Unpickled by the process as its process object."""

    def __init__(self, *state: Any) -> None:
        self._state = state

    def __reduce__(self) -> Any:
        return _arrived, self._state


def _arrived(
    keys: dict[str, bytes],
    environment: dict[str, str],
    config: dict[str, Any],
    file: str | None,
    installed: bool,
    *content: Any,
) -> process.BaseProcess:
    for run, key in keys.items():
        run_keys.hold(run, key)
    _server.ensure_running = resource_tracker.ensure_running  # it runs: CPython would start one for each process
    if environment:  # of this machine
        os.environ.clear()
        os.environ.update(environment)
    process.current_process()._config.update(config)  # type: ignore[attr-defined]
    main = types.ModuleType("__main__")
    if file is not None:
        main.__file__ = file
    sys.modules["__main__"] = sys.modules["__mp_main__"] = main
    if installed:
        install()
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()  # the fork server has one state for all
    found: process.BaseProcess = loads_with_definitions(*content)
    return found
