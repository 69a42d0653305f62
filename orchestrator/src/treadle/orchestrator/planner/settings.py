"""The settings in force for a stage: stage over `defaults` over decorator."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from treadle.dsl.model import Memory, Retry, Settings

from ..plan.plan import Policy

Count = Callable[[Any], int]
"""Returns the number of a literal or a template."""
Decorators = Mapping[str, Mapping[str, Any]]
"""Function reference -> the known facts of the function (FunctionInfo as a dict)."""


def decorated_settings(stage: Settings, functions: Decorators) -> Settings:
    """The settings in `@task` of the stage's function."""
    uses = getattr(stage, "uses", None) or getattr(stage, "combine", None) or ""
    known = functions.get(uses, {}).get("settings", {})
    return Settings.model_validate({key: value for key, value in known.items() if key in Settings.model_fields})


def policy_of(stage: Settings, defaults: Settings, decorated: Settings, count: Count, executor: str) -> Policy:
    """The policy of a stage. `executor`: the default if neither stage, `defaults` nor decorator names an executor."""

    def find(name: str) -> Any:
        candidates = (getattr(source, name) for source in (stage, defaults, decorated))
        return next((value for value in candidates if value is not None), None)

    retry: Retry = find("retry") or Retry()
    idempotent = getattr(stage, "idempotent", True)
    memory, most = _memory(find("memory")), find("max_concurrency")
    return Policy(
        maximum_attempts=retry.maximum_attempts if idempotent else 1,
        initial_interval=retry.initial_interval,
        backoff_coefficient=retry.backoff_coefficient,
        maximum_interval=retry.maximum_interval,
        non_retryable=tuple(retry.non_retryable_error_types),
        timeout=find("timeout") or 0.0,
        deadline=find("deadline") or 0.0,
        max_concurrency=0 if most is None else count(most),
        memory_start=memory.start if memory else 0,
        memory_max=(memory.max or memory.start) if memory else 0,
        executor=find("executor") or executor,
        idempotent=idempotent,
        exchange=find("exchange") or "auto",
        durability=find("durability") or "",
        backups=find("backups") is not False,
        gang=getattr(stage, "gang", None) or 0,
    )


def _memory(value: Memory | int | None) -> Memory | None:
    return Memory.model_construct(start=value, max=None) if isinstance(value, int) else value
