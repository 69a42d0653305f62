"""How two members behind NATs try to reach each other, and when they stop. Pure: the clock is passed in.

Each side runs one `Traversal`, begun at about the same time. The **leader** is the member whose name sorts first:

    seconds  leader         follower       why
    0 - 4    dials, listens dials, listens simultaneous open: each SYN makes the hole that admits the other side;
                                           or one side is open and simply accepts the other side's dial
    4 - 6    dials          listens        one after the other, for a NAT or host that refuses crossing SYNs;
    6 - 8    listens        dials          the holes made before are still there
    8 - 11   -              -              running proofs may end

    event       instructions
    Dialled     `Prove` the path; no other dial until it is refuted
    DialFailed  dial again after a pause that doubles
    Accepted    `Prove` the path; any host may call, so at most eight at a time
    Proved      `Use` the path, `ClosePath` all others: over
    Refuted     `ClosePath` the path; dial again after a pause if it was the dialled path
    Tick        a proof longer than 3 s is refuted; the next phase begins with a new dial; at the deadline, or after
                the last phase when no proof is running: `EndWithoutPath`: over

A dial is not restarted until it is refused: the kernel repeats its SYN (after 1 s, and 2 s more), and a NAT that saw
both SYNs accepts only the same ones again. A path named by a late event is closed. Once the attempt is over, only such
closing follows. The path in use stays open, even when it is proved again.

The two forms are "TCP hole punching" with crossing SYNs and "sequential hole punching" of Ford, Srisuresh, Kegel,
*Peer-to-Peer Communication Across Network Address Translators* (USENIX ATC 2005, sections 4.2-4.5), see also RFC 5128
section 3.4; NATs must pass a simultaneous open (RFC 9293, figure 7) by RFC 5382, REQ-2. Wawrzoniak et al. showed that
such paths carry data-parallel work on functions: *Boxer: Data Analytics on Network-enabled Serverless Platforms* (CIDR
2021). The leader decides which path is used, as the controlling agent of ICE does (RFC 8445).
"""

from __future__ import annotations

from typing import NamedTuple

from msgspec import Struct

MOST_STRANGERS = 8
"""Limit of accepted connections whose proof is running."""

# -- events ----------


class Dialled(Struct, frozen=True):
    """The current dial ended in a connection."""

    path: int


class DialFailed(Struct, frozen=True):
    """The current dial was refused, or could not begin."""

    reason: str


class ConnectionAccepted(Struct, frozen=True):
    """A caller connected to the local port, or another attempt that listens there passed one on."""

    path: int


class Proved(Struct, frozen=True):
    """Bytes went both ways, and the other side holds the token. For the follower: the leader chose this path."""

    path: int


class Refuted(Struct, frozen=True):
    """The path ended, or the other side does not hold the token."""

    path: int
    reason: str


class TimePassed(Struct, frozen=True):
    """Time has passed."""


Event = Dialled | DialFailed | ConnectionAccepted | Proved | Refuted | TimePassed

# -- instructions ----------


class StartDial(Struct, frozen=True):
    """Connect to the other side from the local port; `Dialled` or `DialFailed` answers, unless it is stopped."""


class StopDial(Struct, frozen=True):
    """Stop the current dial without sending a packet: the hole in the NAT stays open."""


class StartListening(Struct, frozen=True):
    """Accept connections to the local port."""


class StopListening(Struct, frozen=True):
    pass


class Prove(Struct, frozen=True):
    """Exchange the proof over this path; `Proved` or `Refuted` answers, unless it is closed."""

    path: int


class ClosePath(Struct, frozen=True):
    path: int


class Use(Struct, frozen=True):
    """Use this path; the leader informs the follower. The last instruction."""

    path: int


class EndWithoutPath(Struct, frozen=True):
    """Report failure. The last instruction."""

    reason: str


Instruction = StartDial | StopDial | StartListening | StopListening | Prove | ClosePath | Use | EndWithoutPath


class Schedule(Struct, frozen=True):
    """Durations in seconds. Both sides must have the same."""

    simultaneous: float = 4.0
    each_way: float = 2.0
    proof: float = 3.0
    pause: float = 0.05
    """Pause before dialling again after the first failure; it doubles with every further failure."""
    longest_pause: float = 0.8
    challenge: float = 5.0
    """Limit for the challenge of `wire` over a proved path; the machine does not use it."""

    @property
    def total(self) -> float:
        """The machine is over by then."""
        return self.simultaneous + 2 * self.each_way + self.proof


SCHEDULE = Schedule()


class _Phase(NamedTuple):
    end: float
    dials: bool
    listens: bool


