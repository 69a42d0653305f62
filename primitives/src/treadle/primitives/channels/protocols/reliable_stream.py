"""Everything from one member to another, once and in order, over whatever connections there are in turn.

Letters are numbered and kept until the other side has said that it has seen them; a new connection, or the way
through the coordinator, carries again what was not. So collectives need not know of connections that break (as in TCP,
RFC 9293, one layer up: a connection ends, a path only when its member is lost).
"""

from __future__ import annotations

from collections import deque

from ..messages import Letter, Message

_ACKNOWLEDGE_EVERY = 64


class Path:
    """One side of the path to another member."""

    def __init__(self) -> None:
        self._kept: deque[Letter] = deque()
        self._last = 0
        self._seen = 0
        self._acknowledged = 0
        self._early: dict[int, Letter] = {}

    def send(self, message: Message | None, last: bool = False) -> Letter:
        """The letter to transmit now, if there is a way; it is kept in any case."""
        self._last += 1
        letter = Letter(self._last, self._seen, message, last)
        self._acknowledged = self._seen
        self._kept.append(letter)
        return letter

    def receive(self, letter: Letter) -> list[Message]:
        """The messages that are next in order now."""
        while self._kept and self._kept[0].number <= letter.seen:
            self._kept.popleft()
        if letter.number <= self._seen:
            return []
        if letter.number == self._seen + 1 and not self._early:  # as nearly always
            self._seen += 1
            return [] if letter.message is None else [letter.message]
        self._early[letter.number] = letter
        messages = []
        while (next_one := self._early.pop(self._seen + 1, None)) is not None:
            self._seen += 1
            if next_one.message is not None:
                messages.append(next_one.message)
        return messages

    def acknowledgement(self, now: bool = False) -> Letter | None:
        """What to say when many letters have come and none goes back; `now`: when any have."""
        due = self._seen - self._acknowledged >= (1 if now else _ACKNOWLEDGE_EVERY)
        if not due:
            return None
        self._acknowledged = self._seen
        return Letter(0, self._seen)

    def again(self) -> list[Letter]:
        """What a new way must carry first."""
        return list(self._kept)

    @property
    def quiet(self) -> bool:
        """Whether the other side has seen everything."""
        return not self._kept
