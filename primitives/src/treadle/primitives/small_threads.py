"""Threads with small stacks, for worker processes: their memory limit (RLIMIT_DATA) counts all of a stack at once."""

from __future__ import annotations

import threading
from collections.abc import Callable

_STACK = 512 << 10
"""Bytes, instead of the usual 8 MiB. Python's own calls take no room there."""
_turn = threading.Lock()


def start_thread(work: Callable[..., object], *arguments: object, name: str) -> threading.Thread:
    """Start a daemon thread that calls `work(*arguments)`. Raises RuntimeError when there are too many threads.

    The size is a setting of the process. A thread that another library starts at this very moment may get it, too.
    """
    thread = threading.Thread(target=work, args=arguments, name=name, daemon=True)
    with _turn:
        usual = threading.stack_size(_STACK)
        try:
            thread.start()
        finally:
            threading.stack_size(usual)
    return thread
