"""User functions: named by reference or taken by value, looked up in a worker, and described from their signature."""

from __future__ import annotations

import importlib
import inspect
import sys
import typing
from collections import abc
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from typing import Any

from msgspec import Struct

from .errors import UsageError

TASK_ATTRIBUTE = "__treadle_task__"
"""The attribute in which the `@task` decorator keeps a function's settings, a dict such as `{"vectorized": True}`."""
CAPTURED = "captured:"


class FunctionInfo(Struct, frozen=True):
    """The properties of a function that planning needs."""

    flat: bool | None
    """Set by `@task`; otherwise whether the return annotation is an iterable of records; None without an annotation."""
    takes_context: bool
    vectorized: bool
    """The function, used as a key function, takes a whole table or array."""
    is_generator: bool
    settings: dict[str, Any]
    """The settings of the `@task` decorator."""


# -- references ----------------------------------------------------------------------------------------------------


def reference(function: Callable[..., Any], captured: MutableMapping[str, bytes] | None = None) -> str:
    """`module:qualname` if importing that gives this very function, else `captured:<digest>` (see `capture`).

    A captured function is added to `captured`, under its reference.
    """
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
    if module and name and module != "__main__" and _found(module, name) is function:
        return f"{module}:{name}"
    import hashlib

    code = capture(function)
    ref = CAPTURED + hashlib.sha256(code).hexdigest()[:32]
    if captured is not None:
        captured[ref] = code
    return ref


def _found(module: str, name: str) -> object:
    found: object = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return found


def capture(function: Callable[..., Any]) -> bytes:
    """Return the function by value (cloudpickle). Raises UsageError when an object that it refers to cannot
    be pickled.
    """
    import cloudpickle

    try:
        return typing.cast(bytes, cloudpickle.dumps(function, protocol=5))
    except Exception as error:
        raise UsageError(
            f"{_name(function)} cannot be taken by value: {type(error).__name__}: {error}",
            "Move it to a module and name it module:function, or pass what it captures through `with`.",
        ) from error


def load(ref: str, captured: Mapping[str, bytes] = {}) -> Callable[..., Any]:
    """Return the function behind a reference; `captured` maps references `captured:<digest>` to their bytes.

    Pass only bytes of a verified bundle: they are unpickled. Raises UsageError that names the missing part.
    """
    if ref.startswith(CAPTURED):
        return _load_captured(ref, captured)
    module_name, colon, name = ref.partition(":")
    if not (module_name and colon and name):
        raise UsageError(f"{ref!r} does not name a function", "Write module:function, such as mypackage.text:tokenize.")
    found: object = _load_module(module_name, ref)
    for part in name.split("."):
        found = _attribute(found, part, ref)
    if not callable(found):
        raise UsageError(
            f"{ref} is of type {type(found).__name__}, not a function", "Name something that can be called."
        )
    return found


def _load_captured(ref: str, captured: Mapping[str, bytes]) -> Callable[..., Any]:
    import hashlib
    import pickle

    data = captured.get(ref)
    if data is None:
        raise UsageError(f"the bundle has no {ref}", "Submit the workflow again from Python: its functions go along.")
    if not hashlib.sha256(data).hexdigest().startswith(ref.removeprefix(CAPTURED)):
        raise UsageError(f"the bytes given for {ref} are those of another function", "Submit the workflow again.")
    return typing.cast("Callable[..., Any]", pickle.loads(data))


def _load_module(name: str, ref: str) -> object:
    try:
        return importlib.import_module(name)
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and error.name and f"{name}.".startswith(f"{error.name}."):
            raise UsageError(
                f"no module {error.name!r} ({ref})",
                "Put it beside the workflow, or install the package that holds it.",
            ) from error
        raise UsageError(
            f"module {name!r} failed on import: {type(error).__name__}: {error} ({ref})",
            f"`python -c 'import {name}'` shows the traceback.",
        ) from error


def _attribute(holder: object, name: str, ref: str) -> object:
    try:
        return getattr(holder, name)
    except AttributeError:
        from difflib import get_close_matches

        near = get_close_matches(name, [entry for entry in dir(holder) if not entry.startswith("_")], n=3)
        hint = f"Did you mean {' or '.join(near)}?" if near else "Check the spelling, or define it there."
        raise UsageError(f"{getattr(holder, '__name__', holder)!r} has no {name!r} ({ref})", hint) from None


