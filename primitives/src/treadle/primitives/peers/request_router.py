"""Over what a member asks others for blocks, none of whom it can dial. Pure: events in, instructions out.

    an ask is   event                                 next      what follows
    -           asked, a path to the member stands    on path   Over
    -           asked, and there is none              relayed   Relay: meanwhile; Reach: a path would be better
    -           the same, of what is elsewhere too    over      Fail; Reach
    on path     the path ended                        relayed   as above
    on path     nothing came for `silence`            relayed   HangUp, and as above for all that is on this path
    relayed     a path opened                         relayed   nothing: its answer is on its way
    relayed     not answered for `again`              either    as if it were new: one of the two messages may be lost
    relayed     the coordinator cannot relay          over      Fail
    any         answered                              over      -
    any         its deadline                          over      Fail

A path that stands is used by both of its members, whoever wanted it and whoever dialled. A silent one is given up even
if it is only slow: what is relayed comes as well.
"""

from __future__ import annotations

from typing import NamedTuple

from msgspec import Struct


class Patience(Struct, frozen=True):
    """Seconds."""

    silence: float = 5.0
    """A path that carries nothing for so long, with something asked for, leads nowhere."""
    again: float = 5.0
    """After which what was relayed is relayed again."""
    total: float = 30.0
    """For an answer, whatever it comes over."""


class Over(NamedTuple):
    """Ask over the path to its member."""

    number: int


class Relay(NamedTuple):
    """Have the coordinator pass the ask on."""

    number: int


class Reach(NamedTuple):
    """Look for a path to this member, unless that is being done, or failed lately."""

    member: str


class HangUp(NamedTuple):
    """End the path to this member; it is forgotten here."""

    member: str


class Fail(NamedTuple):
    """Whoever asked goes on without."""

    number: int
    reason: str


Instruction = Over | Relay | Reach | HangUp | Fail


class _Ask(Struct):
    member: str
    deadline: float
    since: float
    """When it was sent last."""
    direct: bool
    """Over a path or not at all."""
    on_path: bool = False


class Asks:
    """All of one member. Times are seconds of any clock that only grows; asks are numbers, never used twice."""

    def __init__(self, patience: Patience | None = None) -> None:
        self._patience = patience or Patience()
        self._asks: dict[int, _Ask] = {}
        self._paths: dict[str, float] = {}
        """Member -> when something came over the path to it."""

    def __len__(self) -> int:
        """Asks that are not over."""
        return len(self._asks)

    def wakes_at(self) -> float:
        """When `tick` is needed next."""
        return min((min(self._due(ask), ask.deadline) for ask in self._asks.values()), default=float("inf"))

    # -- events

    def ask(self, number: int, member: str, now: float, *, direct: bool = False) -> list[Instruction]:
        """`direct`: whoever asks can do without, and would rather do that at once."""
        self._asks[number] = ask = _Ask(member, now + self._patience.total, now, direct)
        return self._send(number, ask, now)

    def answered(self, number: int) -> bool:
        """Whether anybody waits for it: what was asked for twice may be answered twice."""
        return self._asks.pop(number, None) is not None

    def opened(self, member: str, now: float) -> None:
        """There is a path."""
        self._paths[member] = now

    def moved(self, member: str, now: float) -> None:
        """Something came over it."""
        if member in self._paths:
            self._paths[member] = now

    def ended(self, member: str, now: float) -> list[Instruction]:
        """There is none any more."""
        self._paths.pop(member, None)
        out: list[Instruction] = []
        for number, ask in self._of(member):
            if ask.on_path:
                out += self._send(number, ask, now)
        return out

    def refused(self, member: str, reason: str) -> list[Instruction]:
        """The coordinator cannot pass anything on to this member."""
        return [self._fail(number, reason) for number, ask in self._of(member) if not ask.on_path]

    def closed(self) -> list[Instruction]:
        """Nobody waits any longer."""
        return [self._fail(number, "it was closed") for number in list(self._asks)]

    def tick(self, now: float) -> list[Instruction]:
        """Time has passed."""
        out: list[Instruction] = []
        for number, ask in list(self._asks.items()):
            if ask.deadline <= now:
                out.append(self._fail(number, "it did not answer in time"))
            elif self._due(ask) > now:
                continue
            elif ask.on_path:
                out += [HangUp(ask.member), *self.ended(ask.member, now)]
            else:
                out += self._send(number, ask, now)
        return out

    # -- parts

    def _of(self, member: str) -> list[tuple[int, _Ask]]:
        return [(number, ask) for number, ask in self._asks.items() if ask.member == member]

    def _due(self, ask: _Ask) -> float:
        if ask.on_path:
            return max(ask.since, self._paths[ask.member]) + self._patience.silence
        return ask.since + self._patience.again

    def _send(self, number: int, ask: _Ask, now: float) -> list[Instruction]:
        ask.since, ask.on_path = now, ask.member in self._paths
        if ask.on_path:
            return [Over(number)]
        return [self._fail(number, "there is no path to it yet") if ask.direct else Relay(number), Reach(ask.member)]

    def _fail(self, number: int, reason: str) -> Fail:
        del self._asks[number]
        return Fail(number, reason)
