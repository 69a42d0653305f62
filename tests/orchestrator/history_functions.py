"""User functions of runs whose histories are recorded, and of runs that are interrupted and resumed."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from treadle.executors import Context, Result


def same(record: Any) -> Any:
    return record


def pair(record: int) -> tuple[int, int]:
    return record % 3, record


def add(a: int, b: int) -> int:
    return a + b


def total(values: Iterator[int]) -> Result:
    found = sum(values)
    return Result(found, metrics={"total": found})


def listed(values: Iterator[Any]) -> list[Any]:
    return list(values)


def slowly(record: int, *, flag: str) -> int:
    """Waits until the flag exists."""
    while not Path(flag).exists():
        time.sleep(0.02)
    return record


def needs_flag(record: int, *, flag: str) -> int:
    if not Path(flag).exists():
        raise ValueError("there is no flag")
    return record


def needs_flag_later(record: int, *, flag: str, context: Context) -> int:
    """Needs the flag from the second iteration on, except for the first partition."""
    if "[1]" not in context.stage and context.partition and not Path(flag).exists():
        raise ValueError("there is no flag")
    return record + 1


def slow_last(record: int, *, seconds: float) -> int:
    if record == 3:
        time.sleep(seconds)
    return record


def late_again(record: int, *, context: Context) -> int:
    """Record 3 is late the first time, and record 1 when it is recomputed."""
    late = {(3, 1): 45.0, (1, 2): 1.0}
    time.sleep(late.get((record, context.attempt), 0.0))
    return record


def late_by_file(record: int, *, flag: str) -> int:
    """Record 3 is late until the file exists, and then record 1."""
    if record == (1 if Path(flag).exists() else 3):
        time.sleep(45)
    return record


def more(record: int) -> int:
    return record + 1


def spread(record: int) -> list[int]:
    return [record] * 20


def measured(record: int, *, context: Context) -> Result:
    """Refuses odd records."""
    if record % 2:
        raise ValueError("odd")
    return Result(record, metrics={"seen": 1})


def refuses_small(record: int, *, below: int) -> int:
    if record < below:
        raise ValueError("too small")
    return record


def needs_flag_from(record: int, *, flag: str, first: int) -> int:
    if record >= first and not Path(flag).exists():
        raise ValueError("there is no flag")
    return record


def chatty(record: int) -> int:
    sys.stdout.write(f"{record}\n")
    return record


def takes(record: int, *, seconds: float) -> int:
    time.sleep(seconds)
    return record


def needs_file_from(record: int, *, flag: str, first: int) -> int:
    """Waits until the flag exists, and leaves a mark next to it in the meantime."""
    while record >= first and not Path(flag).exists():
        Path(f"{flag}.{record}").touch()
        time.sleep(0.02)
    return record
