"""Routes to other members: a connection that either side dialled, otherwise the relay of the coordinator."""

from __future__ import annotations

import contextlib
import select
import time
from collections.abc import Callable
from functools import partial
from socket import socket
from typing import TYPE_CHECKING

from ...errors import TreadleError
from ...small_threads import start_thread
from ...wire import WireError, connect, incoming, welcome
from ...wire.message_codec import decoder, encode_head
from ...wire.unauthenticated import Strangers, allowance
from ..messages import Caller, Letter, Message
from ..protocols.reliable_stream import ReliableStream
from .buffered_connection import Link

if TYPE_CHECKING:
    from ...wire import Connection, Identity
    from .socket_loop import SocketLoop

_TICK = 0.2
"""Seconds between checks for letters that are not acknowledged."""
_ACKNOWLEDGES = 5
"""Ticks after which received letters are acknowledged if no letter goes back, so that the sender can drop them."""
_PATIENCE = 5.0
"""Seconds that a connection may leave letters unacknowledged before the coordinator relays them."""
_DIALLING = 5.0
"""Seconds until a dialled member must have authenticated."""
_HANDSHAKES = 64
"""Limit of concurrent handshakes."""
_letter: Callable[[bytes, str], Letter] = decoder(Letter)
_caller: Callable[[bytes, str], Caller] = decoder(Caller)


class Road:
    """The route to one other member."""

    def __init__(self, member: str) -> None:
        self.member = member
        self.path = ReliableStream()
        self.addresses: tuple[str, ...] = ()
        """Where it can be dialled, the best first."""
        self.link: Link | None = None
        self.dialling = False
        self.relayed = False
        """No connection is possible for now; letters go through the coordinator."""
        self.dead = False
        """The member was lost or has ended: letters to it are dropped."""
        self.moved = time.monotonic()
        """Time of the last acknowledgement, or of the last tick without a waiting letter."""


