"""User functions, and short notations for operations, shared by several tests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from executors.bench import call
from hypothesis import HealthCheck, settings

from treadle.executors.program import By, MapRecords
from treadle.primitives import functions

FIRST = By(first=True)
FIXTURES = settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)


def twice(record: Any) -> Iterator[Any]:
    yield record
    yield record


def divide(record: int) -> float:
    return 12 / record


def some_then_fail(record: int) -> Iterator[int]:
    yield record
    if record == 0:
        raise ValueError("zero")


def per_record(function: Any, stage: str = "a", *, flat: bool = False, **arguments: Any) -> MapRecords:
    return MapRecords(stage, call(function, **arguments), flat=flat)


def concat(left: Any, right: Any) -> Any:
    """Associative, and shows the order."""
    return left + right


def tens(record: int) -> int:
    return record // 10


def first_column(rows: np.ndarray[Any, Any]) -> Any:
    return rows[:, 0]


def by(function: Any) -> By:
    return By(function=name(function))


def name(function: Any) -> str:
    return functions.reference(function)


def identity(record: Any) -> Any:
    return record
