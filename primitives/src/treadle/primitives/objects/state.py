"""The replicated state of a shard: objects, sessions, and calls that wait. Equal entries give equal states.

A call of a session goes through these states:

    state     entry or event                          next      effect
    -         Did, guard true or none                 answered  the method has run; then waiting calls of the object are
                                                                examined
    -         Did, guard false                        waiting   the call is data: method, arguments, deadline
    waiting   guard true after another call           answered  the method has run; the oldest such call goes first
    waiting   Passed after its deadline               answered  with LATE; `_withdrawn(session)` of the object is called
    waiting   Withdrew, or Did of the same session    answered  with WITHDRAWN; the same
    answered  Did of the same session                 -         the answer is forgotten: the client has it
    any       Ended                                   -         `_session_ended(session)` of all objects is called

The answer is kept until the session's next call, so a repeated call is answered and does not run again.
"""

from __future__ import annotations

import heapq
import traceback
from typing import Any, NamedTuple

from . import messages as m
from .definitions import CallContext, Then, check_shared, current_call, method_of
from .errors import MethodTraceback
from .values import digest, dumps, loads

SESSION_BITS = 40
"""A session's number is that of its entry, below the incarnation of the state."""
_RESULT_BYTES = 8 << 20
_CONTINUATIONS = 1000
"""Methods that may continue one call without waiting."""
Group = tuple[str, bytes]
"""Method and arguments of waiting calls: their guards are true or false together."""


class Waiting(NamedTuple):
    """A call whose guard is false, or whose time has not come."""

    session: int
    sequence: int
    object: str
    group: Group
    deadline: float | None
    at: float | None = None


