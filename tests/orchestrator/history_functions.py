"""User functions of the runs whose histories are kept or counted."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from treadle.executors import Result


def same(record: Any) -> Any:
    return record


def pair(record: int) -> tuple[int, int]:
    return record % 3, record


def add(a: int, b: int) -> int:
    return a + b


def total(values: Iterator[int]) -> Result:
    found = sum(values)
    return Result(found, metrics={"total": found})


def slowly(record: int, *, flag: str) -> int:
    """Waits until the flag is there."""
    while not Path(flag).exists():
        time.sleep(0.02)
    return record


def needs_flag(record: int, *, flag: str) -> int:
    if not Path(flag).exists():
        raise ValueError("there is no flag")
    return record
