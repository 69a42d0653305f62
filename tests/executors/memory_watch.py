"""The memory of a process, measured from outside."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable
from pathlib import Path

_MAPPING = re.compile(rb"^[0-9a-f]+-[0-9a-f]+ \S+ \S+ \S+ \S+ *(.*)$")


def pss(pid: int, without: Iterable[str]) -> int:
    """Proportional set size in bytes (proc(5), smaps), without mappings of files below these folders."""
    total, counts = 0, True
    for line in Path(f"/proc/{pid}/smaps").read_bytes().splitlines():
        if found := _MAPPING.match(line):
            counts = not found[1].startswith(tuple(folder.encode() for folder in without))
        elif counts and line.startswith(b"Pss:"):
            total += int(line.split()[1]) * 1024
    return total


class Watch:
    """Samples `pss` of a process in a thread within a context. `peak`: the maximum."""

    def __init__(self, pid: int, without: Iterable[str], interval: float = 0.05) -> None:
        self.peak = 0
        self._pid, self._without, self._interval = pid, tuple(without), interval
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._sample, name="memory watch", daemon=True)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _sample(self) -> None:
        while not self._over.is_set():
            try:
                self.peak = max(self.peak, pss(self._pid, self._without))
            except (FileNotFoundError, ProcessLookupError):
                return
            self._over.wait(self._interval)
