"""User functions of the workflows in test_cli_runs.py, copied next to them like a user's module."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from treadle.executors import Context, Result


def noted(value: Any, log: str, context: Context) -> Any:
    """Returns the record unchanged, and writes a line to `log` for each attempt at a partition."""
    with open(log, "a", encoding="utf-8") as file:
        file.write(f"{context.stage} {context.partition}\n")
    return value


def fails_while(value: Any, flag: str) -> Any:
    """Fails for records above 1 as long as the file `flag` exists."""
    if Path(flag).exists() and value > 1:
        raise RuntimeError("the warehouse is closed")
    return value


def slow(value: Any, log: str, context: Context) -> Any:
    print(f"record {value}")  # noqa: T201
    time.sleep(0.3)
    return noted(value, log, context)


def waits(value: Any, flag: str) -> Any:
    while Path(flag).exists():
        time.sleep(0.02)
    return value


def pair(value: Any) -> tuple[Any, int]:
    return value, 1


def bad_key(value: Any) -> tuple[Any, int]:
    return {"key": value}, 1


def unpicklable(value: Any) -> Any:
    return lambda: value


def large(value: Any) -> bytes:
    return bytes([value]) * 100_000


def everything(values: Iterator[Any]) -> list[Any]:
    return list(values)


def wordy(values: Iterator[Any]) -> Result:
    return Result(len(list(values)), metrics={"text": "x" * 20_000})


def total(values: Iterator[Any]) -> Result:
    found = sum(values)
    return Result(found, metrics={"total": found})


def add(a: Any, b: Any) -> Any:
    return a + b


def line(value: Any) -> str:
    return f"{value}:{'x' * 1000}"


def stretched(value: bytes) -> str:
    return "x" * (5 * len(value))


def measured(value: bytes, flag: str) -> tuple[int, int]:
    if Path(flag).exists():
        raise RuntimeError("not yet")
    return len(value), value[0]


def read(value: Any, file: str) -> int:
    return int(Path(file).read_text()) + int(value)
