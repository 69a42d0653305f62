"""`@task`: settings that apply to a function wherever it is used."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, Unpack

from treadle.primitives.errors import UsageError
from treadle.primitives.functions import TASK_ATTRIBUTE

from ..model import Settings
from .conversion import validated
from .settings import TaskSettings

F = TypeVar("F", bound=Callable[..., Any])
_OWN = ("vectorized", "flat")


def task(**settings: Unpack[TaskSettings]) -> Callable[[F], F]:
    """Attach settings to a function, which otherwise stays unchanged and easy to test.

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
