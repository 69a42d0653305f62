"""Members of a simulated gang, and their links to the coordinator: queues, cuts, silence, its death.

Members act like the channels library: they apply views, and announce everything again after a reconnect. Each message
of the coordinator is checked at once. `settled` checks the conditions that must hold once nothing changes any more.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from treadle.primitives.coordinator import (
    Coordinator,
    Deliver,
    Disconnect,
    Instruction,
    Returned,
    SendToConnection,
    Timing,
)
from treadle.primitives.coordinator import messages as m

LEASE, GRACE, SETTLE = 10.0, 1.0, 2.0
TIMING = Timing(lease=LEASE, grace=GRACE, settle=SETTLE, spacing=0.01, broken=1e9)
ELSEWHERE = "-elsewhere"
"""The suffix of a barrier's name if its parties meet in shared memory."""
Seats = tuple[m.Seat, ...]


def applied(seats: Seats, view: m.View) -> Seats:
    """The seats after a view. Fails on a gap."""
    found = list(seats) if view.since else []
    for change in view.changes:
        if change.occupant is None:
            del found[change.seat :]
        else:
            assert change.seat <= len(found), "a gap"
            found[change.seat : change.seat + 1] = [change.occupant]
    assert len({seat.member for seat in found}) == len(found), "somebody sits twice"
    return tuple(found)


def waits_at(barrier: str, parties: int, generation: int) -> m.Wait:
    return m.Wait(barrier, parties, generation, elsewhere=barrier.endswith(ELSEWHERE))


@dataclass
class Sim:
    """A member's own state."""

    name: str
    connection: int | None = None
    up: deque[m.FromMember] = field(default_factory=deque)
    down: deque[m.ToMember] = field(default_factory=deque)
    joined: dict[str, m.Join] = field(default_factory=dict)
    views: dict[str, tuple[int, Seats]] = field(default_factory=dict)
    passed: dict[str, int] = field(default_factory=dict)
    waiting: dict[str, int] = field(default_factory=dict)
    """Barrier -> its parties."""
    broken: set[str] = field(default_factory=set)
    blocks: set[str] = field(default_factory=set)
    tasks: dict[str, int] = field(default_factory=dict)
    unanswered: dict[str, int] = field(default_factory=dict)
    """Results sent: task -> epoch."""
    located: dict[str, set[str]] = field(default_factory=dict)

    def introduction(self) -> list[m.FromMember]:
        said: list[m.FromMember] = [m.Hello(self.name, f"tcp://{self.name}:1")]
        for name, join in self.joined.items():
            epoch, seats = self.views.get(name, (0, ()))
            place = next((i for i, seat in enumerate(seats) if seat.member == self.name), -1)
            said.append(m.Join(name, join.parties, join.fan_out, join.role, epoch, place))
        said += [waits_at(name, parties, self.passed.get(name, 0)) for name, parties in self.waiting.items()]
        if self.blocks:
            said.append(m.Announce(tuple(sorted(self.blocks))))
        return said + [m.Finished(task, epoch) for task, epoch in self.unanswered.items()]

    def hear(self, message: m.ToMember) -> None:
        match message:
            case m.View():
                self._view(message)
            case m.Released(name, generation):
                if name in self.waiting and generation == self.passed.get(name, 0):
                    del self.waiting[name]
                    self.passed[name] = generation + 1
            case m.Broken(name, generation):
                if name in self.waiting and generation == self.passed.get(name, 0):
                    del self.waiting[name]
                    self.broken.add(name)
            case m.Located(block, seats):
                self.located[block] = {seat.member for seat in seats}
            case m.AssignedTask(task, epoch):
                if task not in self.unanswered:
                    self.tasks[task] = epoch
            case m.Withdrawn(task, epoch):
                if self.tasks.get(task) == epoch:
                    del self.tasks[task]
            case m.Accepted(task, _):
                self.unanswered.pop(task, None)
            case m.Refused(subject):
                assert subject in self.unanswered, f"{self.name}: {message}"
                del self.unanswered[subject]

    def _view(self, view: m.View) -> None:
        if view.channel not in self.joined:
            return
        epoch, seats = self.views.get(view.channel, (0, ()))
        assert view.epoch > epoch, "epochs rise"
        assert view.since in (0, epoch), "a difference to a view it has not"
        self.views[view.channel] = view.epoch, applied(seats, view)


