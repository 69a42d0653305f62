"""This process as a member of a gang: its channels, and its routes to other members."""

from __future__ import annotations

import os
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import Struct

from ..blocks import Blocks
from ..coordinator.messages import (
    Broken,
    Bye,
    Checkpointed,
    Count,
    Counted,
    Dial,
    Dismissed,
    FromMember,
    Hello,
    Join,
    Leave,
    Refused,
    Relay,
    Relayed,
    Released,
    Seat,
    ToMember,
    View,
)
from ..errors import TreadleError, UsageError
from ..hole_punching import ANY, Reacher
from ..stores.shared_memory import SHARED_MEMORY, host_id
from ..wire import Address, address_of, identity_of, is_loopback, listen, parse
from .barriers import MemberBarriers
from .checkpoints import MemberCheckpoints
from .errors import DeadlinePassed, GangEnded, MemberLost
from .gang import Gang, folder_of
from .io.coordinator_client import CoordinatorClient
from .io.payloads import ValueCodec
from .io.peer_routes import Roads
from .io.socket_loop import Late, SocketLoop
from .messages import DATA, Message, Moved
from .protocols.collective import CollectiveMachine
from .protocols.membership import Send, advance

if TYPE_CHECKING:
    from ..wire import Identity

T = TypeVar("T")
_LONGER = "Where it only is busy for longer, give the stage a `timeout`, or the call a `deadline`."
_PAUSE = 0.1
"""Seconds until connections are accepted again."""
_FAREWELL = 5.0
"""Seconds that a leaving member waits until other members have received its messages."""


class Joined(Struct):
    """A channel that this member is in."""

    join: Join
    machine: CollectiveMachine
    close: Callable[[], None]
    refused: str = ""
    open: bool = False
    """The channel has a view, and this member is in it."""


