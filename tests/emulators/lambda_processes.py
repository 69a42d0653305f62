"""Trees of processes: what a sandbox consists of."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
from pathlib import Path

_PAGE = resource.getpagesize()


def tree(root: int) -> list[int]:
    """The process and its descendants, parents first."""
    found, ahead = [], [root]
    while ahead:
        found.append(pid := ahead.pop())
        with contextlib.suppress(OSError):
            ahead += map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
    return found


def signal_tree(root: int, number: signal.Signals) -> None:
    for pid in tree(root):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def resident(pids: list[int]) -> dict[int, int]:
    """Bytes each has in memory."""
    found = {}
    for pid in pids:
        with contextlib.suppress(OSError, IndexError):
            found[pid] = int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE
    return found