class World:
    """The coordinator, all members, and the network."""

    def __init__(self) -> None:
        self.now = 0.0
        self.sims: dict[str, Sim] = {}
        self.suspects: set[str] = set()
        """Members that were silent or cut off at some time, or died."""
        self.parties: dict[str, set[str]] = {}
        self.arrived: dict[tuple[str, int], set[str]] = {}
        self.left: set[str] = set()
        self.dead: set[tuple[str, str]] = set()
        """(channel, member) that never left it."""
        self.awaited: dict[str, int] = {}
        """Channel -> its parties."""
        self.offered: set[str] = set()
        self.finished: set[str] = set()
        self.own: dict[str, str] = {}
        """Tasks for one member that are with the coordinator -> the member."""
        self._numbers = 0
        self._epoch = 0
        self.highest = 0
        """The highest epoch ever given."""
        self.restart(0)

    # -- the coordinator ----------

    def restart(self, last_epoch: int) -> None:
        """The coordinator dies with its state. Its owner offers the unfinished tasks again."""
        self.coordinator = Coordinator(timing=TIMING, last_epoch=last_epoch, token=lambda: b"token")
        self.open: dict[int, str] = {}
        self.known: dict[str, set[str]] = {}
        self.gone: set[tuple[str, str]] = set()
        """(channel, member)."""
        self.returned: set[str] = set()
        """Channels of an earlier coordinator."""
        self.holders: dict[str, tuple[str, int]] = {}
        self.shown: dict[str, dict[int, Seats]] = {}
        self.entered: set[tuple[str, str]] = set()
        """(channel, member) that joined since its last view."""
        self._epoch = last_epoch
        for sim in self.sims.values():
            sim.connection = None
            sim.up.clear()
            sim.down.clear()
            if not last_epoch:
                sim.tasks, sim.unanswered = {}, {}
        for task in sorted(self.offered - self.finished):
            self._do(self.coordinator.offer(task, b"", self.now))
        for task, member in sorted(self.own.items()):
            self._do(self.coordinator.offer(task, b"", self.now, member))

    def tick(self) -> None:
        self._do(self.coordinator.tick(self.now))

    def offer(self, task: str) -> None:
        self.offered.add(task)
        self._do(self.coordinator.offer(task, b"", self.now))

    def offer_to(self, task: str, member: str) -> None:
        self.own[task] = member
        self._do(self.coordinator.offer(task, b"", self.now, member))

    def withdraw(self, task: str) -> None:
        """The task must not occur in any later message."""
        self.own.pop(task, None)
        self.offered.discard(task)
        self.holders.pop(task, None)
        self._do(self.coordinator.withdraw(task, self.now))

    def _do(self, instructions: list[Instruction]) -> None:
        for instruction in instructions:
            match instruction:
                case SendToConnection(connection, message):
                    assert connection in self.open, "something is sent to a connection that is gone"
                    name = self.open[connection]
                    self._check(name, message)
                    sim = self.sims.get(name)
                    if sim is not None and sim.connection == connection:
                        sim.down.append(message)
                case Disconnect(connection):
                    sim = self.sims.get(self.open.pop(connection))
                    if sim is not None and sim.connection == connection:
                        sim.connection = None
                        sim.up.clear()
                case Deliver(task, member, _):
                    assert task not in self.finished, "a result twice"
                    assert self.own.pop(task, member) == member
                    assert self.holders.pop(task)[0] == member
                    self.finished.add(task)
                case Returned(task, member, lost):
                    assert self.own.pop(task) == member
                    assert self.holders.pop(task, ("", 0))[0] in ("", member)
                    assert not lost or member in self.suspects, "a live member is called lost"

    # -- messages of the coordinator ----------

    def _check(self, name: str, message: m.ToMember) -> None:
        match message:
            case m.View():
                self._check_view(message)
            case m.Released(barrier, generation):
                assert not barrier.endswith(ELSEWHERE), "its parties meet elsewhere"
                assert self.arrived[barrier, generation] == self.parties[barrier], "released before all arrived"
            case m.Broken(barrier, _, lost):
                assert set(lost) <= self.parties[barrier] & (self.suspects | self.left)
            case m.AssignedTask(task, epoch):
                assert self.own.get(task, name) == name, "it is for another member"
                assert task in self.own or task in self.offered, "it was withdrawn"
                holder, last = self.holders.get(task, ("", 0))
                if (holder, last) != (name, epoch):
                    assert not holder or holder in self.left | self.suspects, f"{task} has two holders"
                    assert epoch > last
                    self.highest = max(self.highest, epoch)
                    self.holders[task] = name, epoch

    def _check_view(self, view: m.View) -> None:
        shown = self.shown.setdefault(view.channel, {})
        assert set(view.lost) <= self.suspects, "a live member is called lost"
        seats = applied(shown[view.since] if view.since else (), view)
        if view.since:  # a channel that lost all members is a new one, with a whole first view
            vanished = {seat.member for seat in shown[view.since]} - {seat.member for seat in seats}
            assert {member for member in vanished if (view.channel, member) in self.dead} <= set(view.lost)
        if view.epoch in shown:
            assert shown[view.epoch] == seats, "two views of one epoch"
            return
        assert view.epoch > self._epoch, "epochs rise over all channels"
        self._epoch = view.epoch
        self.highest = max(self.highest, view.epoch)
        self._check_seats(view, seats)
        shown[view.epoch] = seats

    def _check_seats(self, view: m.View, seats: Seats) -> None:
        name, shown = view.channel, self.shown[view.channel]
        entered = {member for channel, member in self.entered if channel == name}
        self.entered -= {(name, member) for member in entered}
        self.gone |= {(name, member) for member in set(view.lost) - entered}
        after = {seat.member: place for place, seat in enumerate(seats)}
        assert not {(name, member) for member in after} & self.gone, "a lost member has a seat"
        if not shown:
            assert len(seats) >= self.awaited[name] or name in self.returned, "the first view comes too early"
            return
        if not view.since:  # members may have missed a view in between
            return
        before = {seat.member: place for place, seat in enumerate(shown[view.since])}
        for member in before.keys() & after.keys() - entered:
            assert after[member] == before[member] or before[member] >= len(seats), "moved for nothing"

    # -- the network ----------

    def connect(self, sim: Sim) -> None:
        """Open a new connection. An earlier one is dead, even if the coordinator does not know yet."""
        if sim.connection is not None:
            self.suspects.add(sim.name)
        self._numbers += 1
        sim.connection = self._numbers
        sim.up.clear()
        sim.down.clear()
        self.open[sim.connection] = sim.name
        self._do(self.coordinator.connected(sim.connection, self.now, f"tcp://{sim.name}:9"))
        sim.up.extend(sim.introduction())

    def cut(self, sim: Sim, arrives: int, noticed: bool) -> None:
        """Cut a connection. Some pending messages arrive. The coordinator notices at once or later."""
        for _ in range(min(arrives, len(sim.up))):
            self.carry_up(sim)
        connection, sim.connection = sim.connection, None
        sim.up.clear()
        sim.down.clear()
        self.suspects.add(sim.name)
        if noticed and connection is not None and self.open.pop(connection, ""):
            self._do(self.coordinator.disconnected(connection, self.now))

    def carry_up(self, sim: Sim) -> None:
        if sim.up and sim.connection is not None:
            message = sim.up.popleft()
            self._note(sim, message)
            self._do(self.coordinator.received(sim.connection, message, self.now))

    def carry_down(self, sim: Sim) -> None:
        if sim.down:
            sim.hear(sim.down.popleft())

    def _note(self, sim: Sim, message: m.FromMember) -> None:
        match message:
            case m.Join(channel, parties):
                self.awaited[channel] = parties
                self.entered.add((channel, sim.name))
                self.gone.discard((channel, sim.name))
                if message.epoch:
                    self.returned.add(channel)
            case m.Bye():
                self.left.add(sim.name)
                self.gone |= {(channel, sim.name) for channel in sim.joined}
            case m.GiveUp(task, epoch):
                if self.holders.get(task) == (sim.name, epoch):
                    self.holders[task] = "", epoch
            case m.Wait(barrier, _, generation):
                self.arrived.setdefault((barrier, generation), set()).add(sim.name)
                self.known.setdefault(barrier, set()).add(sim.name)

    def leave(self, sim: Sim) -> None:
        sim.up.append(m.Bye())
        while sim.up and sim.connection is not None:
            self.carry_up(sim)
        if sim.name not in self.left:  # its message was lost
            self.suspects.add(sim.name)
        del self.sims[sim.name]

    def die(self, sim: Sim, noticed: bool) -> None:
        self.cut(sim, 0, noticed)
        self.dead |= {(channel, sim.name) for channel in sim.joined}
        del self.sims[sim.name]

    # -- time ----------

    def exchange(self) -> None:
        """Deliver all messages, and the messages that follow from them."""
        for _ in range(1000):
            if not any(sim.up or sim.down for sim in self.sims.values()):
                return
            for sim in list(self.sims.values()):
                while sim.up and sim.connection is not None:
                    self.carry_up(sim)
                while sim.down:
                    self.carry_down(sim)
        raise AssertionError("it never comes to rest")

    def pass_time(self, seconds: float, *, silent: bool = False) -> None:
        """Advance the clock tick by tick. Connected members send signs of life, unless they are silent."""
        end = self.now + seconds
        if silent:
            self.suspects |= set(self.sims)
        while self.now < end:
            due = self.coordinator.wakes_at()
            self.now = min(end, self.now + LEASE / 4, end if due is None else max(due, self.now + 1e-6))
            if not silent:
                for sim in self.sims.values():
                    if sim.connection is not None:
                        sim.up.append(m.Alive())
                self.exchange()
            self.suspects |= {name for name, sim in self.sims.items() if sim.connection is None}
            self.tick()

    # -- the settled state ----------

    def settle(self) -> None:
        """Connect all live members, and deliver all messages."""
        for _ in range(3):
            for sim in self.sims.values():
                if sim.connection is None:
                    self.connect(sim)
            self.exchange()
            self.pass_time(LEASE + SETTLE)
            self.exchange()

    def settled(self) -> None:
        """Check the conditions that must hold then."""
        assert self.coordinator.statistics().members == len(self.sims)
        for name in {name for sim in self.sims.values() for name in sim.joined}:
            self._check_channel(name)
        for sim in self.sims.values():
            for barrier in sim.waiting:
                self._check_waiting(sim, barrier)
        self._check_directory()
        self._check_tasks()

    def _check_channel(self, name: str) -> None:
        joined = {sim.name: sim for sim in self.sims.values() if name in sim.joined}
        views = {sim.views.get(name, (0, ())) for sim in joined.values()}
        assert len(views) == 1, f"members of {name} have {len(views)} views"
        epoch, seats = views.pop()
        if epoch:
            assert {seat.member for seat in seats} == set(joined), "those in the view are those who joined"
        else:
            assert len(joined) < max(sim.joined[name].parties for sim in joined.values()), "the first view is missing"

    def _check_waiting(self, sim: Sim, barrier: str) -> None:
        """A party must be missing that is not known to be lost."""
        generation = sim.passed.get(barrier, 0)
        all_there = self.arrived.get((barrier, generation), set()) == self.parties[barrier]
        assert not all_there or self.broke(barrier) or barrier.endswith(ELSEWHERE)
        assert self.known.get(barrier, set()) <= set(self.sims), "a party is gone, and it waits"

    def broke(self, barrier: str) -> bool:
        """Returns whether a party received the break, or is gone."""
        parties = self.parties[barrier]
        return not parties <= set(self.sims) or any(barrier in self.sims[name].broken for name in parties)

    def _check_tasks(self) -> None:
        """A new member must get every task that no live member holds."""
        taker = self.sims["taker"] = Sim("taker")
        self.connect(taker)
        taker.up.append(m.Take(1000))
        self.exchange()
        for task in self.offered - self.finished:
            assert self.holders[task][0] in self.sims, "a task is with nobody"
        assert self.coordinator.statistics().tasks == len(self.offered - self.finished) + len(self.own)

    def _check_directory(self) -> None:
        asker = next(iter(self.sims.values()), None)
        if asker is None:
            assert self.coordinator.statistics().blocks == 0
            return
        blocks = {block for sim in self.sims.values() for block in sim.blocks}
        assert self.coordinator.statistics().blocks == len(blocks)
        asker.up.extend(m.Locate(block) for block in sorted(blocks))
        self.exchange()
        for block in blocks:
            assert asker.located[block] == {sim.name for sim in self.sims.values() if block in sim.blocks}
