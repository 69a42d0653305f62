"""The content of calls: equal calls of two processes have equal digests, so the results of one are found by the other.

A function counts by its code and by the values that it uses. Its file, lines and comments do not count, because a
notebook's cell has another file in each kernel. A value whose pickle differs from process to process, such as a set of
strings, has another digest there: its call runs again.
"""

from __future__ import annotations

import hashlib
import inspect
import io
import pickle
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, partial
from itertools import count
from types import CodeType, FunctionType
from typing import Any

_LENGTH = 32
"""Hexadecimal digits of a digest: 128 bits."""
_OF_PLACE = {"__firstlineno__", "__static_attributes__", "__file__", "__path__"}
"""Attributes of classes and modules that say where the source is, or have no order."""


class CallContent:
    """The content of calls of one function."""

    def __init__(self, function: Callable[..., Any], settings: tuple[object, ...]) -> None:
        self.parts = function_content(function)
        """The parts of the function that may change."""
        self.function = content_digest((function, settings))
        """The digest of the function with its settings."""
        self._calls = hashlib.sha256(self.function.encode())

    def add(self, calls: object, needs: object, refer: Callable[[object], object]) -> None:
        """Add the calls of a task: their arguments, and the results that these need. `refer`: as of `pack`."""
        self._calls.update(content_digest((calls, needs), refer).encode())

    def numbered(self) -> Iterator[str]:
        """The key of the calls; then, if they failed under that, further ones."""
        digest = self._calls.hexdigest()[:_LENGTH]
        return (f"{digest}-{number}" for number in count(1))

    def change(self, before: Mapping[str, str], function: str) -> str:
        """The first change since an earlier function, by its parts and its digest."""
        return first_change(before, self.parts) or (
            "its arguments" if function == self.function else "a value that it uses"
        )


def content_digest(value: object, refer: Callable[[object], object] | None = None) -> str:
    """The digest of a value, functions and classes of the project among it. `refer`: as of `pack`.

    Raises the error of the object that cannot be pickled.
    """
    data = hashlib.sha256()
    buffers: list[pickle.PickleBuffer] = []
    stream = io.BytesIO()
    pickler = _pickler()(stream, protocol=5, buffer_callback=buffers.append)
    pickler.refer = refer
    pickler.dump(value)
    for part in (stream.getbuffer(), *(buffer.raw() for buffer in buffers)):
        data.update(len(part).to_bytes(8, "little"))
        data.update(part)
    return data.hexdigest()[:_LENGTH]


def function_content(function: Callable[..., Any]) -> dict[str, str]:
    """The digests of a function and of the parts of it that may change, by their names in a message."""
    while isinstance(function, partial):
        function = function.args[0] if function.args and callable(function.args[0]) else function.func
    parts = {"Python": ".".join(map(str, sys.version_info[:2]))}
    if isinstance(function, FunctionType):
        used = inspect.getclosurevars(function)
        parts["its code"] = content_digest(function.__code__)
        parts |= _digests("the captured", used.nonlocals) | _digests("the global", used.globals)
    return parts


def first_change(before: Mapping[str, str], now: Mapping[str, str]) -> str:
    """The first part whose digest is another one; empty: none."""
    return next((name for name in (*now, *before) if before.get(name) != now.get(name)), "")


def _digests(kind: str, values: Mapping[str, object]) -> dict[str, str]:
    return {f"{kind} {name}": content_digest(value) for name, value in values.items()}


@cache
def _pickler() -> Any:
    import cloudpickle

    class ContentPickler(cloudpickle.Pickler):  # type: ignore[misc]  # cloudpickle has no types
        refer: Callable[[object], object] | None

        def persistent_id(self, found: object) -> object:
            return None if self.refer is None else self.refer(found)

        def reducer_override(self, found: Any) -> Any:
            if isinstance(found, CodeType):
                return _never_made, _code(found)
            reduced = super().reducer_override(found)
            is_code = isinstance(found, type | FunctionType) and isinstance(reduced, tuple)
            return _placeless(found, reduced) if is_code else reduced

    return ContentPickler


def _never_made(*_: object) -> None:
    """Stands for the class of an object in a pickle that is never read."""


def _code(code: CodeType) -> tuple[Any, ...]:
    """A code object without its place."""
    names = code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars
    constants = tuple(map(_constant, code.co_consts))
    counts = code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags
    return code.co_code, constants, names, counts, code.co_name, getattr(code, "co_exceptiontable", b"")


def _constant(value: Any) -> Any:
    return ("frozenset", sorted(map(repr, value))) if isinstance(value, frozenset) else value


def _placeless(found: Any, reduced: tuple[Any, ...]) -> tuple[Any, ...]:
    """The parts of a function or class, without its place and without the random id that cloudpickle gives a class."""
    from cloudpickle import cloudpickle

    tracked: Mapping[type, str] = cloudpickle._DYNAMIC_CLASS_TRACKER_BY_CLASS
    identity = tracked.get(found) if isinstance(found, type) else None
    arguments = tuple(one for one in reduced[1] if identity is None or one != identity)
    state = _without_place(reduced[2]) if len(reduced) > 2 else None
    return _never_made, (getattr(reduced[0], "__name__", ""), _without_place(arguments)), state


def _without_place(state: Any) -> Any:
    members: Iterable[Any] = state if isinstance(state, tuple) else (state,)
    return tuple(
        {name: value for name, value in one.items() if name not in _OF_PLACE} if isinstance(one, dict) else one
        for one in members
    )
