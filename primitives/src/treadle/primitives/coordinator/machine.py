"""The coordinator of one run. Pure: events in, instructions out; the clock is passed in.

A connection is a stranger until it sends Hello; then it belongs to a member. A member is `live` while it has a
connection:

    state     event                              next     effect
    -         Hello                              live
    live      any message                        live     its lease is renewed
    live      Hello over another connection      live     the older connection is closed and its remaining messages are
                                                          ignored; then as after `away`. From another host: refused
    live      its connection ends                away     none yet: its seats, tasks and blocks stay
    live      silence for `lease`                -        it is lost
    live      Bye                                -        it has left
    away      Hello                              live     its tasks are sent again; its blocks are forgotten until it
                                                          announces them; channels that it does not join again within
                                                          `grace` treat it as lost
    away      silence for `grace`                -        it is lost

    lost      removed from its channels, whose next views name it. Its barriers break. Its tasks are offered before
              all others, or returned if they were for it alone. Its blocks are forgotten. A lost member that returns
              is a new member
    left      the same, but no view names it, and its tasks go behind the others

A connection is closed when its first message is not Hello, or when it sends nothing for `lease`. When `tick` comes more
than `grace` later than `wakes_at` said, this process stood still, and all leases are renewed.

Channels, barriers and tasks have state tables of their own, in `channels`, `barriers` and `task_queue`. Answers are
sent at once, views at `tick`: all changes between two ticks go into one view. A new Coordinator replaces a dead one
without any state; returning members report all it has to know.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct

from .barriers import Barriers
from .block_directory import BlockDirectory
from .channels import Channels
from .component import CoordinatorLimits, Deadlines, Epochs, Latest, Refusal, Statistics, Timing, check
from .instructions import Deliver, Disconnect, Instruction, Returned, SendToConnection, StateSaved
from .messages import (
    Alive,
    Announce,
    Bye,
    Checkpointed,
    Count,
    Counted,
    Dial,
    Dismissed,
    Finished,
    FromMember,
    GiveUp,
    Hello,
    Join,
    Leave,
    Locate,
    Located,
    Reach,
    Refused,
    Relay,
    Relayed,
    SaveState,
    Seat,
    Take,
    ToMember,
    Wait,
    Withdraw,
)
from .task_queue import Tasks


class _Member(Struct):
    name: str
    address: str
    host: str
    connection: int | None
    seen_at: str
    """Its address as the coordinator sees it."""
    nearby: str = ""

    @property
    def seat(self) -> Seat:
        return Seat(self.name, self.address, self.host, nearby=self.nearby)


class Coordinator:
    """State of one run's members. The shell numbers connections and never uses a number twice.

    `last_epoch`: all epochs are higher. It must grow from one coordinator of a run to the next.
    """

    def __init__(
        self,
        *,
        timing: Timing | None = None,
        limits: CoordinatorLimits | None = None,
        last_epoch: int = 0,
        token: Callable[[], bytes] = lambda: secrets.token_bytes(16),
    ) -> None:
        self._timing, self._limits, self._token = timing or Timing(), limits or CoordinatorLimits(), token
        epochs = Epochs(last_epoch)
        self._channels = Channels(self._post, epochs, self._timing, self._limits)
        self._barriers = Barriers(self._post, self._timing, self._limits)
        self._directory = BlockDirectory(self._limits)
        self._tasks = Tasks(self._post, self._give_back, epochs, self._limits)
        self._now = float("-inf")
        self._out: list[Instruction] = []
        self._members: dict[str, _Member] = {}
        self._ended: Latest[None] = Latest(self._limits.ended)
        self._connections: dict[int, _Member] = {}
        self._strangers: dict[int, str] = {}
        self._leases: Deadlines[str] = Deadlines(self._timing.lease)
        self._away: Deadlines[str] = Deadlines(self._timing.grace)
        self._confirming: Deadlines[str] = Deadlines(self._timing.grace)
        self._arrived: Deadlines[int] = Deadlines(self._timing.lease)

    # -- queries

    def statistics(self) -> Statistics:
        """Return the counts of all entries."""
        return Statistics(
            len(self._members),
            len(self._connections) + len(self._strangers),
            len(self._channels),
            len(self._barriers),
            len(self._directory),
            len(self._tasks),
        )

    def present(self, member: str) -> bool:
        """Return whether the member is live or away."""
        return member in self._members

    def members(self) -> Sequence[str]:
        """Return the names of the members that are live or away."""
        return list(self._members)

    def wakes_at(self) -> float | None:
        """Return the time at which `tick` is needed next; None: not before another event."""
        parts = (self._leases, self._away, self._confirming, self._arrived, self._channels, self._barriers)
        return min((end for part in parts if (end := part.wakes_at()) is not None), default=None)

    # -- events

    def connected(self, connection: int, now: float, address: str = "") -> list[Instruction]:
        """A connection passed the challenge; `address` is its other end as the coordinator sees it."""
        self._begin(now)
        if len(self._connections) + len(self._strangers) >= self._limits.connections:
            return [Disconnect(connection)]
        self._strangers[connection] = address
        self._arrived.begin(connection, self._now)
        return []

    def received(self, connection: int, message: FromMember, now: float) -> list[Instruction]:
        """A message arrived; it is ignored if the connection is unknown or forgotten."""
        out = self._begin(now)
        try:
            if connection in self._strangers:
                self._introduce(connection, message)
            elif (member := self._connections.get(connection)) is not None:
                self._leases.begin(member.name, self._now)
                _HANDLERS[type(message)](self, member, message)
        except Refusal as refusal:
            out.append(SendToConnection(connection, Refused(refusal.subject, refusal.reason, refusal.ended)))
            self._close_stranger(connection)
        return out

    def disconnected(self, connection: int, now: float) -> list[Instruction]:
        """A connection ended without Bye."""
        out = self._begin(now)
        self._forget_stranger(connection)
        member = self._connections.pop(connection, None)
        if member is not None:
            self._cut(member)
            self._leases.cancel(member.name)
            self._away.begin(member.name, self._now)
        return out

    def tick(self, now: float) -> list[Instruction]:
        """Time has passed or a batch of messages is complete: handle deadlines and send the views that are due."""
        due = self.wakes_at()
        out = self._begin(now)
        if due is not None and self._now - due > self._timing.grace:
            self._forgive()
        self._expire()
        self._barriers.forget(self._now)
        self._channels.flush(self._now)
        return out

    def offer(self, task: str, body: bytes, now: float, member: str = "") -> list[Instruction]:
        """The owner offers a task, for one member or for any. A task for an absent member waits for the member.

        Raises UsageError when a task of this name is already offered.
        """
        out = self._begin(now)
        self._tasks.offer(task, body, member)
        return out

    def withdraw(self, task: str, now: float) -> list[Instruction]:
        """The owner withdraws the task: neither Deliver nor Returned will name it."""
        out = self._begin(now)
        self._tasks.withdraw(task)
        return out

    def tell(self, member: str, message: Dismissed | Checkpointed, now: float) -> list[Instruction]:
        """The owner sends a message to a member; does nothing when the member is absent."""
        out = self._begin(now)
        if member in self._members:
            self._post(member, message)
        return out

    def _begin(self, now: float) -> list[Instruction]:
        self._now = max(now, self._now)
        self._out = []
        return self._out

    def _post(self, member: str, message: ToMember) -> None:
        connection = self._members[member].connection
        if connection is not None:
            self._out.append(SendToConnection(connection, message))

    def _give_back(self, returned: Returned) -> None:
        self._out.append(returned)

    # -- members

    def _introduce(self, connection: int, message: FromMember) -> None:
        if not isinstance(message, Hello):
            self._close_stranger(connection)
            return
        self._check_hello(message)
        seen_at = self._strangers[connection]
        self._forget_stranger(connection)
        member = self._members.get(message.member)
        if member is None:
            member = _Member(message.member, message.address, message.host, connection, seen_at, message.nearby)
            self._members[member.name] = member
        else:
            self._resume(member, connection, seen_at, message)
        self._connections[connection] = member
        self._leases.begin(member.name, self._now)
        self._tasks.remind(member.name)

    def _check_hello(self, hello: Hello) -> None:
        check(0 < len(hello.member) <= self._limits.name, hello.member, "a member's name has 1 to 1,000 characters")
        short = max(len(hello.address), len(hello.host), len(hello.nearby)) <= self._limits.name
        check(short, hello.member, "its address or host id is too long")
        known = self._members.get(hello.member)
        other = known is not None and known.connection is not None and known.host != hello.host
        check(not other, hello.member, "a member of this name is here, on another host")

    def _resume(self, member: _Member, connection: int, seen_at: str, hello: Hello) -> None:
        """The member has a new connection. Forget the state that it must report again over that connection."""
        if member.connection is not None:
            del self._connections[member.connection]
            self._out.append(Disconnect(member.connection))
            self._cut(member)
        self._away.cancel(member.name)
        member.connection, member.seen_at = connection, seen_at
        member.address, member.host, member.nearby = hello.address, hello.host, hello.nearby
        self._directory.drop(member.name)
        self._confirming.begin(member.name, self._now)

    def _cut(self, member: _Member) -> None:
        member.connection = None
        self._confirming.cancel(member.name)
        self._channels.cut(member.name)
        self._tasks.cut(member.name)

    def _forget_stranger(self, connection: int) -> None:
        self._strangers.pop(connection, None)
        self._arrived.cancel(connection)

    def _close_stranger(self, connection: int) -> None:
        if connection in self._strangers:
            self._forget_stranger(connection)
            self._out.append(Disconnect(connection))

    def _remove(self, member: _Member, *, lost: bool) -> None:
        name = member.name
        if member.connection is not None:
            del self._connections[member.connection]
            self._out.append(Disconnect(member.connection))
            member.connection = None
        for deadlines in (self._leases, self._away, self._confirming):
            deadlines.cancel(name)
        self._channels.drop(name, self._now, lost=lost)
        self._barriers.drop(name, self._now)
        self._directory.drop(name)
        self._tasks.drop(name, lost=lost)
        del self._members[name]
        self._ended[name] = None

    # -- time

    def _forgive(self) -> None:
        """This process stood still: members' messages of that time are still unread, so all deadlines restart."""
        for deadlines in (self._leases, self._away, self._confirming):
            deadlines.begin_all(self._now)
        self._arrived.begin_all(self._now)

    def _expire(self) -> None:
        for connection in self._arrived.over(self._now):
            self._close_stranger(connection)
        for deadlines in (self._leases, self._away):
            for name in deadlines.over(self._now):
                self._remove(self._members[name], lost=True)
        for name in self._confirming.over(self._now):
            self._channels.confirm(name, self._now)

    # -- messages

    def _on_hello(self, member: _Member, message: Hello) -> None:
        check(message.member == member.name, message.member, f"this connection is {member.name}'s")

    def _on_alive(self, member: _Member, message: Alive) -> None:
        self._post(member.name, message)

    def _on_join(self, member: _Member, message: Join) -> None:
        self._channels.join(member.seat, message, self._now)

    def _on_leave(self, member: _Member, message: Leave) -> None:
        self._channels.leave(member.name, message.channel, self._now)

    def _on_bye(self, member: _Member, _: Bye) -> None:
        self._remove(member, lost=False)

    def _on_wait(self, member: _Member, message: Wait) -> None:
        self._barriers.wait(member.name, message)

    def _on_count(self, member: _Member, message: Count) -> None:
        name = message.subject
        present, parties = self._channels.count(name) or self._barriers.count(name) or (0, 0)
        self._post(member.name, Counted(name, present, parties))

    def _on_announce(self, member: _Member, message: Announce) -> None:
        self._directory.announce(member.name, message.blocks)

    def _on_withdraw(self, member: _Member, message: Withdraw) -> None:
        self._directory.withdraw(member.name, message.blocks)

    def _on_locate(self, member: _Member, message: Locate) -> None:
        seats = tuple(self._members[name].seat for name in self._directory.locate(message.block))
        self._post(member.name, Located(message.block, seats))

    def _on_reach(self, member: _Member, message: Reach) -> None:
        other = self._other(member, message.member)
        token, delay = self._token(), self._timing.dial
        self._post(member.name, Dial(other.name, other.seen_at, token, delay))
        self._post(other.name, Dial(member.name, member.seen_at, token, delay))

    def _on_relay(self, member: _Member, message: Relay) -> None:
        limit = self._limits.relayed
        check(len(message.body) <= limit, message.member, f"more than {limit} bytes are not relayed")
        self._post(self._other(member, message.member).name, Relayed(member.name, message.body))

    def _other(self, member: _Member, name: str) -> _Member:
        other = self._members.get(name)
        if other is None and name in self._ended:
            raise Refusal(name, "it has ended", ended=True)
        if other is None or other is member or other.connection is None:
            raise Refusal(name[:100], "it is not connected")
        return other

    def _on_take(self, member: _Member, message: Take) -> None:
        self._tasks.take(member.name, message.free)

    def _on_give_up(self, member: _Member, message: GiveUp) -> None:
        self._tasks.give_up(member.name, message)

    def _on_finished(self, member: _Member, message: Finished) -> None:
        if self._tasks.finish(member.name, message):
            self._out.append(Deliver(message.task, member.name, message.result))

    def _on_save_state(self, member: _Member, message: SaveState) -> None:
        self._out.append(StateSaved(member.name, message.checkpoint, message.state))


_HANDLERS: dict[type, Callable[[Coordinator, _Member, Any], None]] = {
    Hello: Coordinator._on_hello,
    Alive: Coordinator._on_alive,
    Join: Coordinator._on_join,
    Leave: Coordinator._on_leave,
    Bye: Coordinator._on_bye,
    Wait: Coordinator._on_wait,
    Count: Coordinator._on_count,
    Announce: Coordinator._on_announce,
    Withdraw: Coordinator._on_withdraw,
    Locate: Coordinator._on_locate,
    Reach: Coordinator._on_reach,
    Relay: Coordinator._on_relay,
    Take: Coordinator._on_take,
    GiveUp: Coordinator._on_give_up,
    Finished: Coordinator._on_finished,
    SaveState: Coordinator._on_save_state,
}
