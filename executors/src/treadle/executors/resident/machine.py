"""The state machine of a member, from its first connection to its end. Pure: events in, instructions out.

    state    event                          next     action
    idle     AssignedTask                   busy     start it
    idle     the same, after working time   idle     give up: the task returns to its owner
    busy     done                           telling  send the result, and again over every new connection
    busy     Withdrawn                      idle     stop the task
    telling  Accepted, Withdrawn            idle     ask for more, during its working time
    telling  Refused                        over     Bye: it counted as lost, and its slot has another member
    idle     no task for `idle` seconds     over     Bye
    any      Dismissed, its time is over    over     stop the running task; Bye
    any      its name is refused            over     another copy of this call joined first
    any      no coordinator for `patience`  over     stop the running task

After its working time the member asks for no tasks. It then serves its blocks until it is dismissed.
"""

from __future__ import annotations

from typing import NamedTuple

from treadle.primitives.coordinator.messages import (
    Accepted,
    Alive,
    AssignedTask,
    Bye,
    Dismissed,
    Finished,
    FromMember,
    GiveUp,
    Hello,
    Refused,
    Take,
    ToMember,
    Withdrawn,
)

BEAT = 2.0
"""Seconds between heartbeats; the coordinator's lease lasts several of them."""
SILENCE = 6.0
"""Seconds without a message from the coordinator, which answers every heartbeat, after which the link counts as
dead."""
COPY = "another copy of it has come first"
PATIENCE = 15.0
"""Seconds without a coordinator. A restarted driver has other members."""


class Say(NamedTuple):
    """Send the message. Without a connection it is lost; the machine repeats important ones."""

    message: FromMember


class Begin(NamedTuple):
    """Start the task, and call `done` with its result."""

    task: str
    body: bytes


class KillTask(NamedTuple):
    """Kill the running task; its result is not needed."""


class Redial(NamedTuple):
    """Close the connection, if there is one, and make another."""


class EndMember(NamedTuple):
    """The member ends."""

    why: str


Instruction = Say | Begin | KillTask | Redial | EndMember


class _Work(NamedTuple):
    task: str
    epoch: int


class MemberMachine:
    """Times are seconds of any clock that never decreases."""

    def __init__(
        self, name: str, address: str, host: str, *, works_until: float, ends: float, idle: float = float("inf")
    ) -> None:
        """`address`: where it serves blocks; empty: it serves none. `host` differs from every other member's, and from
        other copies of this call."""
        self._hello = Hello(name, address, host)
        self._works_until, self._ends, self._idle = works_until, ends, idle
        self._idle_since: float | None = None
        """None: before the first connection, and with a task."""
        self._under_way: _Work | None = None
        self._result: Finished | None = None
        self._connected = False
        self._heard = self._beat = float("-inf")
        self._away_since: float | None = None
        self.over = False

    # -- events

    def connected(self, now: float) -> list[Instruction]:
        """A connection was made. The coordinator sends this member's task again."""
        self._connected, self._away_since = True, None
        self._heard = self._beat = now
        if self._under_way is None and self._idle_since is None:
            self._idle_since = now
        out: list[Instruction] = [Say(self._hello)]
        if self._result is not None:
            out.append(Say(self._result))
        return [*out, *self._ask(now)]

    def disconnected(self, now: float) -> list[Instruction]:
        """The connection broke."""
        if self.over or not self._connected:
            return []
        self._connected, self._away_since = False, now
        return [Redial()]

    def heard(self, message: ToMember, now: float) -> list[Instruction]:
        self._heard = now
        if self.over:
            return []
        match message:
            case AssignedTask(task, epoch, body):
                return self._offered(_Work(task, epoch), body, now)
            case Withdrawn(task, epoch) if self._under_way == _Work(task, epoch):
                self._under_way, self._idle_since = None, now
                return [KillTask(), *self._ask(now)]
            case Accepted(task, _) | Withdrawn(task, _) if self._tells(task):
                self._result, self._idle_since = None, now
                return self._ask(now)
            case Refused(task, _) if self._tells(task):
                return self._leave("it was given up")
            case Refused(name, _) if name == self._hello.member:
                return self._leave(COPY)
            case Dismissed():
                return self._leave("it is not needed any more")
        return []

    def done(self, task: str, result: bytes) -> list[Instruction]:
        """The task begun last has a result. The result of a stopped task is ignored."""
        if self.over or self._under_way is None or self._under_way.task != task:
            return []
        self._result = Finished(task, self._under_way.epoch, result)
        self._under_way = None
        return [Say(self._result)]

    def tick(self, now: float) -> list[Instruction]:
        """Time has passed."""
        if self.over:
            return []
        if now >= self._ends:
            return self._leave("its time is over")
        if self._idle_since is not None and now - self._idle_since > self._idle:
            return self._leave("nobody needs it")
        if self._away_since is not None:
            return self._leave("there is no coordinator") if now - self._away_since > PATIENCE else []
        if now - self._heard > SILENCE:
            return self.disconnected(now)
        if now - self._beat < BEAT:
            return []
        self._beat = now
        return [Say(Alive())]

    def wakes_at(self) -> float:
        """The time of the next necessary `tick`."""
        if self._away_since is not None:
            return min(self._ends, self._away_since + PATIENCE)
        leaves = self._ends if self._idle_since is None else self._idle_since + self._idle
        return min(self._ends, leaves, self._beat + BEAT, self._heard + SILENCE)

    # -- parts

    def _offered(self, work: _Work, body: bytes, now: float) -> list[Instruction]:
        if self._result is not None and self._tells(work.task):
            self._result = Finished(work.task, work.epoch, self._result.result)
            return [Say(self._result)]
        if self._under_way is not None and self._under_way.task == work.task:
            self._under_way = work
            return []
        if self._under_way is not None or now >= self._works_until:
            return [Say(GiveUp(work.task, work.epoch))]
        self._under_way, self._idle_since = work, None
        return [Begin(work.task, body)]

    def _tells(self, task: str) -> bool:
        """Whether it has a result of that task that was not accepted yet."""
        return self._result is not None and self._result.task == task

    def _ask(self, now: float) -> list[Instruction]:
        idle = self._under_way is None and self._result is None
        return [Say(Take())] if idle and self._connected and now < self._works_until else []

    def _leave(self, why: str) -> list[Instruction]:
        self.over = True
        stop: list[Instruction] = [KillTask()] if self._under_way is not None else []
        self._under_way = None
        return [*stop, Say(Bye()), EndMember(why)]
