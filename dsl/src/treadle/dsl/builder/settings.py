"""Which settings stages and functions may be given, for checkers and editors; the model judges their values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal, TypedDict

from .formats import Files
from .handles import Condition, StageHandle, Value


class _Shared(TypedDict, total=False):
    retry: Mapping[str, Any]
    timeout: str
    deadline: str
    memory: str | Mapping[str, str]
    executor: str
    exchange: Literal["auto", "storage", "direct"]
    durability: Literal["task", "segment"]
    backups: bool
    cache: bool | Mapping[str, Any]


class StageSettings(_Shared, total=False):
    """What every stage that works may be given."""

    description: str
    needs: Iterable[StageHandle]
    when: Condition
    output: Files
    idempotent: bool
    max_concurrency: int | Value


class TaskSettings(_Shared, total=False):
    """Of `@task`: weaker than `defaults` of a workflow, and those are weaker than what a stage says."""

    max_concurrency: int
    vectorized: bool
    """As a key function: takes a whole table or array, gives an array of keys."""
    flat: bool
    """The result is an iterable of records."""
