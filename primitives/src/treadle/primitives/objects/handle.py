"""Handles of shared objects: small, and picklable without any state."""

from __future__ import annotations

import functools
import threading
from typing import Any, Generic, TypeVar

from .client_session import Access, ClientSession
from .definitions import check_shared, public_methods
from .errors import CallOutcomeUnknown, CallRefused, CallWaitExpired, ObjectLost, ObjectMissing
from .messages import CREATE, DROP, LATE, MISSING, RAISED, REFUSED, MethodAnswer
from .state import unpacked
from .values import dumps, loads

T = TypeVar("T")
_tokens = threading.local()


class Handle(Generic[T]):
    """A shared object, as any process sees it. It has the methods of the class, each with one round trip.

    A method raises its exception at the keeper, with that traceback as `__cause__`; and CallWaitExpired, CallRefused,
    ObjectLost, ObjectMissing, CallOutcomeUnknown and KeepersUnreachable. With `acquire` and `release` it is a context
    manager.
    """

    def __init__(self, of: Access, name: str, methods: tuple[str, ...], incarnation: int, wait: float | None) -> None:
        """Made by `create`."""
        self._place = of, name, methods, incarnation, wait

    def __reduce__(self) -> Any:
        return Handle, self._place

    def __repr__(self) -> str:
        return f"<Handle of {self._place[1]}>"

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self._place[2]]

    def __getattr__(self, method: str) -> Any:
        if method.startswith("_") or method not in self._place[2]:
            raise AttributeError(f"object {self._place[1]!r} has no method {method!r}")
        return functools.partial(_call, self._place, method)

    def within(self, seconds: float) -> Handle[T]:
        """The same object; its calls wait at most so long for their guard, and then raise CallWaitExpired."""
        of, name, methods, incarnation, _ = self._place
        return Handle(of, name, methods, incarnation, seconds)

    def __enter__(self) -> Any:
        token = self.__getattr__("acquire")()
        vars(_tokens).setdefault(self._place[1], []).append(token)
        return token

    def __exit__(self, *_: object) -> None:
        vars(_tokens)[self._place[1]].pop()
        self.__getattr__("release")()


_Place = tuple[Access, str, tuple[str, ...], int, float | None]


def create(of: Access, name: str, cls: type[T], arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Handle[T]:
    """Return the object of this name, which is made unless it exists.

    Raises UsageError for a class that is not marked, TypeError when the object has another class, the errors of the
    class's `__init__`, and the errors of a handle's methods.
    """
    methods = public_methods(check_shared(cls))
    session, packed = of.session(name), dumps((cls, arguments, keywords))
    try:
        answer = session.call(name, CREATE, packed, None)
    except CallOutcomeUnknown:  # made or not: the second call finds it, or makes it
        answer = session.call(name, CREATE, packed, None)
    _value(answer, name, CREATE)
    return Handle(of, name, methods, session.incarnation, None)


def drop(of: Access, name: str) -> bool:
    """Remove an object; returns whether it existed. Calls that wait for it raise ObjectMissing."""
    return bool(_value(of.session(name).call(name, DROP, b"", None), name, DROP))


def drop_target(handle: Handle[Any]) -> bool:
    """As `drop`, for the object of a handle."""
    of, name, *_ = handle._place
    return drop(of, name)


def _call(place: _Place, method: str, *arguments: Any, **keywords: Any) -> Any:
    of, name, *_ = place
    return PostedCall(of.session(name), place, method, *arguments, **keywords).result()


class PostedCall:
    """A call of a method that is on its way. The session has no other call until `result` was called."""

    def __init__(self, session: ClientSession, place: _Place, method: str, *arguments: Any, **keywords: Any) -> None:
        self._session, self._place, self._method = session, place, method
        _, name, _, incarnation, wait = place
        session.begin(incarnation)
        _check(session.incarnation, incarnation, name)
        session.post(name, method, dumps((arguments, keywords)) if arguments or keywords else b"", wait)

    def result(self) -> Any:
        """Return the result of the method. To be called once."""
        _, name, _, incarnation, _ = self._place
        try:
            answer = self._session.collect()
        except CallOutcomeUnknown:
            self._session.begin()
            _check(self._session.incarnation, incarnation, name)
            raise
        return _value(answer, name, self._method)


def session_of(handle: Handle[Any]) -> ClientSession:
    """Return a new session for the handle's object alone, which any thread of the process may use, one at a time."""
    of, name, *_ = handle._place
    return ClientSession(of, of.shard_of(name), owned=False)


def post(session: ClientSession, handle: Handle[Any], method: str, *arguments: Any) -> PostedCall:
    """Begin a call of a method in this session."""
    return PostedCall(session, handle._place, method, *arguments)


def _check(now: int, incarnation: int, name: str) -> None:
    if now != incarnation:
        text = f"object {name} is lost: all keepers that held its state have ended"
        raise ObjectLost(text, 'Make it again, and use replicas or durability="store" for objects that must survive.')


def _value(answer: MethodAnswer, name: str, method: str) -> Any:
    match answer.kind:
        case k if k == RAISED:
            raise unpacked(answer.body)
        case k if k == MISSING:
            raise ObjectMissing(f"there is no object {name}", "It was dropped, or never made.")
        case k if k == LATE:
            raise CallWaitExpired(f"{method} of {name} has waited as long as `within` allows")
        case k if k == REFUSED:
            raise CallRefused(f"{method} of {name} is refused: {answer.body.decode()}", "It took no effect.")
    return loads(answer.body)
