"""A connection over which both of its members pull: one thread hears, another one speaks."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from typing import Any

from ..wire import Connection, WireError
from .messages import PIECE, REQUEST_LIMIT, Answer, Ask
from .range_prefetch import allocate

_CHUNK = 256 << 10
"""Bytes after which `moved` is told."""
_PATIENCE = 60.0
"""Seconds in which the other side must take one message."""
_BEHIND = 1000
"""Asks that may wait for their answers."""
_FOREVER = 1e9
Answered = tuple[Answer, list[bytes]]
"""An answer and its bytes."""


class BothWays:
    """A path between two members. What is said leaves in order; nothing here waits for who asks."""

    def __init__(
        self,
        connection: Connection,
        *,
        answer: Callable[[Ask], Answered],
        heard: Callable[[Answer, memoryview], None],
        moved: Callable[[], None],
        ended: Callable[[BothWays], None],
    ) -> None:
        """Owns the connection. `answer` is called in the thread that speaks; the others in the one that hears.

        `heard` gets what the other side answers, `moved` is told that something came; `ended` comes last, once.
        """
        self._connection, self._answer, self._heard = connection, answer, heard
        self._moved, self._ended = moved, ended
        self._unsaid: queue.SimpleQueue[tuple[Ask, bool] | None] = queue.SimpleQueue()
        """Asks of ours, and (True) those to be answered."""
        self._speaking = threading.Thread(target=self._speak, name="treadle-path-speaking", daemon=True)
        self._hearing = threading.Thread(target=self._hear, name="treadle-path-hearing", daemon=True)

    def start(self) -> None:
        """Raises RuntimeError when there is no thread to be had: the connection is closed then, without `ended`."""
        try:
            self._speaking.start()  # first: whoever hears ends it
            self._hearing.start()
        except RuntimeError:
            self.close()
            self._connection.close()  # the one that may have been started has nothing to say
            raise

    def ask(self, ask: Ask) -> None:
        """Waits for nothing; what cannot be sent ends the path."""
        self._unsaid.put((ask, False))

    def close(self) -> None:
        """End it. For any thread, at any time; may be called again."""
        self._connection.abort()
        self._unsaid.put(None)

    def join(self) -> None:
        """Wait until both threads have ended; not for them."""
        self._speaking.join()
        self._hearing.join()

    # -- its threads

    def _hear(self) -> None:
        try:
            while True:
                message, length = self._connection.receive_head(
                    Ask | Answer, _FOREVER, head_limit=REQUEST_LIMIT, tail_limit=PIECE
                )
                self._moved()
                if not isinstance(message, Ask):
                    self._heard(message, self._receive(length))
                elif length or self._unsaid.qsize() > _BEHIND:
                    return  # it is no ask, or nobody reads the answers
                else:
                    self._unsaid.put((message, True))
        except WireError:
            pass
        finally:
            self.close()
            self._speaking.join()
            self._connection.close()
            self._ended(self)

    def _receive(self, length: int) -> memoryview:
        view = allocate(length)
        for start in range(0, length, _CHUNK):
            self._connection.receive_into(view[start : start + _CHUNK], time.monotonic() + _PATIENCE)
            self._moved()
        return view.toreadonly()

    def _speak(self) -> None:
        try:
            while (said := self._unsaid.get()) is not None:
                message: Any = said[0]
                data: list[bytes] = []
                if said[1]:
                    message, data = self._answer(message)
                self._connection.send(message, data, deadline=time.monotonic() + _PATIENCE)
        except WireError:
            self._connection.abort()  # whoever hears knows
