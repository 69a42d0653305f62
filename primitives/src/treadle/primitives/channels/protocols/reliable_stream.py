"""Delivery of all messages between two members, once and in order, over successive connections.

Letters are numbered, and kept until the other side has acknowledged them. A new connection, or the relay through the
coordinator, carries the kept letters again. So collectives do not notice broken connections. This is TCP's method (RFC
9293) one layer up: a connection may end, a path ends only with its member.
"""

from __future__ import annotations

from collections import deque

from ..messages import Letter, Message

_ACKNOWLEDGE_EVERY = 64


class ReliableStream:
    """One side of the path to another member."""

    def __init__(self) -> None:
        self._kept: deque[Letter] = deque()
        self._last = 0
        self._seen = 0
        self._acknowledged = 0
        self._early: dict[int, Letter] = {}

    def send(self, message: Message | None, last: bool = False) -> Letter:
        """Return the letter to send now, if there is a connection or relay; it is kept until it is acknowledged."""
        self._last += 1
        letter = Letter(self._last, self._seen, message, last)
        self._acknowledged = self._seen
        self._kept.append(letter)
        return letter

    def receive(self, letter: Letter) -> list[Message]:
        """Return the messages that are now next in order."""
        while self._kept and self._kept[0].number <= letter.seen:
            self._kept.popleft()
        if letter.number <= self._seen:
            return []
        if letter.number == self._seen + 1 and not self._early:  # the usual case
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
        """Return an acknowledgement when many letters have arrived and none goes back; `now`: when any has."""
        due = self._seen - self._acknowledged >= (1 if now else _ACKNOWLEDGE_EVERY)
        if not due:
            return None
        self._acknowledged = self._seen
        return Letter(0, self._seen)

    def again(self) -> list[Letter]:
        """Return the letters that a new connection must carry first."""
        return list(self._kept)

    @property
    def quiet(self) -> bool:
        """Return whether the other side has acknowledged all letters."""
        return not self._kept