class Member:
    """A member of a gang, connected to the coordinator. It connects to other members when it first sends to them.
    Thread-safe.
    """

    def __init__(self, gang: Gang, key: bytes, blocks: Blocks) -> None:
        """Connect. Raises DeadlinePassed, WireError and NotAuthentic."""
        self.gang = gang
        self.name = f"{gang.name}/{gang.rank}.{os.urandom(6).hex()}"
        self.values = ValueCodec(blocks, folder_of(self.name), lambda: self._roads.relaying, one_host=gang.one_host)
        self.counts: Counter[str] = Counter()
        """Messages sent to members: `data` and `control`."""
        self._host = blocks.host.host_id if blocks.host is not None else host_id(SHARED_MEMORY)
        self._channels: dict[str, Joined] = {}
        self._counted: dict[str, Counted] = {}
        self._left = ""
        """The latest channel that was left; the coordinator may not have processed Leave yet."""
        self._loop = SocketLoop()
        self._plain = is_loopback(parse(gang.address).host)
        """Connections are not encrypted."""
        self._identity = identity_of(gang.identity) if gang.identity and not self._plain else None
        source = None if self._plain and gang.inbound else ANY
        self._uplink = CoordinatorClient(
            self._loop, gang.address, gang.run, key, self._introduction, self._on_message, source
        )
        self._barriers = MemberBarriers(self._loop, gang, blocks, self._uplink.send)
        self._checkpoints = MemberCheckpoints(self._loop, gang, blocks, self._uplink.send)
        self._roads = Roads(self._loop, self.name, gang.run, key, self._relay, self._on_letter, self._reach)
        self._reacher: Reacher | None = None
        self._key = key
        self._listeners: dict[int, tuple[socket.socket, Identity | None]] = {}
        self.address = self.nearby = ""
        self.leaves_by = float("inf")
        """Time of `time.monotonic()` at which the member ends, even if other members still wait."""
        try:
            self._open()
        except BaseException:
            self._release()
            raise

    def _open(self) -> None:
        local = self._uplink.open(time.monotonic() + self.gang.deadline)
        self._begin_listening(local)
        with self._loop.lock:
            self._uplink.begin()
            self._uplink.beat()
            self._roads.tick()

    def _begin_listening(self, local: str) -> None:
        """Members of this host dial a Unix socket. Off loopback an identity is needed for the others."""
        if not (self.gang.inbound and (self._plain or self._identity)):
            return
        near = self._listen("unix:", None)
        if self._plain and self.gang.one_host:
            self.address = near
        else:
            self.address = self._listen(str(Address("tcp" if self._plain else "tls", local, 0)), self._identity)
            self.nearby = near

    def _listen(self, address: str, identity: Identity | None) -> str:
        listener = listen(address)
        listener.setblocking(False)
        self._listeners[listener.fileno()] = listener, identity
        self._loop.do(partial(self._accept_from_now, listener.fileno()))
        return address_of(listener, tls=identity is not None)

    def _reach(self, member: str) -> None:
        """Search for a path; not where every member can be dialled."""
        if (reacher := self._reaching()) is not None:
            reacher.want(member)

    def _on_dial(self, dial: Dial) -> None:
        if (source := self._uplink.source) is not None and (reacher := self._reaching()) is not None:
            reacher.dial(dial, source)

    def _reaching(self) -> Reacher | None:
        possible = self._identity is not None or (self._plain and not self.gang.inbound)
        if self._reacher is None and possible:
            self._reacher = Reacher(
                self.name,
                self.gang.run,
                self._key,
                ask=self._uplink.send,
                opened=self._roads.opened,
                tls=self._identity,
            )
        return self._reacher

    def _accept_from_now(self, fd: int) -> None:
        if fd in self._listeners:
            self._loop.register(fd, lambda _: self._accept(fd))

    def _accept(self, fd: int) -> None:
        listener, identity = self._listeners[fd]
        try:
            sock, _where = listener.accept()
        except BlockingIOError:
            return  # the caller has disconnected
        except OSError:  # out of descriptors: an immediate retry would fail too
            self._loop.unregister(fd)
            self._loop.later(_PAUSE, partial(self._accept_from_now, fd))
            return
        self._roads.accepted(sock, identity)

    # -- for channels ----------

    @property
    def coordinator_messages(self) -> int:
        """Messages to and from the coordinator, without heartbeats."""
        return self._uplink.messages

    def join(self, join: Join, machine: CollectiveMachine, close: Callable[[], None]) -> None:
        """Join a channel; its first view arrives when all parties have joined. Raises UsageError when already in it.

        `close` leaves the channel in good order; it is called when the member ends.
        """
        self._loop.do(lambda: self._join(join, machine, close))

    def _join(self, join: Join, machine: CollectiveMachine, close: Callable[[], None]) -> None:
        if join.channel in self._channels:
            raise UsageError(f"this member is in {machine.title} already", "Leave it first, or use another name.")
        self._channels[join.channel] = Joined(join, machine, close)
        self._uplink.send(join)

    def leave(self, channel: str) -> None:
        """Leave a channel in good order; does nothing when this member is not in it."""
        self._loop.do(lambda: self._leave(channel))

    def _leave(self, channel: str) -> None:
        if self._channels.pop(channel, None) is not None:
            self._uplink.send(Leave(channel))
            self._left = channel

    def act(self, channel: str, poll: Callable[[], T | None], deadline: float, what: str) -> T:
        """Return the result of `poll` once it is not None and this member has the channel's first view.

        `poll` is called again after each event. Raises DeadlinePassed, and the errors of `poll`.
        """
        joined = self._channels[channel]
        try:
            with self._loop.lock:
                while not joined.open or (result := poll()) is None:
                    self._check(joined)
                    self._loop.wait_once(deadline)
                return result
        except Late:
            raise self._late(joined.machine.title, channel, what, forming=not joined.machine.epoch) from None

    def _check(self, joined: Joined) -> None:
        """Raise for a channel that will never open (again)."""
        if joined.refused:
            raise UsageError(f"{joined.machine.title} cannot be joined: {joined.refused}")
        if not joined.open and self.name in joined.machine.roster.lost:
            raise MemberLost(joined.machine.title, [self.name])

    def send(self, sends: Sequence[Send]) -> None:
        """Give messages to the routes; only within a poll."""
        for member, message in sends:
            self.counts["data" if type(message) in DATA else "control"] += 1
            self._roads.send(member, message)

    def wait_at(self, barrier: str, parties: int, deadline: float) -> None:
        """Arrive at a barrier and wait for the other parties. Raises MemberLost, DeadlinePassed, UsageError,
        StoreError.
        """
        if self.gang.one_host:
            self._settle(deadline)
        try:
            self._barriers.wait(barrier, parties, deadline)
        except Late:
            raise self._late(f"barrier {barrier}", barrier, "wait", forming=True) from None

    def save_state(self, state: Any, deadline: float) -> int:
        """See `GangContext.checkpoint`; `deadline` in seconds."""
        return self._checkpoints.save(state, deadline)

    def _settle(self, deadline: float) -> None:
        """Wait until the coordinator has processed Leave. A board bypasses the coordinator, and after the barrier other
        members may join the channel again.
        """
        while (left := self._left) and time.monotonic() < deadline:
            if self._count(left) is not None and self._left == left:
                self._left = ""

    def _late(self, name: str, subject: str, what: str, *, forming: bool) -> DeadlinePassed:
        if not self._uplink.connected:
            return DeadlinePassed(f"{name}: {what} took too long; no coordinator: {self._uplink.trouble}")
        found = self._count(subject) if forming else None
        if found is None:
            return DeadlinePassed(f"{name}: {what} took too long", f"Another member may not use it alike. {_LONGER}")
        hint = f"All members of a gang must use it. {_LONGER}"
        who = f"{found.present} of {found.parties} members"
        return DeadlinePassed(f"{name}: {what} took too long: {who} are there", hint)

    def _count(self, subject: str) -> Counted | None:
        """Return how many members are present, from a board or from the coordinator; None when it does not answer
        within 1 s.
        """
        if (present := self._barriers.present(subject)) is not None:
            return present
        self._counted.pop(subject, None)
        self._loop.do(lambda: self._uplink.send(Count(subject)))
        try:
            return self._loop.wait(lambda: self._counted.get(subject), time.monotonic() + 1)
        except TreadleError:
            return None

    # -- received messages ----------

    def _introduction(self) -> Iterable[FromMember]:
        yield Hello(self.name, self.address, self._host, self.nearby)
        for joined in self._channels.values():
            yield self._joins_again(joined)
        yield from self._barriers.waits()
        yield from self._checkpoints.unanswered()

    def _joins_again(self, joined: Joined) -> Join:
        old, roster = joined.join, joined.machine.roster
        seat = roster.seat(self.name) if roster.epoch else old.seat
        return Join(old.channel, old.parties, old.fan_out, old.role, roster.epoch, seat, old.near)

    def _relay(self, member: str, body: bytes) -> None:
        self._uplink.send(Relay(member, body))

    def _on_letter(self, sender: str, message: Message) -> None:
        joined = self._channels.get(message.channel)
        if joined is None:
            return
        if sends := joined.machine.message(sender, message):
            self.send(sends)
        if type(message) is Moved:
            self._moved(joined)

    def _on_message(self, message: ToMember) -> None:
        if isinstance(message, View):
            self._on_view(message)
        elif isinstance(message, Relayed):
            self._roads.from_relay(message.member, message.body)
        elif isinstance(message, Released | Broken):
            self._barriers.heard(message)
        elif isinstance(message, Checkpointed):
            self._checkpoints.heard(message)
        elif isinstance(message, Dial):
            self._on_dial(message)
        elif isinstance(message, Dismissed):
            self._loop.fail(GangEnded())
        elif isinstance(message, Counted):
            self._counted[message.subject] = message
        elif isinstance(message, Refused):
            self._on_refused(message)

    def _on_view(self, view: View) -> None:
        joined = self._channels.get(view.channel)
        if joined is None or (roster := advance(joined.machine.roster, view)) is None:
            return
        for seat in roster.seats.values():
            self._roads.know(seat.member, self._addresses(seat))
        self.send(joined.machine.view(roster))
        self._moved(joined)

    def _moved(self, joined: Joined) -> None:
        """The channel has another view, or this member has missed one."""
        if joined.machine.behind:
            joined.machine.behind = False
            self._uplink.send(self._joins_again(joined))
        roster = joined.machine.roster
        for member in roster.lost:
            if member not in roster.members:
                self._roads.lose(member)
        joined.open = self.name not in roster.lost  # otherwise the other members continue without it

    def _addresses(self, seat: Seat) -> tuple[str, ...]:
        """The addresses at which this member dials another one, the best first."""
        near = seat.nearby if seat.host == self._host else ""
        return tuple(filter(None, (near, seat.address)))

    def _on_refused(self, message: Refused) -> None:
        if message.ended:  # letters to a member that left without a connection to this one
            self._roads.lose(message.subject)
        elif (joined := self._channels.get(message.subject)) is not None:
            joined.refused, joined.open = message.reason, False
        else:
            self._barriers.heard(message)

    # -- the end ----------

    def close(self) -> None:
        """Leave everything in good order: other members receive all messages, and the coordinator receives Bye."""
        self.leaves_by = time.monotonic() + min(_FAREWELL, self.gang.deadline)
        try:
            for joined in list(self._channels.values()):
                joined.close()
            self._flush(self.leaves_by)
        finally:
            self._release()

    def _flush(self, deadline: float) -> None:
        self._loop.do(self._roads.farewell)
        try:
            self._loop.wait(lambda: self._roads.quiet or None, deadline)
            self._loop.do(self._say_goodbye)
            self._loop.wait(lambda: not self._uplink.connected or None, deadline)
        except Late:
            pass  # a member does not answer: the coordinator will declare it lost
        except GangEnded:
            self._loop.do(self._say_goodbye)  # no member waits for messages

    def _say_goodbye(self) -> None:
        """The coordinator closes the connection after Bye. If this side closed first, unread messages could be lost."""
        self._uplink.stop()
        self._uplink.send(Bye())

    def _release(self) -> None:
        self._loop.do(self._let_go)
        self._loop.close()

    def _let_go(self) -> None:
        if self._reacher is not None:
            self._reacher.close()
        self._roads.close()
        self._uplink.close()
        self._barriers.close()
        for fd, (listener, _) in self._listeners.items():
            self._loop.unregister(fd)
            listener.close()
        self._listeners.clear()
        self.values.close()
