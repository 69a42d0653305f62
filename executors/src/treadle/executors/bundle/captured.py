"""The code of functions taken by value: their bytecode, and the values that they hold on to.

There is no source to read, but the function is here. Line numbers, file names and docstrings do not count; what it
finds in its globals and closure does, if it is by value too, and else is reached in the project by its name.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import pickle
import types
from collections.abc import Iterator
from typing import Any

from .reach import Reach
from .reads import ASKED

_TAKEN = "function taken by value"
"""Name of its unit."""


def trace(data: bytes, reach: Reach) -> None:
    """Reach everything of a captured function, which is unpickled: only one's own may be given."""
    walk = _Walk(reach)
    walk.value(pickle.loads(data))
    reach.units[_TAKEN] = walk.digest.hexdigest()[:32]


class _Walk:
    def __init__(self, reach: Reach) -> None:
        self.digest = hashlib.sha256()
        self._reach = reach
        self._seen: dict[int, Any] = {}
        """What was met, kept alive so that no id comes twice."""

    def value(self, value: Any) -> None:
        if id(value) in self._seen:
            self._add("met", str(list(self._seen).index(id(value))))
        elif isinstance(value, types.ModuleType):
            self._add("module", value.__name__)
            self._reach.whole(value.__name__)
        elif name := _importable(value):
            self._add("name", *name)
            self._reach.name(name[0], name[1].partition(".")[0])
        else:
            self._seen[id(value)] = value
            self._by_value(value)

    def _by_value(self, value: Any) -> None:
        match value:
            case types.FunctionType():
                self._function(value)
            case types.MethodType():
                self.value(value.__func__)
                self.value(value.__self__)
            case functools.partial():
                self._many("partial", [value.func, *value.args, *_flat(value.keywords)])
            case staticmethod() | classmethod():
                self.value(value.__func__)
            case property():
                self._many("property", [value.fget, value.fset, value.fdel])
            case types.CellType():
                self._many("cell", _content(value))
            case type():  # cloudpickle keeps its qualified name only while the class it was pickled from is alive
                self._many(f"class {value.__name__}", [*value.__bases__, *_flat(_own_of(value))])
            case tuple() | list():
                self._many(type(value).__name__, value)
            case dict():
                self._many("dict", _flat(value))
            case None | bool() | int() | float() | str() | bytes():
                self._add(type(value).__name__, repr(value))
            case _:
                self._add("pickle", hashlib.sha256(_pickled(value)).hexdigest())

    def _function(self, function: types.FunctionType) -> None:
        self._code(function.__code__, function.__doc__)
        self._many("defaults", [function.__defaults__, function.__kwdefaults__, function.__annotations__])
        self._many("closure", function.__closure__ or ())
        if "context" in function.__code__.co_varnames:
            self._reach.asks |= _names(function.__code__) & ASKED
        known = function.__globals__
        for name in sorted(_names(function.__code__)):
            if name in known:
                self._add("global", name)
                self.value(known[name])

    def _code(self, code: types.CodeType, doc: str | None = None) -> None:
        shape = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags)
        self._add("code", code.co_code.hex(), repr(shape), repr((code.co_names, code.co_varnames, code.co_freevars)))
        for index, constant in enumerate(code.co_consts):
            if isinstance(constant, types.CodeType):
                self._code(constant)
            elif index or constant != doc:
                self._add("constant", _text(constant))

    def _many(self, what: str, values: Any) -> None:
        values = list(values)
        self._add(what, str(len(values)))
        for value in values:
            self.value(value)

    def _add(self, *texts: str) -> None:
        for text in texts:
            self.digest.update(f"{len(text)}:{text}".encode("utf-8", "surrogatepass"))


def _importable(value: Any) -> tuple[str, str] | None:
    """(module, name) of a function, class or builtin that its module has under that name."""
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(name, str) or module == "__main__":
        return None
    if not (inspect.isroutine(value) or inspect.isclass(value)):
        return None
    import sys

    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return (module, name) if found is value else None


def _names(code: types.CodeType) -> set[str]:
    """Names that the code, or code in it, may look up in its globals."""
    inner = [constant for constant in code.co_consts if isinstance(constant, types.CodeType)]
    return set(code.co_names).union(*map(_names, inner))


def _text(constant: Any) -> str:
    """A set has no order of its own."""
    return repr(sorted(map(repr, constant)) if isinstance(constant, frozenset) else constant)


def _flat(mapping: Any) -> Iterator[Any]:
    for key, value in mapping.items():
        yield key
        yield value


def _content(cell: types.CellType) -> list[Any]:
    try:
        return [cell.cell_contents]
    except ValueError:  # not filled yet
        return []


_GENERATED = ("__dict__", "__weakref__", "__doc__", "__module__", "__firstlineno__", "__slotnames__")


def _own_of(kind: type) -> dict[str, Any]:
    return {name: value for name, value in sorted(vars(kind).items()) if name not in _GENERATED}


def _pickled(value: Any) -> bytes:
    import cloudpickle

    data: bytes = cloudpickle.dumps(value, protocol=5)
    return data
