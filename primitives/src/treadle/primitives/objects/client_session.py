"""The client of one thread and one shard: one call at a time, repeated until it is answered.

A daemon thread keeps all sessions of the process alive, so that a thread that computes for minutes keeps its locks.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import secrets
import threading
import time
from typing import Any

from .. import run_keys
from ..errors import UsageError
from ..sealing import load_key, purpose_key
from ..stores.store import Store
from ..wire.blocking_connection import Connection
from ..wire.connect import connect
from ..wire.errors import NotAuthentic, TimedOut, WireError
from .errors import CallOutcomeUnknown, KeepersUnreachable
from .messages import (
    EXPIRED,
    EndSession,
    FromClient,
    KeepSession,
    MethodAnswer,
    MethodCall,
    NotPrimary,
    OpenSession,
    SessionOpened,
    ShardView,
    ToClient,
    address_of,
    nearby_of,
)
from .state import SESSION_BITS
from .views import ViewChain

RUN = "run:"
UNREACHABLE = 60.0
"""Seconds without a keeper that answers, after which a call fails."""
_ANSWER = 1.0
"""Seconds without an answer, after which the view is read and the call is sent again."""
_CONNECT = 2.0
_PARTING = 10.0
_NEARBY = 0.5
"""Seconds in which a keeper of this host must answer at its Unix socket."""
_AGAIN = 0.02
"""Seconds before the next attempt to find the primary, at first."""


class Access:
    """Where the keepers of some objects are found, by all processes that hold the key.

    `url`: of the store. `key`: the file of the key, or `RUN` and a run from whose key it is derived. `folder`: the part
    of the store with the views.
    """

    def __init__(self, url: str, key: str, folder: str, shards: int) -> None:
        self.place = url, key, folder, shards

    def __reduce__(self) -> Any:
        return access, self.place

    @functools.cached_property
    def key(self) -> bytes:
        place = self.place[1]
        if place.startswith(RUN):
            return purpose_key(run_keys.held_key(place.removeprefix(RUN)), b"treadle objects")
        try:
            return load_key(place)
        except FileNotFoundError:
            text = f"the key of these keepers, {place}, is not on this host"
            raise UsageError(text, "Copy it from a host with keepers, with mode 600.") from None

    @functools.cached_property
    def store(self) -> Store:
        return Store.open(self.place[0])

    @property
    def shards(self) -> int:
        return self.place[3]

    def chain(self, shard: int) -> ViewChain:
        """The views of a shard."""
        return ViewChain(self.store, self.key, self.place[2], shard)

    def connect(self, keeper: str, seconds: float) -> Connection:
        """Connect to this keeper and no other one. Raises WireError and NotAuthentic."""
        if nearby := nearby_of(keeper):
            with contextlib.suppress(WireError, NotAuthentic):
                return connect(nearby, keeper, self.key, deadline=time.monotonic() + _NEARBY)
        return connect(address_of(keeper), keeper, self.key, deadline=time.monotonic() + seconds)

    def shard_of(self, name: str) -> int:
        """The shard of an object."""
        return _hash(name) % self.shards

    def session(self, name: str) -> ClientSession:
        """The session of this thread for an object; a second one during a call.

        A signal handler, or a finalizer that the garbage collector runs, may call objects during a call.
        """
        sessions: dict[tuple[int, Access, int], list[ClientSession]] = vars(_thread).setdefault("sessions", {})
        place = os.getpid(), self, self.shard_of(name)
        mine = sessions.setdefault(place, [])
        for session in mine:
            if not session.is_calling:
                return session
        mine.append(ClientSession(self, place[2]))
        return mine[-1]


_thread = threading.local()


@functools.lru_cache(1 << 12)
def _hash(name: str) -> int:
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest())


@functools.cache
def access(url: str, key: str, folder: str, shards: int) -> Access:
    """Return the one Access of this process for a place."""
    return Access(url, key, folder, shards)


class ClientSession:
    """A session, for one thread at a time, except `keep`. With `owned` it ends with the thread that made it."""

    def __init__(self, of: Access, shard: int, *, owned: bool = True) -> None:
        self._access, self._shard, self._chain = of, shard, of.chain(shard)
        self._view = ShardView()
        self._connection: Connection | None = None
        self._sending = threading.RLock()
        """Guards the connection's making and sending; receiving is for the owner alone."""
        self._session = self._sequence = self._epoch = 0
        self._reached = 0.0
        """The time at which a primary had the call, and did not answer: it waits for its guard."""
        self.lease = 60.0
        """Seconds without a message, after which the session ends."""
        self._owner = threading.current_thread() if owned else None
        self.is_calling = False
        """A call has been posted, and is not collected."""
        self._posted: tuple[MethodCall, Connection | None] | None = None

    @property
    def number(self) -> int:
        """The number of the session; 0: it has not begun."""
        return self._session

    @property
    def incarnation(self) -> int:
        """The incarnation of the shard's state in which the session began; 0: it has not begun."""
        return self._session >> SESSION_BITS

    def is_with(self, of: Access) -> bool:
        """Return whether it belongs to these keepers."""
        return self._access is of

    def is_own(self) -> bool:
        """Return whether no other thread that lives owns it."""
        return self._owner in (None, threading.current_thread()) or self._has_lost_owner()

    def _has_lost_owner(self) -> bool:
        return self._owner is not None and not self._owner.is_alive()

    def begin(self, incarnation: int = 0) -> None:
        """Open the session unless it is open, in this incarnation or a later one. Raises KeepersUnreachable."""
        if self.incarnation < incarnation:  # that state is lost, and the session with it
            self._session = 0
        if not self._session:
            nonce = secrets.randbits(53)
            before, self.is_calling = self.is_calling, True
            try:
                opening = OpenSession(self._shard, nonce)
                answer = self._answered(opening, self._send(opening))
                if isinstance(answer, MethodAnswer):
                    raise UsageError(answer.body.decode(), "Close clients that are not needed.")
            except BaseException:
                self.close()  # nothing else would close the connection of a session that has not begun
                raise
            finally:
                self.is_calling = before
            self._session, self._sequence, self.lease, self._epoch = answer.session, 0, answer.lease, answer.epoch
            _keep(self)

    def holders(self) -> tuple[str, ...]:
        """End this session, and return the keepers that have the state of the shard. Raises KeepersUnreachable."""
        while True:
            self.close()
            self.begin()
            view = self._chain.newest(self._view)
            if view.epoch == self._epoch:
                self.close()
                return view.members

    def call(self, name: str, method: str, arguments: bytes, timeout: float | None) -> MethodAnswer:
        """Post a call and collect its answer."""
        self.post(name, method, arguments, timeout)
        return self.collect()

    def post(self, name: str, method: str, arguments: bytes, timeout: float | None = None) -> None:
        """Send a call, and leave its answer to `collect`. Raises KeepersUnreachable."""
        self.is_calling = True
        try:
            self.begin()
            self._sequence += 1
            call = MethodCall(self._shard, self._session, self._sequence, name, method, arguments, timeout)
            self._posted = call, self._send(call)
        except BaseException:
            self._withdraw()
            raise

    def collect(self) -> MethodAnswer:
        """Return the answer to the posted call, which is sent again as often as it takes.

        Raises KeepersUnreachable, and CallOutcomeUnknown when the session has expired.
        """
        assert self._posted is not None
        call, connection = self._posted
        try:
            answer = self._answered(call, connection)
        except BaseException:
            self._withdraw()
            raise
        self.is_calling, self._posted = False, None
        assert isinstance(answer, MethodAnswer)
        if answer.kind == EXPIRED:
            self._session = 0
            text = f"the session of this thread expired: {call.method} of {call.object} may have taken effect"
            raise CallOutcomeUnknown(text, "Read the object's state, then decide whether to call again.")
        return answer

    def _withdraw(self) -> None:
        """The call is given up: it must not go on waiting."""
        with contextlib.suppress(WireError), self._sending:
            self._sequence += 1
            if self._connection is not None:
                self._connection.send(self._alive(), deadline=time.monotonic() + _ANSWER)
        self.is_calling, self._posted = False, None

    def _alive(self) -> KeepSession:
        return KeepSession(self._shard, self._session, self._sequence)

    # -- connections

    def _send(self, message: FromClient) -> Connection | None:
        """Send the message to the primary, as far as known; returns the connection, unless it failed."""
        with contextlib.suppress(WireError, NotAuthentic):  # another keeper may have this address
            connection = self._connected()
            with self._sending:
                connection.send(message, deadline=time.monotonic() + _CONNECT)
            return connection
        return None

    def _answered(self, message: FromClient, connection: Connection | None) -> SessionOpened | MethodAnswer:
        """Return the answer of the connection, or send the message to the next primary, until one answers."""
        self._reached, pause = time.monotonic(), _AGAIN
        while True:
            with contextlib.suppress(WireError, NotAuthentic):
                if connection is not None and (answer := self._answer(message, connection)) is not None:
                    return answer
            if time.monotonic() - self._reached > UNREACHABLE:
                last = address_of(self._view.primary) or "unknown"
                text = f"no keeper of shard {self._shard} has answered for {UNREACHABLE:.0f} s; the last one is {last}"
                raise KeepersUnreachable(text, "Are the keepers running, and does this process reach them?")
            self._look(pause)
            pause = min(2 * pause, 0.5)
            connection = self._send(message)

    def _answer(self, message: FromClient, connection: Connection) -> SessionOpened | MethodAnswer | None:
        """Return the answer; None: ask another keeper. Raises WireError."""
        wait = _ANSWER
        while True:
            try:
                answer, _ = connection.receive_head(ToClient, time.monotonic() + wait)
            except TimedOut:
                if self._chain.newest(self._view).epoch > self._view.epoch:
                    return None
                wait, self._reached = min(2 * wait, 8 * _ANSWER), time.monotonic()
                with self._sending:
                    connection.send(message, deadline=time.monotonic() + _CONNECT)  # it may have been lost with a view
                continue
            if _fits(answer, message):
                assert isinstance(answer, SessionOpened | MethodAnswer)
                return answer
            if isinstance(answer, NotPrimary):
                return None

    def _connected(self) -> Connection:
        with self._sending:
            if self._connection is not None and self._connection.closed:
                self._connection = None
            if self._connection is None:
                if not self._view.epoch:
                    self._view = self._chain.newest()
                if not self._view.epoch:
                    raise WireError(f"shard {self._shard} has no keeper yet")
                self._connection = self._access.connect(self._view.primary, _CONNECT)
            return self._connection

    def _look(self, pause: float) -> None:
        """Drop the connection, and read the newest view after a pause, if it is the same one."""
        with self._sending:
            if self._connection is not None:
                self._connection.close()
                self._connection = None
            newest = self._chain.newest(self._view if self._view.epoch else None)
            if newest.epoch == self._view.epoch:
                time.sleep(pause)
            self._view = newest

    # -- for the thread that keeps sessions

    def keep(self) -> None:
        """Renew the session; ends it when its owner has ended."""
        if self._has_lost_owner():
            self.close()
        with contextlib.suppress(Exception), self._sending:  # the next renewal tries again
            if self._session:  # it may have been closed meanwhile
                if self._connection is None:
                    self._view = self._chain.newest()
                self._connected().send(self._alive(), deadline=time.monotonic() + _ANSWER)

    def close(self) -> None:
        """End the session: its locks are released. A posted call has some seconds for its answer."""
        _sessions.discard(self)
        with self._sending:
            with contextlib.suppress(WireError, NotAuthentic):
                if self._connection is not None and not self._connection.closed and self._session:
                    if self._posted is not None:
                        self._connection.receive_head(ToClient, time.monotonic() + _PARTING)
                    self._connection.send(EndSession(self._shard, self._session), deadline=time.monotonic() + _ANSWER)
            if self._connection is not None:
                self._connection.close()
            self._session, self._connection = 0, None


