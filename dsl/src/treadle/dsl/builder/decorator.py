"""`@task`: settings that belong to a function wherever it is used."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, TypedDict, TypeVar, Unpack

from treadle.primitives.errors import UsageError
from treadle.primitives.functions import TASK_ATTRIBUTE

from ..model import Settings
from .parts import validated

F = TypeVar("F", bound=Callable[..., Any])
_OWN = ("vectorized", "flat")


class TaskSettings(TypedDict, total=False):
    """Weaker than `defaults` of a workflow, and those are weaker than what a stage says."""

    retry: Mapping[str, Any]
    timeout: str
    deadline: str
    max_concurrency: int
    memory: str | Mapping[str, str]
    executor: str
    exchange: Literal["auto", "storage", "direct"]
    durability: Literal["task", "segment"]
    backups: bool
    cache: bool | Mapping[str, Any]
    vectorized: bool
    """As a key function: takes a whole table or array, gives an array of keys."""
    flat: bool
    """The result is an iterable of records."""


def task(**settings: Unpack[TaskSettings]) -> Callable[[F], F]:
    """Keep settings with a function, which stays as plain and testable as before.

    Raises UsageError for an unknown setting or a value of the wrong type.
    """
    for name in _OWN:
        if not isinstance(settings.get(name, False), bool):
            raise UsageError(f"@task: {name} is {settings.get(name)!r}", "Write True or False.")
    shared = {name: value for name, value in settings.items() if name not in _OWN}
    validated(Settings.model_validate, shared, "@task")

    def keep(function: F) -> F:
        setattr(function, TASK_ATTRIBUTE, dict(settings))
        return function

    return keep
