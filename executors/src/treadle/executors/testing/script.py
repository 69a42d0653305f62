"""Faults as data: the actions of a user function at its first, second, ... execution of a partition.

The idea is cubed's `deterministic_failure`. Executions are counted by files created exclusively in a folder. The counts
are therefore right across processes, crashes and executors that share only the folder.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct


class Step(Struct, frozen=True, array_like=True):
    """One action; see ACTIONS."""

    action: str
    value: Any = None


class Script(Struct, frozen=True):
    """The actions for each partition and execution; none after the steps are used up. Sent as JSON."""

    folder: str
    """The folder that counts executions; private to one test."""
    steps: dict[str, list[list[Step]]] = {}
    """Partition -> steps of its first execution, of its second, ...; `"*"`: for every other partition."""

    @staticmethod
    def of(folder: str | os.PathLike[str], steps: dict[int | str, list[list[tuple[Any, ...]]]]) -> Script:
        """A script from plain values: `{3: [[("raise", "once")], []]}`."""
        return msgspec.convert({"folder": os.fspath(folder), "steps": {str(k): v for k, v in steps.items()}}, Script)

    def as_value(self) -> Any:
        """The script as a JSON value for a function argument."""
        return msgspec.to_builtins(self)

    def play(self, partition: int) -> None:
        """Perform the next steps for the partition."""
        time_ = self._count_one(partition)
        times = self.steps.get(str(partition), self.steps.get("*", []))
        for step in times[time_ - 1] if time_ <= len(times) else []:
            ACTIONS[step.action](step.value)

    def times(self, partition: int) -> int:
        """The number of executions of the partition started so far, in all processes."""
        return sum(1 for _ in Path(self.folder).glob(f"{partition}.*"))

    def _count_one(self, partition: int) -> int:
        time_ = 1
        while True:
            try:
                os.close(os.open(Path(self.folder) / f"{partition}.{time_}", os.O_CREAT | os.O_EXCL, 0o600))
            except FileExistsError:
                time_ += 1
            else:
                return time_


class ScriptedError(Exception):
    """The exception that `raise` raises."""


def _raise(message: str) -> None:
    raise ScriptedError(message)


def _signal(number: int) -> None:
    os.kill(os.getpid(), number)
    time.sleep(10)


def _segfault(_: None) -> None:
    import ctypes

    ctypes.string_at(0)


def _loop(_: None) -> None:
    while True:
        pass


def _stuck_in_c(_: None) -> None:
    """Block the interpreter for very long: no Python signal handler and no other thread can run."""
    import re

    re.match("(a+)+$", "a" * 60 + "b")


def _allocate(size: int) -> None:
    kept = bytearray(size)
    kept[::4096] = b"x" * len(kept[::4096])


def _print(text: str) -> None:
    sys.stdout.write(text + "\n")


def _print_from_c(text: str) -> None:
    import ctypes

    ctypes.CDLL(None).puts(text.encode())


def _print_from_subprocess(text: str) -> None:
    subprocess.run(["echo", text], check=True)


def _write_raw(text: str) -> None:
    """Write to every descriptor that may be the function's output."""
    for fd in (1, 2):
        os.write(fd, text.encode() + b"\n")


_left: list[int] = []


def _leave_running(seconds: float) -> None:
    _left.append(subprocess.Popen(["sleep", str(seconds)]).pid)


def _note_processes(file: str) -> None:
    """Write the ids of this process and of the processes it left running."""
    Path(file).write_text(" ".join(map(str, [os.getpid(), *_left])))


def _fork(seconds: float) -> None:
    """Leave a copy of the process running, with all its descriptors."""
    if os.fork() == 0:
        time.sleep(seconds)
        os._exit(0)


def _meet(files: list[str]) -> None:
    """Create the first file and wait until another process creates the second."""
    Path(files[0]).touch()
    for _ in range(2000):
        if Path(files[1]).exists():
            return
        time.sleep(0.01)
    raise ScriptedError(f"nobody made {files[1]}")


def _read_stdin(_: None) -> None:
    if text := sys.stdin.read():
        raise ScriptedError(f"stdin gave {text!r}")


ACTIONS: dict[str, Callable[[Any], None]] = {
    "raise": _raise,
    "system exit": sys.exit,
    "exit": os._exit,
    "signal": _signal,
    "segfault": _segfault,
    "kill": lambda _: _signal(signal.SIGKILL),
    "stop": lambda _: _signal(signal.SIGSTOP),
    "sleep": time.sleep,
    "loop": _loop,
    "stuck in C": _stuck_in_c,
    "allocate": _allocate,
    "print": _print,
    "print from C": _print_from_c,
    "print from a subprocess": _print_from_subprocess,
    "write raw": _write_raw,
    "leave running": _leave_running,
    "note processes": _note_processes,
    "fork": _fork,
    "meet": _meet,
    "read stdin": _read_stdin,
}
"""The actions of a step by name; each takes the step's value."""