class State:
    """Apply entries in their order. The answers to calls are in `answers`, for the caller to take."""

    def __init__(self, incarnation: int = 0) -> None:
        self.incarnation = incarnation
        self.index = 0
        """The number of the last entry."""
        self.time = 0.0
        self.objects: dict[str, Any] = {}
        self.sessions: dict[int, m.MethodAnswer | int | None] = {}
        """The last answer of each session, or the number of its waiting call; None: no call yet."""
        self.waiting: dict[int, Waiting] = {}
        """Calls by numbers that rise in the order of arrival."""
        self._groups: dict[str, dict[Group, dict[int, None]]] = {}
        self._alarms: list[tuple[float, int]] = []
        """Heap of times and waiting calls, some of which no longer wait."""
        self._arrivals = 0
        self.answers: list[m.MethodAnswer] = []

    # -- queries

    def known(self, session: int, sequence: int) -> m.MethodAnswer | bool | None:
        """Return the answer to a call; True: it waits; False: it is obsolete; None: it is new.

        The call of an unknown session is answered with EXPIRED.
        """
        if session not in self.sessions:
            return m.MethodAnswer(session, sequence, m.EXPIRED)
        last = self.sessions[session]
        before = self.waiting[last].sequence if isinstance(last, int) else last.sequence if last else 0
        if sequence == before:
            return last if isinstance(last, m.MethodAnswer) else True
        return None if sequence > before else False

    def reads(self, name: str, method: str) -> bool:
        """Return whether the call changes nothing and waits for nothing, so that it needs no entry."""
        instance = self.objects.get(name)
        found = method_of(type(instance), method) if instance is not None else None
        return found is not None and found.reads

    def read(self, call: m.MethodCall) -> m.MethodAnswer:
        """Run a method for which `reads` is true."""
        outcome = self._run(call.session, call.object, (call.method, call.arguments), guarded=False)
        if outcome is None or isinstance(outcome, Then):
            outcome = m.RAISED, _packed(TypeError(f"{call.method} is marked @read and continues in another method"))
        return m.MethodAnswer(call.session, call.sequence, *outcome)

    def removes(self, name: str, method: str) -> bool:
        """Return whether the call makes its object smaller."""
        found = method_of(type(self.objects.get(name)), method)
        return method == m.DROP or (found is not None and found.removes)

    def size(self, name: str) -> int:
        """Return the bytes of the object's pickle; 0 without the object, or if it cannot be pickled any more."""
        try:
            return len(dumps(self.objects[name]))
        except Exception:  # noqa: BLE001  a user's class may raise anything
            return 0

    def next_alarm(self) -> float | None:
        """Return the time after which an entry `PassedEntry` has an effect."""
        while self._alarms and self._alarms[0][1] not in self.waiting:
            heapq.heappop(self._alarms)
        return self._alarms[0][0] if self._alarms else None

    def digests(self) -> bytes:
        """Return the joined digests of all objects, in the order of `objects`."""
        return b"".join(map(digest, self.objects.values()))

    def snapshot(self) -> bytes:
        """Return the whole state."""
        return dumps({**vars(self), "answers": []})

    @staticmethod
    def restored(snapshot: bytes) -> State:
        """Return the state of a snapshot. Raises the errors of its classes."""
        state = State()
        vars(state).update(loads(snapshot))
        return state

    # -- entries

    def apply(self, entry: m.Entry) -> None:
        """Apply the next entry."""
        self.index += 1
        self.time = max(self.time, entry.time)
        match entry:
            case m.MethodEntry():
                self._withdraw(entry.session)
                self._do(entry)
            case m.BeganEntry():
                self.sessions[self.incarnation << SESSION_BITS | self.index] = None
            case m.RejectedEntry(_, session, sequence, reason):
                self._withdraw(session)
                self._answer(session, sequence, m.REFUSED, reason.encode())
            case m.WithdrawnEntry(_, session):
                self._withdraw(session)
            case m.EndedEntry(_, session):
                self._end(session)
            case m.PassedEntry():
                self._pass()

    def _do(self, call: m.MethodEntry) -> None:
        if call.session not in self.sessions:
            self.answers.append(m.MethodAnswer(call.session, call.sequence, m.EXPIRED))
        elif call.method == m.CREATE:
            self._answer(call.session, call.sequence, *self._create(call))
        elif call.method == m.DROP:
            self._answer(call.session, call.sequence, *self._drop(call.object))
        elif call.method.startswith("_"):
            self._answer(call.session, call.sequence, m.RAISED, _packed(AttributeError(f"{call.method} is private")))
        else:
            group = call.method, call.arguments
            self._proceed(Waiting(call.session, call.sequence, call.object, group, call.deadline))
            self._wake(call.object)

    def _proceed(self, call: Waiting, *, guarded: bool = True) -> None:
        """Run a call, and the methods that continue it, until it is answered or waits."""
        for _ in range(_CONTINUATIONS):
            outcome = self._run(call.session, call.object, call.group, guarded=guarded)
            if outcome is None:
                self._park(call)
                return
            if not isinstance(outcome, Then):
                self._answer(call.session, call.sequence, *outcome)
                return
            call, guarded = call._replace(group=(outcome.method, dumps((outcome.arguments, {}))), at=outcome.at), True
            if call.at is not None and call.at > self.time:
                self._park(call)
                return
        self._answer(call.session, call.sequence, m.RAISED, _packed(RecursionError(f"{call.group[0]} never ends")))

    def _run(self, session: int, name: str, group: Group, *, guarded: bool) -> tuple[int, bytes] | Then | None:
        """Call the method. Returns kind and body of the answer, the rest of the call, or None: the guard is false."""
        instance = self.objects.get(name)
        if instance is None:
            return m.MISSING, b""
        reset = current_call.set(CallContext(session, self.index, self.time))
        try:
            method = method_of(type(instance), group[0])
            if method is None:
                raise AttributeError(f"the shared class {type(instance).__qualname__} has no method {group[0]!r}")
            arguments, keywords = loads(group[1]) if group[1] else ((), {})
            if guarded and method.guard is not None and not method.guard(instance, *arguments, **keywords):
                return None
            result = method.function(instance, *arguments, **keywords)
            return result if isinstance(result, Then) else (m.VALUE, _checked(dumps(result)))
        except (Exception, SystemExit) as error:  # noqa: BLE001  for the caller
            return m.RAISED, _packed(error)
        finally:
            current_call.reset(reset)

    def _answer(self, session: int, sequence: int, kind: int, body: bytes) -> None:
        answer = m.MethodAnswer(session, sequence, kind, body)
        if session in self.sessions:
            self.sessions[session] = answer
        self.answers.append(answer)

    # -- objects

    def _create(self, call: m.MethodEntry) -> tuple[int, bytes]:
        reset = current_call.set(CallContext(call.session, self.index, self.time))
        try:
            cls, arguments, keywords = loads(call.arguments)
            check_shared(cls)
            if (present := self.objects.get(call.object)) is None:
                made = cls(*arguments, **keywords)
                digest(made), dumps(made)  # raise now, and not when a replica needs the state
                self.objects[call.object] = made
            elif type(present).__qualname__ != cls.__qualname__:
                raise TypeError(f"object {call.object!r} is a {type(present).__qualname__}, not a {cls.__qualname__}")
            return m.VALUE, dumps(None)
        except (Exception, SystemExit) as error:  # noqa: BLE001  for the caller
            return m.RAISED, _packed(error)
        finally:
            current_call.reset(reset)

    def _drop(self, name: str) -> tuple[int, bytes]:
        existed = self.objects.pop(name, None) is not None
        for number in [number for number, call in self.waiting.items() if call.object == name]:
            self._answer_waiting(number, m.MISSING)
        return m.VALUE, dumps(existed)

    # -- waiting calls

    def _park(self, call: Waiting) -> None:
        self._arrivals += 1
        number = self._arrivals
        self.waiting[number] = call
        self.sessions[call.session] = number
        if call.at is None:
            self._groups.setdefault(call.object, {}).setdefault(call.group, {})[number] = None
        for time in (call.at, call.deadline):
            if time is not None:
                heapq.heappush(self._alarms, (time, number))

    def _unpark(self, number: int) -> Waiting:
        call = self.waiting.pop(number)
        if call.at is None:
            groups = self._groups[call.object]
            del groups[call.group][number]
            if not groups[call.group]:
                del groups[call.group]
        return call

    def _answer_waiting(self, number: int, kind: int, body: bytes = b"") -> None:
        """Answer a waiting call that does not run."""
        call = self._unpark(number)
        self._answer(call.session, call.sequence, kind, body)

    def _abandon(self, number: int, kind: int) -> None:
        """End the wait of a call, and report it to the object."""
        call = self.waiting[number]
        self._answer_waiting(number, kind)
        self._report("_withdrawn", call.session, call.object)

    def _report(self, hook: str, session: int, name: str) -> None:
        if hasattr(type(self.objects[name]), hook):
            self._run(session, name, (hook, dumps(((session,), {}))), guarded=False)
            self._wake(name)

    def _wake(self, name: str) -> None:
        """Run waiting calls of an object, the oldest first, until all guards are false."""
        while (number := self._ready(name)) is not None:
            self._proceed(self._unpark(number), guarded=False)

    def _ready(self, name: str) -> int | None:
        """Return the oldest waiting call whose guard is true. Calls of one group have one guard."""
        if not (groups := self._groups.get(name)):
            return None
        heads = sorted((next(iter(numbers)), group) for group, numbers in groups.items())
        return next((number for number, group in heads if self._holds(number, group)), None)

    def _holds(self, number: int, group: Group) -> bool:
        """Return whether the guard is true. Answers the calls of a group whose guard raises."""
        call = self.waiting[number]
        instance = self.objects[call.object]
        method = method_of(type(instance), group[0])
        if method is None or method.guard is None:
            return True
        arguments, keywords = loads(group[1]) if group[1] else ((), {})
        reset = current_call.set(CallContext(call.session, self.index, self.time))
        try:
            return bool(method.guard(instance, *arguments, **keywords))
        except (Exception, SystemExit) as error:  # noqa: BLE001  for the caller
            for waiting in list(self._groups[call.object][group]):
                self._answer_waiting(waiting, m.RAISED, _packed(error))
            return False
        finally:
            current_call.reset(reset)

    def _withdraw(self, session: int) -> None:
        number = self.sessions.get(session)
        if isinstance(number, int):
            self._abandon(number, m.WITHDRAWN)

    def _end(self, session: int) -> None:
        self._withdraw(session)
        if self.sessions.pop(session, self) is self:
            return
        for name in list(self.objects):
            self._report("_session_ended", session, name)

    def _pass(self) -> None:
        """Answer calls whose deadline is over, and run calls that waited for this time."""
        while (alarm := self.next_alarm()) is not None and alarm <= self.time:
            number = heapq.heappop(self._alarms)[1]
            call = self.waiting[number]
            if call.deadline is not None and call.deadline <= self.time:
                self._abandon(number, m.LATE)
            elif call.at is not None:
                self._proceed(self._unpark(number)._replace(at=None))
                self._wake(call.object)


def _checked(body: bytes) -> bytes:
    if len(body) > _RESULT_BYTES:
        raise ValueError(f"the result has {len(body):,} bytes; {_RESULT_BYTES:,} are allowed: return parts of it")
    return body


def _packed(error: BaseException) -> bytes:
    """Return the exception and its traceback; another class in place of one that cannot be pickled."""
    text = "".join(traceback.format_exception(error))
    try:
        data = dumps((error, text))
        loads(data)
    except Exception:  # noqa: BLE001  a user's class may raise anything
        return dumps((RuntimeError(f"{type(error).__qualname__}: {error}"), text))
    return data


def unpacked(body: bytes) -> BaseException:
    """Return the exception of an answer of kind RAISED, with the traceback as its cause."""
    error, text = loads(body)
    assert isinstance(error, BaseException)
    error.__cause__ = MethodTraceback(text)
    return error
