"""Digests of functions taken by value: their bytecode, and the values they refer to.

The function object is available, its source is not. Line numbers, file names and docstrings do not count. A value found
in the function's globals or closure counts directly if it is by value too. Otherwise it is looked up in the project by
its name.
"""

from __future__ import annotations

import hashlib
import inspect
import pickle
import types
import typing
from collections.abc import Iterator
from typing import Any

from treadle.primitives.functions import TASK_ATTRIBUTE

from .dependency_graph import DependencyGraph
from .import_graph import imported_by
from .name_reads import ASKED

_TAKEN = "function taken by value"
"""Name of the unit that holds the digest."""
_ATOMS = {types.NoneType, bool, int, float, str, bytes}
_PROTOCOL = 4
"""Later protocols may emit out-of-band buffers instead of their content."""


def trace(data: bytes, reach: DependencyGraph) -> None:
    """Reach all dependencies of a captured function. It is unpickled, so pass only trusted bytes."""
    walk = _Walk(reach)
    walk.all_of(pickle.loads(data))
    reach.units[_TAKEN] = walk.digest.hexdigest()[:32]


class _Walk:
    """Digests a value without recursion, at any depth: each value adds its type and the number of its parts, which
    follow."""

    def __init__(self, reach: DependencyGraph) -> None:
        self.digest = hashlib.sha256()
        self._reach = reach
        self._ahead: list[Any] = []
        self._met: dict[int, tuple[int, Any]] = {}
        """Ordinals of the visited values by id. The values are kept alive, so that no id is reused."""

    def all_of(self, value: Any) -> None:
        self._ahead.append(value)
        while self._ahead:
            self._value(self._ahead.pop())

    def _value(self, value: Any) -> None:
        if type(value) in _ATOMS:
            self._add(type(value).__name__, _text(value))
        elif known := self._met.get(id(value)):
            self._add("met", str(known[0]))
        elif isinstance(value, types.ModuleType):
            self._add("module", value.__name__)
            self._reach.whole(value.__name__)
        elif name := _importable(value):
            self._named(*name)
        else:
            self._met[id(value)] = (len(self._met), value)
            self._by_value(value)

    def _named(self, module: str, name: str) -> None:
        self._add("name", module, name)
        self._reach.name(module, name.partition(".")[0])

    def _by_value(self, value: Any) -> None:
        kind = type(value)
        if kind is types.FunctionType:
            self._function(value)
        elif kind is types.CodeType:
            self._code(value)
        elif kind is types.CellType:
            self._many("cell", _content(value))
        elif kind is property:
            self._many("property", [value.fget, value.fset, value.fdel])
        elif kind is typing.TypeVar:  # cloudpickle numbers type variables anew each time
            self._add("type variable", value.__name__)
        elif isinstance(value, type):  # __qualname__ survives only while the pickled class is alive
            self._many(f"class {value.__name__}", [kind, *value.__bases__, *_flat(_own_of(value))])
        elif kind in (tuple, list):
            self._many(kind.__name__, value)
        elif kind in (set, frozenset):
            self._many(kind.__name__, sorted(value, key=repr))
        elif kind is dict:
            self._many("dict", _flat(value))
        else:
            self._object(value)

    def _object(self, value: Any) -> None:
        """Digest an object by its pickled parts. An object that cannot be pickled (a lock, a cache) was created when
        the function was unpickled; only its class counts."""
        try:
            parts = _reduced(value)
        except Exception:  # noqa: BLE001  classes may refuse with any exception
            parts = (type(value),)
        if isinstance(parts, str):
            self._named(getattr(value, "__module__", None) or type(value).__module__, parts)
        else:
            self._many("object", [list(part) if isinstance(part, Iterator) else part for part in parts])

    def _function(self, function: types.FunctionType) -> None:
        self._code(function.__code__, function.__doc__)
        if "context" in function.__code__.co_varnames:
            self._reach.asks |= _names(function.__code__) & ASKED
        known = function.__globals__
        names = [name for name in sorted(_names(function.__code__)) if name in known]
        own = {name: value for name, value in vars(function).items() if name != TASK_ATTRIBUTE}
        about = [function.__defaults__, function.__kwdefaults__, function.__annotations__, own, function.__closure__]
        self._many(f"function {names}", [*about, *(known[name] for name in names)])

    def _code(self, code: types.CodeType, doc: str | None = None) -> None:
        shape = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags)
        names = (code.co_names, code.co_varnames, code.co_freevars)
        self._add("code", code.co_code.hex(), code.co_exceptiontable.hex(), repr(shape), repr(names))
        for module in imported_by(code):
            self._reach.whole(module)
        for index, constant in enumerate(code.co_consts):
            if isinstance(constant, types.CodeType):
                self._code(constant)
            elif index or constant != doc:
                self._add("constant", _constant(constant))

    def _many(self, what: str, values: Any) -> None:
        values = list(values)
        self._add(what, str(len(values)))
        self._ahead += reversed(values)

    def _add(self, *texts: str) -> None:
        for text in texts:
            self.digest.update(f"{len(text)}:{text}".encode("utf-8", "surrogatepass"))


def _importable(value: Any) -> tuple[str, str] | None:
    """(module, name) of a function, class or builtin that is found in its module under that name."""
    if not (inspect.isroutine(value) or inspect.isclass(value)):
        return None
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(name, str) or module == "__main__":
        return None
    import sys

    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return (module, name) if found is value else None


def _reduced(value: Any) -> Any:
    import cloudpickle

    reduce = cloudpickle.CloudPickler.dispatch_table.get(type(value))
    return reduce(value) if reduce else value.__reduce_ex__(_PROTOCOL)


def _names(code: types.CodeType) -> set[str]:
    """Names that the code, or code nested in it, may look up in its globals."""
    inner = [constant for constant in code.co_consts if isinstance(constant, types.CodeType)]
    return set(code.co_names).union(*map(_names, inner))


def _text(value: Any) -> str:
    match value:
        case bytes():
            return hashlib.sha256(value).hexdigest()
        case int():
            return hex(value)  # repr limits the number of digits
        case str():
            return value
    return repr(value)


def _constant(constant: Any) -> str:
    """Sets are sorted first, because their order varies."""
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


_GENERATED = ("__doc__", "__module__", "__firstlineno__", "__slotnames__", "_abc_impl")
_DESCRIPTORS = (types.MemberDescriptorType, types.GetSetDescriptorType)
"""Descriptors generated for `__slots__`."""


def _own_of(kind: type) -> dict[str, Any]:
    own = sorted(vars(kind).items())
    return {name: value for name, value in own if name not in _GENERATED and not isinstance(value, _DESCRIPTORS)}
