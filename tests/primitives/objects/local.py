"""A state without replication: calls of several sessions, one after another."""

from __future__ import annotations

from typing import Any

from treadle.primitives.objects import messages as m
from treadle.primitives.objects.state import State, unpacked
from treadle.primitives.objects.values import dumps, loads


class Late(Exception):
    """The deadline of a call was over."""


class Local:
    """Sessions 1, 2, ... of a state. `call` returns a result, or the session while the call waits."""

    WAITS = object()

    def __init__(self, cls: type, *arguments: Any, **keywords: Any) -> None:
        self.state, self.time = State(), 100.0
        self.sequences: dict[int, int] = {}
        self.results: dict[int, m.MethodAnswer] = {}
        self.apply(m.BeganEntry(self.time))
        self.sequences[1] = 0
        self.send(1, m.CREATE, dumps((cls, arguments, keywords)))
        self.value(1)

    def session(self) -> int:
        """Begin a session."""
        self.apply(m.BeganEntry(self.time))
        self.sequences[self.state.index] = 0
        return self.state.index

    def apply(self, entry: m.Entry) -> None:
        self.state.apply(entry)
        for answer in self.state.answers:
            self.results[answer.session] = answer
        self.state.answers.clear()

    def call(self, session: int, method: str, *arguments: Any, timeout: float | None = None) -> Any:
        deadline = None if timeout is None else self.time + timeout
        self.send(session, method, dumps((arguments, {})) if arguments else b"", deadline)
        return self.value(session)

    def send(self, session: int, method: str, arguments: bytes, deadline: float | None = None) -> None:
        self.results.pop(session, None)
        self.sequences[session] += 1
        self.apply(m.MethodEntry(self.time, session, self.sequences[session], "it", method, arguments, deadline))

    def value(self, session: int) -> Any:
        """The result of the session's call, or WAITS. Raises the exception of the method."""
        answer = self.results.get(session)
        if answer is None:
            return self.WAITS
        if answer.kind == m.RAISED:
            raise unpacked(answer.body)
        if answer.kind == m.LATE:
            raise Late
        assert answer.kind == m.VALUE, answer
        return loads(answer.body)

    def later(self, seconds: float) -> None:
        self.time += seconds
        self.apply(m.PassedEntry(self.time))

    def end(self, session: int) -> None:
        self.apply(m.EndedEntry(self.time, session))
