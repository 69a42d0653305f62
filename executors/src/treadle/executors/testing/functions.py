"""User functions of the conformance suite, importable everywhere that treadle is installed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..context import Context

HERE = __name__


def same(record: Any) -> Any:
    """Return the record."""
    return record


def scripted(records: Iterator[Any], *, script: Any, context: Context) -> Iterator[Any]:
    """Play the script, then yield the partition's records."""
    import msgspec

    from .script import Script

    msgspec.convert(script, Script).play(context.partition)
    yield from records


def large(record: int) -> bytes:
    """Return as many bytes as the record states."""
    return bytes(range(256)) * (record // 256)


def environment(_: Any) -> dict[str, str]:
    """The environment of user code."""
    return dict(os.environ)


def process(_: Any) -> dict[str, Any]:
    """The process that runs user code."""
    return {"pid": os.getpid(), "hash": hash("treadle"), "folder": os.getcwd(), "parent": os.getppid()}


def descriptors(_: Any) -> int:
    """The number of open files of the process."""
    return len(os.listdir("/proc/self/fd"))


def patient(steps: int, *, context: Context) -> list[int]:
    """Take a tenth of a second for each step, continuing at the checkpoint of an earlier attempt. Returns the first
    step and the end."""
    import time

    begun = int(context.checkpoint.load() or b"0")
    for step in range(begun, steps):
        time.sleep(0.1)
        context.checkpoint.save(str(step + 1).encode())
    return [begun, steps]


def tell(record: Any, *, secret: str) -> str:
    """Print a secret, then raise it or exit if the record says so; otherwise return its length."""
    import sys

    sys.stdout.write(f"the secret is {secret}\n")
    if record == "raise":
        raise ValueError(f"wrong secret {secret}")
    if record == "exit":
        os._exit(1)
    return str(len(secret))
