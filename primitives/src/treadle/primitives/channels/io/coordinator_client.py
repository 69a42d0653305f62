"""The connection to the coordinator. It is renewed when it breaks, and the member then repeats its whole state."""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from ...coordinator.messages import Alive, FromMember, ToMember
from ...errors import TreadleError
from ...small_threads import start_thread
from ...wire import WireError, connect
from ...wire.message_codec import decoder, encode_head
from .buffered_connection import Link

if TYPE_CHECKING:
    from .socket_loop import SocketLoop

_BEAT = 2.0
"""Seconds between heartbeats (Alive); the coordinator's lease is several of them."""
_SILENCE = 6.0
"""Seconds without a message from the coordinator, which answers every heartbeat, after which the connection is dead."""
_ATTEMPT = 5.0
_PAUSE, _LONGEST_PAUSE = 0.02, 0.5
"""Seconds between attempts to connect; each pause is twice the last."""
_decode: Callable[[bytes, str], ToMember] = decoder(ToMember)


class CoordinatorClient:
    """The member's connection to its coordinator. All methods but `open` need the loop's lock."""

    def __init__(
        self,
        loop: SocketLoop,
        address: str,
        run: str,
        key: bytes,
        introduction: Callable[[], Iterable[FromMember]],
        receive: Callable[[ToMember], None],
        source: tuple[str, int] | None = None,
    ) -> None:
        """`introduction` returns the first messages of a new connection, Hello first. `source`: as for `connect`."""
        self._loop, self.address, self._run, self._key = loop, address, run, key
        self._source = source
        self._introduction, self._receive = introduction, receive
        self._link: Link | None = None
        self._heard = time.monotonic()
        self._closed = False
        self.trouble = ""
        """The reason why the connection failed."""
        self.messages = 0
        """Messages sent and received, without heartbeats."""

    @property
    def connected(self) -> bool:
        return self._link is not None

    @property
    def source(self) -> tuple[str, int] | None:
        """The local address of the connection, which paths share (`hole_punching`); None without a connection."""
        return self._link.source if self._link is not None else None

    def open(self, deadline: float) -> str:
        """Connect. Returns this machine's address as the coordinator sees it.

        Raises NotAuthentic, and WireError when no coordinator was reached before the deadline.
        """
        pause = _PAUSE
        while self._link is None:
            try:
                self._link = self._new_link(deadline)
            except WireError:
                if time.monotonic() + pause > deadline:
                    raise
                time.sleep(pause)  # the coordinator may be about to restart
                pause = min(pause * 2, _LONGEST_PAUSE)
        return self._link.source[0]

    def _new_link(self, deadline: float) -> Link:
        return Link(connect(self.address, self._run, self._key, deadline=deadline, source=self._source))

    def begin(self) -> None:
        """Send the introduction, and receive from now on."""
        link = self._link
        assert link is not None
        self._heard = time.monotonic()
        self._loop.register(link.fileno(), lambda event: self._ready(link, event))
        for message in self._introduction():
            self.send(message)

    def beat(self) -> None:
        """Send a heartbeat and schedule the next one."""
        if self._closed:
            return
        self._loop.later(_BEAT, self.beat)
        if self._link is not None and time.monotonic() - self._heard > _SILENCE:
            self._lost(self._link, "it does not answer")
        self._put(Alive())

    def send(self, message: FromMember) -> None:
        """Send a message; without a connection it is dropped, because the introduction repeats all that matters."""
        self.messages += 1
        self._put(message)

    def _put(self, message: FromMember) -> None:
        link = self._link
        if link is None:
            return
        try:
            if not link.send(encode_head(message)):
                self._loop.change(link.fileno(), link.events)
        except WireError as error:
            self._lost(link, error.message)

    def _ready(self, link: Link, event: int) -> None:
        try:
            if event & select.EPOLLOUT:
                link.flush()
                self._loop.change(link.fileno(), link.events)
            messages = [_decode(head, link.name) for head in link.receive()]
        except WireError as error:
            self._lost(link, error.message)
            return
        self._heard = time.monotonic()
        for message in messages:
            if not isinstance(message, Alive):
                self.messages += 1
                self._receive(message)

    def _lost(self, link: Link, why: str) -> None:
        if link is not self._link:
            return
        self._loop.unregister(link.fileno())
        link.close()
        self._link, self.trouble = None, why
        if not self._closed:
            start_thread(self._reconnect, name="treadle-uplink")

    def _reconnect(self) -> None:
        pause = _PAUSE
        while not self._closed:
            try:
                link = self._new_link(time.monotonic() + _ATTEMPT)
            except TreadleError as error:
                self.trouble = error.message
                time.sleep(pause)
                pause = min(pause * 2, _LONGEST_PAUSE)
                continue
            self._loop.do(lambda: self._reconnected(link))  # noqa: B023 - done at once
            return

    def _reconnected(self, link: Link) -> None:
        if self._closed:
            link.close()
            return
        self._link, self.trouble = link, ""
        self.begin()

    def stop(self) -> None:
        """Do not connect again."""
        self._closed = True

    def close(self) -> None:
        self.stop()
        if self._link is not None:
            self._loop.unregister(self._link.fileno())
            self._link.close()
            self._link = None
