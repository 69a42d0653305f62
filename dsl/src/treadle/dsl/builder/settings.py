"""Types of the settings of stages and functions, for type checkers and editors; the model validates their values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal, TypedDict

from .formats import Files
from .handles import Condition, StageHandle, ValueHandle


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
    """Settings of every working stage."""

    description: str
    needs: Iterable[StageHandle]
    when: Condition
    output: Files
    idempotent: bool
    max_concurrency: int | ValueHandle


class TaskSettings(_Shared, total=False):
    """Settings of `@task`: weaker than `defaults` of a workflow, which are weaker than a stage's own settings."""

    max_concurrency: int
    vectorized: bool
    """The key function takes a whole table or array, and returns an array of keys."""
    flat: bool
    """The result is an iterable of records."""
