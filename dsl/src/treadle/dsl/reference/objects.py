"""Shared objects: a stage sees the state from before it; its calls run when it is over, in the partitions' order."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from treadle.primitives.errors import UsageError
from treadle.primitives.objects.definitions import check_shared, method_of


class ReferenceEffect(NamedTuple):
    """A call of a merging method."""

    object: str
    method: str
    arguments: tuple[Any, ...]
    keywords: dict[str, Any]


class ReferenceObjects:
    """The states of a run's objects."""

    def __init__(self) -> None:
        self._states: dict[str, Any] = {}

    def create(self, name: str, cls: object, arguments: Mapping[str, Any]) -> None:
        """Make the first state, unless there is one."""
        if name not in self._states:
            self._states[name] = check_shared(cls)(**copy.deepcopy(dict(arguments)))

    def seen(self, used: Mapping[str, bool], effects: list[ReferenceEffect]) -> ReferenceStageObjects:
        """Return the objects for one attempt, which adds its calls to `effects`."""
        return ReferenceStageObjects(
            {
                name: _Seen(name, copy.deepcopy(self._states[name]), effects if merges else None)
                for name, merges in used.items()
            }
        )

    def apply(self, effect: ReferenceEffect) -> None:
        """Run a call. Raises its error."""
        name, method, arguments, keywords = effect
        getattr(self._states[name], method)(*arguments, **keywords)

    def value(self, name: str) -> Any:
        """Return the value of `${{ objects.NAME }}`."""
        return self._states[name]._value()


class ReferenceStageObjects:
    """`context.objects` of one attempt."""

    def __init__(self, seen: Mapping[str, _Seen]) -> None:
        self._seen = seen

    def __getattr__(self, name: str) -> _Seen:
        if name not in self._seen:
            raise AttributeError(f"the stage does not name an object {name!r}")
        return self._seen[name]


class _Seen:
    def __init__(self, name: str, state: Any, effects: list[ReferenceEffect] | None) -> None:
        self._name, self._state, self._effects = name, state, effects

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = None if name.startswith("_") else method_of(type(self._state), name)
        if method is None:
            raise AttributeError(f"object {self._name!r} has no method {name!r}")
        if method.reads:
            return getattr(self._state, name)  # type: ignore[no-any-return]
        if not method.merges or self._effects is None:
            raise UsageError(f"a stage cannot call {name} of {self._name}", "Call methods that read or merge.")
        found = self._effects

        def record(*arguments: Any, **keywords: Any) -> None:
            found.append(ReferenceEffect(self._name, name, copy.deepcopy(arguments), copy.deepcopy(keywords)))

        return record
