"""Whether a history of calls is linearizable: each call takes effect at one moment between its begin and its end.

The search of Wing and Gong (1993) with the memory of Lowe (2017): calls that have been ordered, and the state after
them, are tried once. Objects are independent, so each is checked alone (Herlihy and Wing 1990).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Any

Step = Callable[[Any, str, tuple[Any, ...]], tuple[Any, Any] | None]
"""State, method and arguments -> result and next state; None: the call has to wait in this state."""
NOTHING = object()
"""The result of a call that took no effect."""


@dataclass
class Operation:
    """A call. `end` is None without an answer: the effect may come at any later time, or never."""

    object: str
    method: str
    arguments: tuple[Any, ...]
    begin: float
    caller: int = 0
    end: float | None = None
    result: Any = None


def linearizable(operations: Iterable[Operation], models: dict[str, tuple[Hashable, Step]]) -> str | None:
    """Return the name of an object whose calls have no order, or None. `models`: first state and step of each."""
    groups: dict[str, list[Operation]] = {}
    for operation in operations:
        groups.setdefault(operation.object, []).append(operation)
    return next((name for name, group in groups.items() if not _ordered(group, *models[name])), None)


def _ordered(operations: list[Operation], start: Hashable, step: Step) -> bool:
    calls = sorted((one for one in operations if one.result is not NOTHING), key=lambda one: one.begin)
    ends = [float("inf") if one.end is None else one.end for one in calls]
    needed = sum(1 << index for index, end in enumerate(ends) if end < float("inf"))
    tried: set[tuple[int, Hashable]] = set()
    stack: list[tuple[int, Any]] = [(0, start)]
    while stack:
        done, state = stack.pop()
        if done & needed == needed:
            return True
        if (done, state) in tried:
            continue
        tried.add((done, state))
        stack += _next(calls, ends, done, state, step)
    return False


def _next(calls: list[Operation], ends: list[float], done: int, state: Any, step: Step) -> list[tuple[int, Any]]:
    """The calls that can come next: no other open call ended before they began."""
    rest = [index for index in range(len(calls)) if not done >> index & 1]
    first_end = min(ends[index] for index in rest)
    found = []
    for index in rest:
        call = calls[index]
        if call.begin > first_end:
            break
        outcome = step(state, call.method, call.arguments)
        if outcome is not None and (call.end is None or outcome[0] == call.result):
            found.append((done | 1 << index, outcome[1]))
    return found
