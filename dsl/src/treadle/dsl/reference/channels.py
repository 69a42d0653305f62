"""Channels between the partitions of a gang, each a thread of this process: the meaning of `primitives.channels`.

Uses the library's collectives and replaces their transport. It has no coordinator and no connections, and loses no
message. A channel's members sit in the seats that they claim, and a message is delivered when it is sent.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

from treadle.primitives.blocks import Blocks
from treadle.primitives.channels.errors import EQUALLY_OFTEN, DeadlinePassed, MemberLost
from treadle.primitives.channels.gang import Gang
from treadle.primitives.channels.member_scope import standing_in
from treadle.primitives.encoding.codec import encode
from treadle.primitives.errors import UsageError
from treadle.primitives.stores.store import Store

T = TypeVar("T")
DEADLINE = 60.0
"""Limit of an operation, in seconds; the engine's default."""


def together(parts: Sequence[Callable[[], T]], name: str) -> tuple[list[T], tuple[int, BaseException] | None]:
    """Run all parts concurrently and return their results, and the first (part, error) if one raised."""
    room = _Room(len(parts), name)
    results: dict[int, T] = {}
    threads = [
        threading.Thread(target=room.run, args=(rank, part, results), name=f"{name}/{rank}", daemon=True)
        for rank, part in enumerate(parts)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [results[rank] for rank in sorted(results)], room.failed


@dataclass
class _Hall:
    """A channel and its members."""

    parties: int
    fan_out: int
    machines: dict[int, Any] = field(default_factory=dict)
    """State machines by rank."""
    seats: dict[int, int] = field(default_factory=dict)
    """The seats that members claim, by rank."""
    epoch: int = 0


@dataclass
class _Gate:
    """A barrier."""

    arrived: int = 0
    opened: int = 0


class _Room:
    """The shared state of the members; all access needs its lock."""

    def __init__(self, size: int, name: str) -> None:
        self.size, self.name, self.present = size, name, size
        self.changed = threading.Condition()
        self.failed: tuple[int, BaseException] | None = None
        self.blocks = Blocks(Store.open("memory://"), "reference", None)
        self.halls: dict[str, _Hall] = {}
        self.gates: dict[str, _Gate] = {}
        self.ended: set[int] = set()
        self.saved = [0] * size
        """The number of states that each member has saved."""

    def run(self, rank: int, part: Callable[[], T], results: dict[int, T]) -> None:
        member = _Member(self, rank)
        try:
            with standing_in(cast(Any, member)):
                results[rank] = part()
            member.close()
        except BaseException as error:  # noqa: BLE001  it is the gang's, and is judged there
            with self.changed:
                self.failed = self.failed or (rank, error)
        finally:
            with self.changed:
                self.present -= 1
                self.ended.add(rank)
                for channel in [name for name, hall in self.halls.items() if rank in hall.machines]:
                    member.leave(channel)
                self.changed.notify_all()

    def wait(self, title: str, poll: Callable[[], T | None], deadline: float) -> T:
        """Return the result of `poll` once it is not None. Raises MemberLost after a failure, DeadlinePassed."""
        with self.changed:
            while (found := poll()) is None:
                if self.failed is not None:
                    raise MemberLost(title, [f"{self.name}/{self.failed[0]}"])
                if time.monotonic() >= deadline:
                    raise DeadlinePassed(f"{title}: took too long")
                self.changed.wait(deadline - time.monotonic())
            self.changed.notify_all()
            return found

    def convene(self, hall: _Hall) -> None:
        """Deliver a new view to all members."""
        from treadle.primitives.channels.protocols.membership import Roster
        from treadle.primitives.coordinator.messages import Seat

        hall.epoch += 1
        ranks = sorted(hall.machines, key=lambda rank: hall.seats[rank])
        seats = {seat: Seat(self.member(rank), "") for seat, rank in enumerate(ranks)}
        roster = Roster(hall.epoch, seats, hall.fan_out)
        for rank in ranks:
            self.deliver(rank, hall.machines[rank].view(roster))

    def deliver(self, rank: int, sends: Iterable[Any]) -> None:
        """Deliver messages, and the messages that they cause."""
        todo = deque((rank, send) for send in sends)
        while todo:
            sender, (receiver, message) = todo.popleft()
            other = int(receiver.rpartition("/")[2])
            machine = self.halls[message.channel].machines.get(other)
            if machine is not None:
                todo += [(other, send) for send in machine.message(self.member(sender), message)]
        self.changed.notify_all()

    def member(self, rank: int) -> str:
        return f"{self.name}/{rank}"


class _Member:
    """The part of `primitives.channels.Member` that the collectives use."""

    def __init__(self, room: _Room, rank: int) -> None:
        from treadle.primitives.channels.io.payloads import ValueCodec

        self._room, self._rank = room, rank
        self._open: dict[str, Callable[[], None]] = {}
        self.leaves_by = math.inf
        """Time of `time.monotonic()` at which closing channels stop waiting for other members."""
        self.gang = Gang("", "reference", room.name, rank, room.size, DEADLINE)
        self.name = room.member(rank)
        self.values = ValueCodec(room.blocks, f"channels/{rank}", lambda: True)

    def join(self, join: Any, machine: Any, close: Callable[[], None]) -> None:
        self._open[join.channel] = close
        with self._room.changed:
            hall = self._room.halls.setdefault(join.channel, _Hall(join.parties, join.fan_out))
            hall.machines[self._rank], hall.seats[self._rank] = machine, join.seat
            if hall.epoch or len(hall.machines) >= hall.parties:
                self._room.convene(hall)

    def leave(self, channel: str) -> None:
        self._open.pop(channel, None)
        with self._room.changed:
            hall = self._room.halls[channel]
            if hall.machines.pop(self._rank, None) is not None and hall.machines and hall.epoch:
                self._room.convene(hall)
            if not hall.machines:
                del self._room.halls[channel]

    def close(self) -> None:
        """Leave the channels that the function has not closed."""
        for close in list(self._open.values()):
            close()

    def act(self, channel: str, poll: Callable[[], T | None], deadline: float, what: str) -> T:
        machine = self._room.halls[channel].machines[self._rank]
        return self._room.wait(f"{machine.title}: {what}", lambda: poll() if machine.epoch else None, deadline)

    def send(self, sends: Iterable[Any]) -> None:
        with self._room.changed:
            self._room.deliver(self._rank, sends)

    def save_state(self, state: Any, deadline: float) -> int:
        """A checkpoint is only a barrier here, since no member is lost."""
        encode("objects", [state])
        room = self._room
        with room.changed:
            room.saved[self._rank] = number = room.saved[self._rank] + 1
            room.changed.notify_all()

        def complete() -> int | None:
            behind = [rank for rank, count in enumerate(room.saved) if count < number]
            if early := [rank for rank in behind if rank in room.ended]:
                raise UsageError(f"checkpoint {number}: member {early[0]} has ended without it", EQUALLY_OFTEN)
            return None if behind else number

        return room.wait(f"checkpoint {number}", complete, time.monotonic() + deadline)

    def wait_at(self, barrier: str, parties: int, deadline: float) -> None:
        room = self._room
        with room.changed:
            gate = room.gates.setdefault(barrier, _Gate())
            gate.arrived += 1
            mine = gate.opened + 1
            if gate.arrived == parties:
                gate.arrived, gate.opened = 0, mine
                room.changed.notify_all()

        def passed() -> bool | None:
            if gate.opened < mine and room.present < parties:
                raise MemberLost(f"barrier {barrier}", ["a member that has ended"])
            return gate.opened >= mine or None

        room.wait(f"barrier {barrier}", passed, deadline)
