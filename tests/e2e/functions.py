"""Functions that a user may write, mischievous ones included. Copied into each project's folder."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

from treadle.executors import Context


class SchemaError(ValueError):
    """Final by nonRetryableErrorTypes."""


def note(log: str, what: str, context: Context) -> None:
    """Write one atomic line: event, stage, partition, attempt, seconds since boot, process."""
    line = f"{what} {context.stage} {context.partition} {context.attempt} {time.monotonic():.6f} {os.getpid()}\n"
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(descriptor, line.encode())
    os.close(descriptor)


def slow(x: Any, log: str, seconds: float, context: Context) -> Any:
    note(log, "start", context)
    time.sleep(seconds)
    note(log, "end", context)
    return x


def gated(x: int, log: str, free: int, context: Context) -> int:
    """Waits for the file `LOG.gate`, except in the first `free` partitions."""
    note(log, "start", context)
    while context.partition >= free and not os.path.exists(f"{log}.gate"):
        time.sleep(0.02)
    note(log, "end", context)
    return x


def paced(x: int, log: str, context: Context) -> int:
    """Is slow until the file `LOG.fast` exists."""
    note(log, "start", context)
    if not os.path.exists(f"{log}.fast"):
        time.sleep(0.1)
    note(log, "end", context)
    return x


def double(x: Any) -> Any:
    return x + x


def add(a: Any, b: Any) -> Any:
    return a + b


def pair(x: int) -> tuple[int, int]:
    return x % 7, x


def fails_until(x: int, log: str, attempt: int, context: Context) -> int:
    """Raises before the given attempt."""
    note(log, "start", context)
    if context.attempt < attempt:
        raise RuntimeError(f"attempt {context.attempt} of {x}")
    return x


def refuses(x: int, of: int) -> int:
    """Raises for every multiple."""
    if x % of == 0:
        raise SchemaError(f"{x} is refused")
    return x


def ends(x: int, how: str, log: str, context: Context) -> int:
    """Ends its process in the first attempt of record 3."""
    note(log, "start", context)
    if x != 3 or context.attempt > 1:
        return x
    if how == "exit":
        os._exit(7)
    if how == "sys.exit":
        sys.exit(3)
    if how == "segfault":
        import ctypes

        ctypes.string_at(0)
    os.kill(os.getpid(), signal.SIGKILL)
    return x


def spins(x: int) -> int:
    while x == 3:
        pass
    return x


def allocates(x: int, mebibytes: int) -> int:
    import numpy as np

    return int(np.ones(mebibytes * 2**20, dtype=np.uint8)[:: 2**12].sum()) + x


def chatters(x: int) -> int:
    sys.stdout.write("x" * 100_000 + "\n")
    sys.stderr.write("ö" * 50 + "\n")
    os.write(1, b"straight to the descriptor\n")
    return x


def forks(x: int) -> int:
    """Leaves a child process behind, which must neither outlive the environment nor delay anything."""
    subprocess.Popen(["sleep", "300"])
    out = subprocess.run(["sh", "-c", f"echo {x}; cat"], capture_output=True, text=True, check=True).stdout
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    return int(out)


def reads_stdin(x: int) -> str:
    return sys.stdin.read()


def moves(x: int) -> int:
    os.chdir("/")
    os.environ["TZ"] = "Asia/Tokyo"
    import json

    json.dumps = lambda *a, **k: "patched"
    return x


def tells(x: int, secret: str) -> int:
    sys.stdout.write(f"the password is {secret}\n")
    raise RuntimeError(f"cannot log in with {secret}")


def block(part: Any, log: str, context: Context) -> Any:
    """An array too large to travel inside a reference."""
    import numpy as np

    note(log, "start", context)
    return np.full(100_000, next(iter(part)))


def total_once(part: Any, gate: str) -> int:
    """Fails until the file exists."""
    if not os.path.exists(gate):
        raise RuntimeError("not yet")
    return int(part.sum())


def longer(part: Any, log: str, context: Context) -> Any:
    note(log, "start", context)
    return part + 1


def words(line: str) -> Iterator[tuple[str, int]]:
    for word in line.split():
        yield word, 1


def summed(numbers: Iterator[int]) -> int:
    """A member of a gang: the sum of the numbers of all members."""
    from treadle.primitives.channels import ReduceChannel

    with ReduceChannel("sum", lambda a, b: a + b) as channel:
        return int(channel.all_reduce(sum(numbers)))


def counted(x: int, log: str, free: int, context: Context) -> int:
    """Counts in two objects, before and after it waits."""
    context.objects.hits.increment()
    context.objects.seen.append(x)
    gated(x, log, free, context)
    context.objects.hits.increment()
    return x


def share(x: int, context: Context) -> float:
    context.objects.hits.decrement()
    return x / int(context.objects.hits.get())


def seen(_: int, context: Context) -> Any:
    return context.objects.hits.get()