def _fits(answer: object, message: FromClient) -> bool:
    if isinstance(message, MethodCall):
        if not isinstance(answer, MethodAnswer):
            return False
        return answer.sequence == message.sequence and answer.session == message.session
    assert isinstance(message, OpenSession)
    match answer:
        case SessionOpened(_, nonce) | MethodAnswer(0, nonce):
            return nonce == message.nonce
    return False


_sessions: set[ClientSession] = set()
"""All sessions of the process; also sessions of threads that have ended, until the next renewal."""
_news = threading.Event()
"""A session has begun."""
_keeping = [0]
"""The process whose thread keeps sessions."""


def _keep(session: ClientSession) -> None:
    if _keeping[0] != os.getpid():
        _keeping[0] = os.getpid()
        _sessions.clear()  # sessions of the parent of a forked process
        threading.Thread(target=_renew, name="treadle-object-sessions", daemon=True).start()
    _sessions.add(session)
    _news.set()


def _renew() -> None:
    while True:
        sessions = list(_sessions)
        _news.wait(min((session.lease for session in sessions), default=60.0) / 4)
        _news.clear()
        for session in sessions:
            session.keep()


def close_sessions(of: Access) -> None:
    """End the sessions of this thread, and of threads that have ended, with these keepers."""
    for session in [one for one in list(_sessions) if one.is_with(of)]:
        if session.is_own():
            session.close()