class Traversal:
    """One side of one attempt. Call `handle` for every event, and for a `TimePassed` at `wake`, until `over`."""

    def __init__(self, me: str, member: str, now: float, deadline: float, schedule: Schedule = SCHEDULE) -> None:
        """`now` and `deadline` are times of one monotonic clock, in seconds."""
        self.leads = me < member
        self.over = False
        self._now = now
        self._schedule = schedule
        self._deadline = min(deadline, now + schedule.total)
        self._phases = _phases(self.leads, now, schedule)
        self._dialling = False
        self._redial = now
        self._pause = schedule.pause
        self._listening = False
        self._proofs: dict[int, float] = {}
        self._dialled: int | None = None
        self._used: int | None = None
        self._dials = self._connections = 0
        self._last = "nothing answered"

    @property
    def wake(self) -> float:
        """Time at which a `TimePassed` is due, unless another event comes first."""
        moments = [self._deadline, *self._proofs.values()]
        moments += [phase.end for phase in self._phases[:1]]
        if self._may_dial:
            moments.append(self._redial)
        return min(moments)

    def handle(self, event: Event, now: float) -> list[Instruction]:
        """Return the instructions for an event; a clock that went backwards counts as standing still."""
        self._now = max(now, self._now)
        if self.over:
            return _closing(event, self._used)
        done = self._on(event)
        return done if self.over else done + self._go_on()

    # -- events

    def _on(self, event: Event) -> list[Instruction]:
        match event:
            case Dialled(path):
                return self._dial_ended(path)
            case DialFailed(reason):
                return self._dial_failed(reason)
            case ConnectionAccepted(path):
                return self._accepted(path)
            case Proved(path):
                return self._choose(path)
            case Refuted(path, reason) if path in self._proofs:
                return self._refute(path, reason)
        return []

    def _dial_ended(self, path: int) -> list[Instruction]:
        if not self._dialling:
            return [ClosePath(path)]
        self._dialling = False
        self._dialled = path
        return self._prove(path)

    def _dial_failed(self, reason: str) -> list[Instruction]:
        if self._dialling:
            self._dialling = False
            self._last = reason
            self._wait_to_redial()
        return []

    def _accepted(self, path: int) -> list[Instruction]:
        """When too many proofs are running, refute the oldest, once it has had a quarter of its time."""
        strangers = [one for one in self._proofs if one != self._dialled]
        if len(strangers) < MOST_STRANGERS:
            return self._prove(path)
        if self._proofs[strangers[0]] - self._now > 0.75 * self._schedule.proof:
            return [ClosePath(path)]
        return [*self._refute(strangers[0], "others called"), *self._prove(path)]

    def _choose(self, path: int) -> list[Instruction]:
        if path not in self._proofs:
            return [ClosePath(path)]
        del self._proofs[path]
        self._used = path
        return [*self._end(), Use(path)]

    def _prove(self, path: int) -> list[Instruction]:
        self._connections += 1
        self._proofs[path] = self._now + self._schedule.proof
        return [Prove(path)]

    def _refute(self, path: int, reason: str) -> list[Instruction]:
        self._last = reason
        del self._proofs[path]
        if path == self._dialled:
            self._dialled = None
            self._wait_to_redial()
        return [ClosePath(path)]

    # -- consequences

    def _go_on(self) -> list[Instruction]:
        instructions: list[Instruction] = []
        for path in [path for path, end in self._proofs.items() if end <= self._now]:
            instructions += self._refute(path, "a connection came about, and then no bytes")
        while self._phases and self._phases[0].end <= self._now:
            self._phases.pop(0)
            instructions += self._stop_dial()
            self._redial = self._now
        if self._deadline <= self._now or not (self._phases or self._proofs):
            return [*instructions, *self._end(), EndWithoutPath(self._summary())]
        return instructions + self._follow_phase()

    def _follow_phase(self) -> list[Instruction]:
        instructions: list[Instruction] = []
        if self._may_dial and self._redial <= self._now:
            self._dialling = True
            self._dials += 1
            instructions.append(StartDial())
        return instructions + self._listen(bool(self._phases) and self._phases[0].listens)

    def _listen(self, wanted: bool) -> list[Instruction]:
        before, self._listening = self._listening, wanted
        if before == wanted:
            return []
        return [StartListening()] if wanted else [StopListening()]

    @property
    def _may_dial(self) -> bool:
        return bool(self._phases) and self._phases[0].dials and not self._dialling and self._dialled is None

    def _wait_to_redial(self) -> None:
        self._redial = self._now + self._pause
        self._pause = min(2 * self._pause, self._schedule.longest_pause)

    def _stop_dial(self) -> list[Instruction]:
        stopped, self._dialling = self._dialling, False
        return [StopDial()] if stopped else []

    def _end(self) -> list[Instruction]:
        self.over = True
        return [*self._stop_dial(), *self._listen(False), *map(ClosePath, self._proofs)]

    def _summary(self) -> str:
        return f"{self._dials} dials, {self._connections} connections, the last: {self._last}"


def _phases(leads: bool, now: float, schedule: Schedule) -> list[_Phase]:
    first = now + schedule.simultaneous
    second = first + schedule.each_way
    third = second + schedule.each_way
    return [_Phase(first, True, True), _Phase(second, leads, not leads), _Phase(third, not leads, leads)]


def _closing(event: Event, used: int | None) -> list[Instruction]:
    if isinstance(event, Dialled | ConnectionAccepted | Proved) and event.path != used:
        return [ClosePath(event.path)]
    return []
