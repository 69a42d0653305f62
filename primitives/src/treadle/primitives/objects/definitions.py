"""Definition of the class of a shared object: marks of methods, and the context of a call.

    @shared
    class Quota:
        def __init__(self, left): self.left = left

        @when(lambda self, amount: self.left >= amount)
        def take(self, amount): self.left -= amount

        @read
        def rest(self): return self.left

Methods run one at a time, on each replica. They must be deterministic: time and randomness come from `current()`.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, NamedTuple, TypeVar

from ..errors import UsageError

Class = TypeVar("Class", bound=type)
Function = TypeVar("Function", bound=Callable[..., Any])
Guard = Callable[..., Any]

_SHARED, _READ, _WHEN, _REMOVES = "__treadle_shared__", "__treadle_read__", "__treadle_when__", "__treadle_removes__"
_MERGES = "__treadle_merges__"


class CallContext(NamedTuple):
    """The call that runs now. It is the same on each replica."""

    session: int
    """The session of the caller: of one thread of one process. Locks use it as the owner."""
    number: int
    """Rises from call to call of the shard; a fencing token."""
    time: float
    """Seconds since 1970, as the primary saw them. It never falls."""

    def random(self) -> random.Random:
        """A generator with a seed that belongs to this call."""
        return random.Random(self.number)


class Then(NamedTuple):
    """The rest of a call; see `then`."""

    method: str
    arguments: tuple[Any, ...]
    at: float | None


current_call: ContextVar[CallContext] = ContextVar("treadle_object_call")


def current() -> CallContext:
    """Return the context of the running call. Raises LookupError outside of an object's method."""
    return current_call.get()


def then(method: str, *arguments: Any, at: float | None = None) -> Any:
    """Return this from a method to continue the call with another method of the object, when its guard holds.

    A barrier counts the arrival in one method and waits in the next. `at`: not before this time.
    """
    return Then(method, arguments, at)


def shared(cls: Class) -> Class:
    """Mark a class whose instances a keeper may host. Raises UsageError for a class that replaces `__getattr__`."""
    if any(name in vars(cls) for name in ("__getattr__", "__getattribute__")):
        hint = "Write its methods out: a keeper finds them by their names."
        raise UsageError(f"the shared class {cls.__qualname__} replaces the look-up of attributes", hint)
    setattr(cls, _SHARED, True)
    return cls


def read(function: Function) -> Function:
    """Mark a method that changes nothing: the primary alone runs it, and no replica is asked."""
    setattr(function, _READ, True)
    return function


def removes(function: Function) -> Function:
    """Mark a method that makes the object smaller: it is accepted although the object has reached its limit."""
    setattr(function, _REMOVES, True)
    return function


def merges(function: Function) -> Function:
    """Mark a method whose callers can do without the result. Stages of a workflow may call it: it runs once their
    partition is committed."""
    setattr(function, _MERGES, True)
    return function


def when(guard: Guard) -> Callable[[Function], Function]:
    """Let calls wait until `guard(self, *arguments)` is true. A waiting call is data: it holds no thread."""

    def marked(function: Function) -> Function:
        setattr(function, _WHEN, guard)
        return function

    return marked


class Method(NamedTuple):
    """A method of a shared class."""

    function: Callable[..., Any]
    guard: Guard | None
    reads: bool
    """It changes nothing and waits for nothing."""
    removes: bool
    merges: bool
    """Its callers need no result, and it waits for nothing."""


_methods: dict[tuple[type, str], Method] = {}


def method_of(cls: type, name: str) -> Method | None:
    """Return a method by its name; None when the class has no such method."""
    known = _methods.get((cls, name))
    if known is None and (known := _find_method(cls, name)) is not None:
        _methods[cls, name] = known
    return known


def _find_method(cls: type, name: str) -> Method | None:
    function = getattr(cls, name, None)
    if name.startswith("__") or not callable(function) or isinstance(function, type):
        return None
    guard: Guard | None = getattr(function, _WHEN, None)
    reads, merging = (getattr(function, mark, False) and guard is None for mark in (_READ, _MERGES))
    return Method(function, guard, reads, getattr(function, _REMOVES, False), merging)


def check_shared(cls: object) -> type:
    """Return the class. Raises UsageError for one that is not marked with `shared`."""
    if not isinstance(cls, type) or _SHARED not in vars(cls):
        hint = "Write @shared above the class, after a look at docs/objects.md: its methods must be deterministic."
        raise UsageError(f"{getattr(cls, '__qualname__', cls)!r} is not the class of a shared object", hint)
    return cls


def public_methods(cls: type) -> tuple[str, ...]:
    """Return the names of the methods that a handle offers."""
    return tuple(name for name in dir(cls) if not name.startswith("_") and method_of(cls, name))