class Roads:
    """All routes of a member. Needs the loop's lock."""

    def __init__(
        self,
        loop: SocketLoop,
        me: str,
        run: str,
        key: bytes,
        relay: Callable[[str, bytes], None],
        receive: Callable[[str, Message], None],
        reach: Callable[[str], None],
    ) -> None:
        """`reach` starts a search for a path to a member, unless one is under way."""
        self._loop, self._me, self._run, self._key = loop, me, run, key
        self._relay, self._receive, self._reach = relay, receive, reach
        self._roads: dict[str, Road] = {}
        self._links: set[Link] = set()
        self._strangers: Strangers[Connection] = Strangers(allowance(_HANDSHAKES), _DIALLING)
        self._ticks = 0
        self._closed = False

    # -- letters ----------

    def know(self, member: str, addresses: tuple[str, ...]) -> None:
        """Set the addresses at which a member can be dialled, the best first."""
        self._road(member).addresses = addresses

    def send(self, member: str, message: Message | None, last: bool = False) -> None:
        road = self._roads.get(member) or self._road(member)
        if road.dead:
            return
        letter = road.path.send(message, last)
        if road.link is not None:
            self._put(road, road.link, letter)
        else:
            self._carry(road, letter)

    def lose(self, member: str) -> None:
        """The member is lost: letters to it are dropped."""
        road = self._road(member)
        road.dead = True
        if road.link is not None:
            self._drop(road.link)

    @property
    def quiet(self) -> bool:
        """Return whether all members have acknowledged all letters."""
        return all(road.dead or road.path.quiet for road in self._roads.values())

    @property
    def relaying(self) -> bool:
        return any(road.relayed and not road.dead for road in self._roads.values())

    def farewell(self) -> None:
        """Announce this member's end to all members with a route, and ask for an immediate acknowledgement."""
        for road in list(self._roads.values()):
            if road.link is not None or not road.path.quiet:
                self.send(road.member, None, last=True)

    def from_relay(self, member: str, body: bytes) -> None:
        """Receive a letter that came through the coordinator; an invalid one counts as lost."""
        try:
            letter = _letter(body, member)
        except WireError:
            return
        self._arrived(self._road(member), letter)

    def _road(self, member: str) -> Road:
        if member not in self._roads:
            self._roads[member] = Road(member)
        return self._roads[member]

    def _carry(self, road: Road, letter: Letter) -> None:
        if road.link is not None:
            self._put(road, road.link, letter)
        elif road.relayed:
            self._relay(road.member, encode_head(letter))
            self._reach(road.member)
        else:
            self._dial(road)

    def _put(self, road: Road, link: Link, letter: Letter) -> None:
        try:
            if not link.send(encode_head(letter)):
                self._loop.change(link.fileno(), link.events)
        except WireError:
            self._broken(road, link)

    def _arrived(self, road: Road, letter: Letter) -> None:
        road.moved = time.monotonic()
        for message in road.path.receive(letter):
            self._receive(road.member, message)
        self._acknowledge(road, letter.last)
        if letter.last:
            road.dead = True  # the member has ended and needs no more letters

    def _acknowledge(self, road: Road, now: bool) -> None:
        answer = road.path.acknowledgement(now)
        if answer is not None and (road.link is not None or road.relayed):
            self._carry(road, answer)

    # -- connections ----------

    def accepted(self, sock: socket, identity: Identity | None) -> None:
        """Handshake with a caller in a thread. When too many callers are unauthenticated, the oldest is closed: a
        member authenticates within milliseconds, or falls back to the coordinator.
        """
        if len(self._strangers) >= self._strangers.most and (oldest := self._strangers.oldest()) is not None:
            oldest.abort()
        try:
            connection = incoming(sock, tls=identity)
        except WireError:
            return
        try:
            start_thread(self._accept, connection, identity, name="treadle-accept")
        except RuntimeError:  # too many threads: the caller dials again, or uses the coordinator
            connection.close()
        else:
            self._strangers.add(connection, time.monotonic())

    def _accept(self, connection: Connection, identity: Identity | None) -> None:
        try:
            key_of = {self._run: self._key}.get
            welcome(connection, key_of, deadline=time.monotonic() + _DIALLING, tls=identity)
            link = Link(connection)
            self._loop.do(lambda: self._proved(connection, link))
        except TreadleError:
            connection.close()
            self._loop.do(lambda: self._strangers.remove(connection))

    def _proved(self, connection: Connection, link: Link) -> None:
        self._strangers.remove(connection)
        self._listen(None, link)

    def opened(self, member: str, connection: Connection) -> None:
        """Use a path that both sides dialled. Called in the thread of the attempt."""
        link = Link(connection)
        self._loop.do(lambda: self._listen(self._road(member), link))

    def _dial(self, road: Road) -> None:
        if road.dialling or road.dead:
            return
        if not road.addresses:
            self._relay_all(road)
            return
        road.dialling = True
        start_thread(self._connect, road, road.addresses, name="treadle-dial")

    def _connect(self, road: Road, addresses: tuple[str, ...]) -> None:
        for address in addresses:
            with contextlib.suppress(TreadleError):
                link = Link(connect(address, self._run, self._key, deadline=time.monotonic() + _DIALLING))
                link.send(encode_head(Caller(self._me, road.member)))
                self._loop.do(lambda: self._listen(road, link))  # noqa: B023 - done at once
                return
        self._loop.do(lambda: self._unreachable(road))

    def _unreachable(self, road: Road) -> None:
        road.dialling = False
        if road.link is None and not road.dead and not self._closed:
            self._relay_all(road)

    def _listen(self, road: Road | None, link: Link) -> None:
        if self._closed:
            link.close()
            return
        self._links.add(link)
        known = [road]
        self._loop.register(link.fileno(), partial(self._ready, known, link))
        if road is not None:
            road.dialling = False
            self._use(road, link)
        self._ready(known, link, 0)

    def _use(self, road: Road, link: Link) -> None:
        road.link, road.relayed, road.moved = link, False, time.monotonic()
        for letter in road.path.again():
            if road.link is link:  # sending may have broken it
                self._put(road, link, letter)

    def _ready(self, known: list[Road | None], link: Link, event: int) -> None:
        try:
            if event & select.EPOLLOUT:
                link.flush()
                self._loop.change(link.fileno(), link.events)
            for head in link.receive():
                if known[0] is None:
                    known[0] = self._called(_caller(head, link.name), link)
                else:
                    self._arrived(known[0], _letter(head, link.name))
        except WireError:
            self._broken(known[0], link)

    def _called(self, caller: Caller, link: Link) -> Road:
        """Return the caller's route. Raises WireError when the caller meant another member."""
        if caller.called != self._me:
            raise WireError(f"{link.name} called {caller.called}, which was here before")
        road = self._road(caller.member)
        if road.link is None:
            self._use(road, link)
        return road

    def _broken(self, road: Road | None, link: Link) -> None:
        self._drop(link)
        if road is None or road.link is not link:
            return
        road.link, road.dialling = None, True
        # not at once: the next connection may break in the same way
        self._loop.later(_TICK, partial(self._dial_again, road))

    def _dial_again(self, road: Road) -> None:
        road.dialling = False
        if road.link is None and not road.path.quiet and not self._closed:
            self._dial(road)

    def _drop(self, link: Link) -> None:
        if link in self._links:
            self._links.discard(link)
            self._loop.unregister(link.fileno())
            link.close()

    # -- without a connection ----------

    def _relay_all(self, road: Road) -> None:
        road.relayed = True
        self._reach(road.member)
        for letter in road.path.again():
            self._relay(road.member, encode_head(letter))

    def tick(self) -> None:
        """Check all routes, and schedule the next tick."""
        if self._closed:
            return
        self._loop.later(_TICK, self.tick)
        self._ticks += 1
        now = time.monotonic()
        for road in list(self._roads.values()):
            if not road.dead:
                self._look_after(road, now)

    def _look_after(self, road: Road, now: float) -> None:
        if road.relayed or self._ticks % _ACKNOWLEDGES == 0:
            self._acknowledge(road, True)
        if road.path.quiet:
            road.moved = now
        if now - road.moved < _PATIENCE * (0.1 if road.relayed else 1):
            return
        road.moved = now
        if road.link is not None:
            link, road.link = road.link, None
            self._drop(link)
            self._relay_all(road)
        elif road.relayed:
            self._relay_all(road)
        else:
            road.dialling = False  # the attempt is too old to count on
            self._dial(road)

    def close(self) -> None:
        self._closed = True
        while (stranger := self._strangers.oldest()) is not None:
            stranger.abort()
        for link in list(self._links):
            self._drop(link)
