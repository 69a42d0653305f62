"""Chooses the way of a member's requests for blocks to members that it cannot dial. Pure: events in, instructions out.

    a request is  event                                  next     instructions
    -             ask, with a path to the member         on path  Over
    -             ask, without a path                    relayed  RelayRequest; FindPath: a path would be better
    -             ask with `direct`, without a path      over     FailRequest; FindPath
    on path       the path ended                         relayed  as for a new request
    on path       nothing arrived for `silence`          relayed  HangUp, then the same for all requests on this path
    relayed       a path opened                          relayed  none: the answer is on its way
    relayed       no answer for `again`                  either   as for a new request: a message may be lost
    relayed       the coordinator cannot relay           over     FailRequest
    any           answered                               over     -
    any           its deadline                           over     FailRequest

Both members use an open path, no matter which side wanted or dialled it. A silent path is given up even if it is only
slow: relayed messages arrive as well.
"""

from __future__ import annotations

from typing import NamedTuple

from msgspec import Struct


class Patience(Struct, frozen=True):
    """Time limits, in seconds."""

    silence: float = 5.0
    """A path that carries nothing for this time, with a request under way, counts as broken."""
    again: float = 5.0
    """A relayed request is repeated after this time."""
    total: float = 30.0
    """Limit for an answer on any way."""


class Over(NamedTuple):
    """Send the request over the path to its member."""

    number: int


class RelayRequest(NamedTuple):
    """Have the coordinator relay the request."""

    number: int


class FindPath(NamedTuple):
    """Search for a path to this member, unless a search is under way or failed lately."""

    member: str


class HangUp(NamedTuple):
    """End the path to this member; the router has forgotten it."""

    member: str


class FailRequest(NamedTuple):
    """The request has failed."""

    number: int
    reason: str


Instruction = Over | RelayRequest | FindPath | HangUp | FailRequest


class _Ask(Struct):
    member: str
    deadline: float
    since: float
    """Time of its last sending."""
    direct: bool
    """Fail without a path, instead of a relay."""
    on_path: bool = False


class Asks:
    """All requests of one member. Times are seconds of any monotonic clock; request numbers are never reused."""

    def __init__(self, patience: Patience | None = None) -> None:
        self._patience = patience or Patience()
        self._asks: dict[int, _Ask] = {}
        self._paths: dict[str, float] = {}
        """Maps a member to the time of the last arrival over its path."""

    def __len__(self) -> int:
        """Number of open requests."""
        return len(self._asks)

    def wakes_at(self) -> float:
        """Return the time at which `tick` is needed next; infinite without requests."""
        return min((min(self._due(ask), ask.deadline) for ask in self._asks.values()), default=float("inf"))

    # -- events

    def ask(self, number: int, member: str, now: float, *, direct: bool = False) -> list[Instruction]:
        """Start a request. `direct`: fail at once without a path, because the caller has an alternative."""
        self._asks[number] = ask = _Ask(member, now + self._patience.total, now, direct)
        return self._send(number, ask, now)

    def answered(self, number: int) -> bool:
        """Return whether the request was still open: a repeated request may be answered twice."""
        return self._asks.pop(number, None) is not None

    def opened(self, member: str, now: float) -> None:
        """A path opened."""
        self._paths[member] = now

    def moved(self, member: str, now: float) -> None:
        """Bytes arrived over the path."""
        if member in self._paths:
            self._paths[member] = now

    def ended(self, member: str, now: float) -> list[Instruction]:
        """The path ended."""
        self._paths.pop(member, None)
        out: list[Instruction] = []
        for number, ask in self._of(member):
            if ask.on_path:
                out += self._send(number, ask, now)
        return out

    def refused(self, member: str, reason: str) -> list[Instruction]:
        """The coordinator cannot relay to this member."""
        return [self._fail(number, reason) for number, ask in self._of(member) if not ask.on_path]

    def closed(self) -> list[Instruction]:
        """Fail all open requests."""
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
        return [
            self._fail(number, "there is no path to it yet") if ask.direct else RelayRequest(number),
            FindPath(ask.member),
        ]

    def _fail(self, number: int, reason: str) -> FailRequest:
        del self._asks[number]
        return FailRequest(number, reason)
