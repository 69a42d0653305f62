"""User functions of the conformance suite: importable wherever treadle is installed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..context import Context

HERE = __name__


def same(record: Any) -> Any:
    """The record."""
    return record


def scripted(records: Iterator[Any], *, script: Any, context: Context) -> Iterator[Any]:
    """The partition's records, after what the script says."""
    import msgspec

    from .script import Script

    msgspec.convert(script, Script).play(context.partition)
    yield from records


def large(record: int) -> bytes:
    """As many bytes as the record says."""
    return bytes(range(256)) * (record // 256)


def environment(_: Any) -> dict[str, str]:
    """What user code finds in the environment."""
    return dict(os.environ)


def process(_: Any) -> dict[str, Any]:
    """Where user code runs."""
    return {"pid": os.getpid(), "hash": hash("treadle"), "folder": os.getcwd(), "parent": os.getppid()}


def descriptors(_: Any) -> int:
    """How many open files the process has."""
    return len(os.listdir("/proc/self/fd"))


def patient(steps: int, *, context: Context) -> list[int]:
    """Takes a tenth of a second for each step, and goes on where an earlier attempt was: the steps it did itself."""
    import time

    begun = int(context.checkpoint.load() or b"0")
    for step in range(begun, steps):
        time.sleep(0.1)
        context.checkpoint.save(str(step + 1).encode())
    return [begun, steps]


def tell(record: Any, *, secret: str) -> str:
    """Prints a secret, raises it when the record says so, returns its length otherwise."""
    import sys

    sys.stdout.write(f"the secret is {secret}\n")
    if record == "raise":
        raise ValueError(f"wrong secret {secret}")
    if record == "exit":
        os._exit(1)
    return str(len(secret))
