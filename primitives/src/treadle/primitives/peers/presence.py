"""Members that a coordinator of this process has: one that cannot be dialled from here may be there all the same."""

from __future__ import annotations

from collections.abc import Callable

Coordinator = Callable[[str], bool]
"""Whether it has the member of this name. For any thread."""
_coordinators: list[Coordinator] = []


def add(coordinator: Coordinator) -> None:
    _coordinators.append(coordinator)


def remove(coordinator: Coordinator) -> None:
    """One that was not added is well too."""
    if coordinator in _coordinators:
        _coordinators.remove(coordinator)


def knows(member: str) -> bool:
    """Members of different coordinators never have the same name."""
    return bool(member) and any(has(member) for has in list(_coordinators))
