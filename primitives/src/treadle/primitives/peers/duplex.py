"""A connection over which both members pull: one thread receives, another one sends."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from typing import Any

from ..wire import Connection, WireError
from .messages import PIECE, REQUEST_LIMIT, Ask, AskAnswer
from .range_prefetch import allocate

_CHUNK = 256 << 10
"""Bytes after which `moved` is called."""
_PATIENCE = 60.0
"""Seconds in which the other side must accept one message."""
_BEHIND = 1000
"""Limit of requests that wait for their answers."""
_FOREVER = 1e9
Answered = tuple[AskAnswer, list[bytes]]
"""An answer and its bytes."""


class BothWays:
    """A path between two members. Messages leave in order, and no call blocks the caller."""

    def __init__(
        self,
        connection: Connection,
        *,
        answer: Callable[[Ask], Answered],
        heard: Callable[[AskAnswer, memoryview], None],
        moved: Callable[[], None],
        ended: Callable[[BothWays], None],
    ) -> None:
        """Owns the connection. The sending thread calls `answer`; the receiving thread calls the others.

        `heard` receives the other side's answers. `moved` is called when bytes arrive. `ended` is called last, once.
        """
        self._connection, self._answer, self._heard = connection, answer, heard
        self._moved, self._ended = moved, ended
        self._unsaid: queue.SimpleQueue[tuple[Ask, bool] | None] = queue.SimpleQueue()
        """Messages to send: own requests, and (True) requests of the other side to answer."""
        self._speaking = threading.Thread(target=self._speak, name="treadle-path-speaking", daemon=True)
        self._hearing = threading.Thread(target=self._hear, name="treadle-path-hearing", daemon=True)

    def start(self) -> None:
        """Start the threads. Raises RuntimeError when no thread can be started; then the connection is closed without
        `ended`.
        """
        try:
            self._speaking.start()  # first, because the receiving thread joins it
            self._hearing.start()
        except RuntimeError:
            self.close()
            self._connection.close()  # the sending thread, if it was started, has nothing to send
            raise

    def ask(self, ask: Ask) -> None:
        """Queue a request without blocking; a failure to send it ends the path."""
        self._unsaid.put((ask, False))

    def close(self) -> None:
        """End the path. For any thread, at any time; may be called again."""
        self._connection.abort()
        self._unsaid.put(None)

    def join(self) -> None:
        """Wait until both threads have ended; not to be called by them."""
        self._speaking.join()
        self._hearing.join()

    # -- its threads

    def _hear(self) -> None:
        try:
            while True:
                message, length = self._connection.receive_head(
                    Ask | AskAnswer, _FOREVER, head_limit=REQUEST_LIMIT, tail_limit=PIECE
                )
                self._moved()
                if not isinstance(message, Ask):
                    self._heard(message, self._receive(length))
                elif length or self._unsaid.qsize() > _BEHIND:
                    return  # a malformed request, or answers that the other side does not read
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
            self._connection.abort()  # the receiving thread notices
