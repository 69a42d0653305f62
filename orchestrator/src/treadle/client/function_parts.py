"""Whether a function can have changed since it was pickled, which takes far less time than to pickle it again."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from functools import cache, lru_cache, partial
from itertools import chain
from operator import is_
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType, NoneType
from typing import Any

_CONSTANT = frozenset({NoneType, bool, int, float, complex, CodeType})
"""Classes whose objects do not change, and refer to no object that does."""
_TEXT = 4096
"""Length of the longest text among parts, which are kept in memory."""

Parts = tuple[object, ...]


def unchanging_parts(function: object) -> Parts:
    """All objects that the function's pickle is made of: the pickle changes only if one is replaced by another object.

    Empty: one of them may change without being replaced, such as a list or an object that a method is bound to.
    """
    import cloudpickle

    by_value = _packages(frozenset(cloudpickle.list_registry_pickle_by_value()))
    parts: list[object] = [len(sys.modules)]  # a pickle names the modules below a package that are imported
    known: set[int] = set()
    left = [function]
    while left:
        found = left.pop()
        parts.append(found)
        if _is_constant(found) or id(found) in known or _is_imported(found, by_value):
            continue
        known.add(id(found))
        inner = _members(found)
        if inner is None:
            return ()
        left += inner
    return tuple(parts)


def same_parts(one: Parts, other: Parts) -> bool:
    """Whether both are the same objects. Nothing is the same as no parts."""
    return bool(one) and one[0] == other[0] and len(one) == len(other) and all(map(is_, one[1:], other[1:]))


@lru_cache(maxsize=1)
def _packages(modules: frozenset[str]) -> frozenset[str]:
    """The packages whose functions and classes are pickled by value."""
    return frozenset({"__main__"} | {name.partition(".")[0] for name in modules})


def _is_imported(found: Any, by_value: frozenset[str]) -> bool:
    """Whether it is pickled as the name of an installed module's member, or of the module."""
    is_module = isinstance(found, ModuleType)
    if not (is_module or isinstance(found, type | FunctionType | BuiltinFunctionType)):
        return False
    name = found.__name__ if is_module else found.__module__
    module = sys.modules.get(name or "")
    if module is None or name.partition(".")[0] in by_value:
        return False
    return (module if is_module else getattr(module, "__dict__", {}).get(found.__qualname__)) is found


def _is_constant(found: Any) -> bool:
    return type(found) in _CONSTANT or (type(found) in (str, bytes) and len(found) <= _TEXT)


def _members(found: Any) -> list[object] | None:
    """What an object of a kind that may be part of a function consists of. None: another kind."""
    if type(found) is tuple:
        return list(found)
    if type(found) is partial and not found.__dict__:
        return [found.func, *found.args, *_items(found.keywords)]
    if type(found) is FunctionType:
        return list(_function_members(found))
    return None


def _function_members(function: FunctionType) -> Iterator[object]:
    yield from (function.__code__, function.__name__, function.__qualname__, function.__module__, function.__doc__)
    yield from function.__defaults__ or ()
    for named in (function.__kwdefaults__, function.__annotations__, function.__dict__):
        if named:
            yield from _items(named)
    for cell in function.__closure__ or ():
        yield _content(cell)
    names = function.__globals__
    for name in _names(function.__code__):
        if name in names:
            yield names[name]


def _content(cell: Any) -> object:
    try:
        return cell.cell_contents
    except ValueError:  # not assigned yet
        return cell


def _items(named: Mapping[str, object]) -> Iterator[object]:
    return chain.from_iterable(named.items())


@cache
def _names(code: CodeType) -> tuple[str, ...]:
    """The names of globals that the code and the functions in it may use, and of attributes."""
    inner = (_names(one) for one in code.co_consts if isinstance(one, CodeType))
    return tuple(dict.fromkeys(chain(code.co_names, *inner)))