def _name(function: object) -> str:
    return str(getattr(function, "__qualname__", type(function).__name__))


# -- description ---------------------------------------------------------------------------------------------------


def describe(function: Callable[..., Any]) -> FunctionInfo:
    """Describe the function from its signature, annotations and `@task` decorator.

    Annotations may be strings, even with names that cannot be resolved here.
    """
    annotations = _annotations(function)
    settings = dict(getattr(function, TASK_ATTRIBUTE, {}))
    returned = annotations.get("return", inspect.Parameter.empty)
    return FunctionInfo(
        flat=settings.get("flat", _is_flat(returned)),
        takes_context="context" in _parameters(function),
        vectorized=bool(settings.get("vectorized", any(map(_is_array_type, annotations.values())))),
        is_generator=inspect.isgeneratorfunction(_plain(function)),
        settings=settings,
    )


def _parameters(function: Callable[..., Any]) -> list[str]:
    try:
        return list(inspect.signature(function).parameters)
    except (ValueError, TypeError):  # some built-in functions have no signature
        return []


def _plain(function: Any) -> Any:
    """Return the function under decorators, partials, methods and callable objects: the object with code and
    annotations.
    """
    import functools

    function = inspect.unwrap(function)
    while isinstance(function, functools.partial):
        function = inspect.unwrap(function.func)
    if inspect.isroutine(function) or inspect.isclass(function):
        return inspect.unwrap(getattr(function, "__func__", function))
    return inspect.unwrap(type(function).__call__)


def _annotations(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the annotations, each resolved separately; an unresolvable one stays a string. A class returns itself."""
    plain = _plain(function)
    if inspect.isclass(plain):
        return {"return": plain}
    scope = dict(getattr(plain, "__globals__", {}))
    found = dict(getattr(plain, "__annotations__", {}))
    return {name: _resolved(value, scope) for name, value in found.items()}


def _resolved(annotation: Any, scope: dict[str, Any]) -> Any:
    if not isinstance(annotation, str):
        return annotation
    try:
        return eval(annotation, scope)
    except Exception:  # noqa: BLE001 - a foreign annotation may raise any error; its text is judged instead
        return annotation


_FLAT_TYPES = (abc.Iterator, abc.Iterable, abc.Generator)
_FLAT_NAMES = {"Iterator", "Iterable", "Generator"}


def _is_flat(annotation: Any) -> bool | None:
    if annotation is inspect.Parameter.empty or annotation is Any or isinstance(annotation, typing.TypeVar):
        return None
    if isinstance(annotation, str):
        head = annotation.partition("[")[0].strip().rpartition(".")[2]
        return None if head in ("Any", "object") else head in _FLAT_NAMES
    return annotation is not object and (typing.get_origin(annotation) or annotation) in _FLAT_TYPES


_ARRAY_TYPES = {"ndarray", "NDArray", "ArrayLike", "Table", "RecordBatch", "Array", "ChunkedArray"}
_ARRAY_PACKAGES = ("numpy", "pyarrow")


def _is_array_type(annotation: Any) -> bool:
    if isinstance(annotation, str):
        return annotation.partition("[")[0].strip().rpartition(".")[2] in _ARRAY_TYPES
    kind = _class_of(annotation)
    package = str(getattr(kind, "__module__", "")).partition(".")[0]
    return package in _ARRAY_PACKAGES and any(base.__name__ in _ARRAY_TYPES for base in getattr(kind, "__mro__", ()))


def _class_of(annotation: Any) -> Any:
    """Return the class behind type aliases and their arguments: NumPy's `NDArray` is a `type` statement since 2.5."""
    kind = typing.get_origin(annotation) or annotation
    while hasattr(kind, "__value__"):
        kind = typing.get_origin(kind.__value__) or kind.__value__
    return kind


# -- errors --------------------------------------------------------------------------------------------------------


def matches_type(error: BaseException, names: Iterable[str]) -> bool:
    """Return whether `names` lists the class of the error or one of its bases, as `Name` or as `module.Name`."""
    listed = set(names)
    return any(
        kind.__name__ in listed or f"{kind.__module__}.{kind.__qualname__}" in listed for kind in type(error).__mro__
    )
