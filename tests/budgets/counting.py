"""Counts calls and memory of a piece of work: a busy machine does not change them."""

from __future__ import annotations

import gc
import sys
import tracemalloc
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import treadle.primitives.blocks

SOURCES = (f"{Path(treadle.primitives.blocks.__file__).parents[4]}/",)
"""The folder of the workspace: code below it that is not a test is the project's."""
INLINED = ("<listcomp>", "<dictcomp>", "<setcomp>")
"""Frames of Python 3.11 that later versions do not have."""
KERNEL = {"posix", "socket", "mmap", "select", "fcntl", "io"}
"""Modules whose functions are counted as system calls, `io` for `open` alone."""
PURE = {"fspath", "urandom"}
Calls = Counter[tuple[str, str]]
"""(the function or system call, its caller) -> calls."""


class Counting:
    """As a context: counts the calls of this thread that the project's code makes or receives."""

    def __init__(self) -> None:
        self._python = Counter[tuple[CodeType, CodeType | None]]()
        self._native = Counter[tuple[str, str, CodeType]]()

    def __enter__(self) -> Counting:
        gc.collect()
        gc.disable()  # finalizers would be counted, wherever they run
        sys.setprofile(self._seen)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        gc.enable()

    def _seen(self, frame: FrameType, event: str, called: Any) -> None:
        if event == "call":
            self._python[frame.f_code, frame.f_back.f_code if frame.f_back else None] += 1
        elif event == "c_call":
            home = called.__module__ or type(called.__self__).__module__
            self._native[home, called.__name__, frame.f_code] += 1

    def calls(self) -> Calls:
        """The calls of functions, in Python and in C, by the project's code or of it."""
        found = Calls()
        for (code, caller), count in self._python.items():
            if code.co_name not in INLINED and (_ours(code) or (caller and _ours(caller))):
                found[_name(code), _name(caller)] += count
        for (home, name, caller), count in self._native.items():
            if _ours(caller):
                found[f"{home}.{name}", _name(caller)] += count
        return found

    def system(self) -> Calls:
        """The system calls of any code, as far as Python makes them."""
        found = Calls()
        for (home, name, caller), count in self._native.items():
            home = home.lstrip("_")
            if home in KERNEL and name not in PURE and not name.startswith("_") and (home != "io" or name == "open"):
                found[f"{home}.{name}", _name(caller)] += count
        return found


def heap(work: Callable[[], object]) -> int:
    """The most MiB of Python's heap, NumPy's included, that the work has at one time."""
    gc.collect()
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1] >> 20
    finally:
        tracemalloc.stop()


def _ours(code: CodeType) -> bool:
    return code.co_filename.startswith(SOURCES) and "/src/treadle/" in code.co_filename


def _name(code: CodeType | None) -> str:
    if code is None:
        return ""
    return f"{code.co_filename.rpartition('/src/')[2]} {code.co_qualname}"
