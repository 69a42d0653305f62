"""Effects of attempts: calls of shared objects that count once the partition of the attempt is committed.

No keeper is needed while tasks run. A stage sees the state that an object had before it. Its calls are recorded, are
committed with their partition, and run when the stage is over, in the order of the partitions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property, partial
from typing import Any

from msgspec import Struct

from ..errors import UsageError
from .definitions import Then, check_shared, method_of
from .values import dumps, loads

EFFECTS_LIMIT = 64 * 2**20
"""Bytes of the arguments that one attempt may record in a stage."""


class Effect(Struct, frozen=True, array_like=True):
    """Equal calls in a row."""

    object: str
    method: str
    arguments: bytes
    """A pickle; empty: none."""
    times: int = 1


class Effects:
    """The recorded calls of one stage in one attempt, in order."""

    def __init__(self) -> None:
        self.calls: list[Effect] = []
        self._size = 0

    def record(self, name: str, method: str, *arguments: Any, **keywords: Any) -> None:
        """Record a call. Raises the error of an argument that cannot be pickled, and UsageError beyond the limit."""
        packed = dumps([arguments, keywords]) if keywords else dumps(arguments) if arguments else b""
        last = self.calls[-1] if self.calls else None
        if last is not None and (last.object, last.method, last.arguments) == (name, method, packed):
            self.calls[-1] = Effect(name, method, packed, last.times + 1)
            return
        self._size += len(packed)
        if self._size > EFFECTS_LIMIT:
            raise UsageError(
                f"the calls of objects in one partition have more than {EFFECTS_LIMIT >> 20} MiB of arguments",
                "Merge in the function first, and call the object once for many records.",
            )
        self.calls.append(Effect(name, method, packed))

    def mark(self) -> tuple[int, Effect | None]:
        """Return the present end of the calls, for `back_to`."""
        return len(self.calls), self.calls[-1] if self.calls else None

    def back_to(self, mark: tuple[int, Effect | None]) -> None:
        """Forget the calls after the mark."""
        length, last = mark
        del self.calls[length:]
        if last is not None:
            self.calls[-1] = last


class StageObject:
    """An object as a function of a stage sees it: methods that read its state from before the stage, and methods that
    merge."""

    def __init__(self, name: str, load: Callable[[], Any], effects: Effects | None) -> None:
        """`load` returns the state, which nothing else uses. `effects`: None when the stage may only read."""
        self._name, self._load, self._effects = name, load, effects

    @cached_property
    def _state(self) -> Any:
        return self._load()

    def __getattr__(self, method: str) -> Callable[..., Any]:
        found = None if method.startswith("_") else method_of(type(self._state), method)
        if found is None:
            raise AttributeError(f"object {self._name!r} has no method {method!r}")
        if found.reads:
            return getattr(self._state, method)  # type: ignore[no-any-return]
        if not found.merges:
            text = f"{method} of {self._name} gives an answer, and calls of a stage run later, once it is committed"
            raise UsageError(text, "Call methods that are marked with @read or @merges (docs/objects.md).")
        if self._effects is None:
            text = f"the stage only reads {self._name}, and {method} changes it"
            raise UsageError(text, f"Write `objects: [{self._name}]` in the stage.")
        return partial(self._effects.record, self._name, method)


class StageObjects:
    """`context.objects`: the objects that a stage names."""

    def __init__(self, objects: Mapping[str, StageObject]) -> None:
        self._objects = objects

    def __getattr__(self, name: str) -> StageObject:
        if name.startswith("__") or name not in self._objects:
            raise AttributeError(f"the stage does not name an object {name!r}: write `objects: [{name}]`")
        return self._objects[name]


def new_state(cls: object, keywords: Mapping[str, Any]) -> bytes:
    """Return the first state of an object. Raises UsageError for a class that is not marked, and its errors."""
    return dumps(check_shared(cls)(**keywords))


def state_of(state: bytes) -> Any:
    """Return the object of a state, for one user."""
    return loads(state)


def with_effects(state: bytes, name: str, effects: Iterable[Effect]) -> bytes:
    """Return the state after the calls of the object `name`. Raises the errors of its methods."""
    made = loads(state)
    for effect in effects:
        if effect.object == name:
            for _ in range(effect.times):
                _call(made, effect)
    return dumps(made)


def _call(made: Any, effect: Effect) -> None:
    packed = loads(effect.arguments) if effect.arguments else ()
    arguments, keywords = packed if isinstance(packed, list) else (packed, {})
    if isinstance(getattr(made, effect.method)(*arguments, **keywords), Then):
        raise UsageError(f"{effect.method} of {effect.object} waits, and a method with @merges may not", "Remove it.")


def value_of(name: str, state: bytes) -> Any:
    """Return the value of `${{ objects.NAME }}`. Raises UsageError for a class without `_value`."""
    made = loads(state)
    if not hasattr(made, "_value"):
        hint = "Give it a method `_value(self)` that returns a JSON value, or leave the object out of `outputs`."
        raise UsageError(f"objects of the class {type(made).__qualname__} have no value ({name})", hint)
    return made._value()
