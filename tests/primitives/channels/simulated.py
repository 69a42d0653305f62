"""State machines of many members, the coordinator's real one, and a network between them that delivers in any order.

The messages between two members keep their order, as over a path. All others may overtake each other.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Generator, Iterator
from functools import partial
from random import Random
from typing import Any, Generic, TypeVar

import msgspec

from treadle.primitives.channels.messages import DATA, Message, Payload
from treadle.primitives.channels.protocols.collective import CollectiveMachine
from treadle.primitives.channels.protocols.membership import Send, advance
from treadle.primitives.coordinator import Coordinator, Timing
from treadle.primitives.coordinator import SendToConnection as Post
from treadle.primitives.coordinator.messages import Bye, FromMember, Hello, Join, View
from treadle.primitives.errors import TreadleError

M = TypeVar("M", bound=CollectiveMachine)
Program = Generator[Callable[[], Any], Any, None]
"""A user's function: it yields polls, and receives their results or exceptions."""
CHANNEL = "c"


class Sim(Generic[M]):
    """One simulated member."""

    def __init__(self, name: str, machine: M, connection: int) -> None:
        self.name, self.machine, self.connection = name, machine, connection
        self.program: Program | None = None
        self.poll: Callable[[], Any] | None = None
        self.error: TreadleError | None = None
        """An error that the program did not catch."""
        self.gone = False

    @property
    def busy(self) -> bool:
        return self.poll is not None and not self.gone


class Network(Generic[M]):
    """A network with possible actions `actions()`. A schedule is a sequence of choices among them."""

    def __init__(
        self, make: Callable[[str], M], program: Callable[[Network[M], Sim[M]], Program], near: bool = False
    ) -> None:
        """`near`: members know only the seats next to their own."""
        self._make, self._program, self._near = make, program, near
        self.coordinator = Coordinator(timing=Timing(lease=1e9, grace=1.0, spacing=0.0))
        self.now = 0.0
        self.members: dict[str, Sim[M]] = {}
        self.links: dict[tuple[str, str], deque[Message]] = {}
        self.views: dict[str, deque[View]] = {}
        self.counts: Counter[str] = Counter()
        self.lost: list[str] = []
        self.ended: set[str] = set()
        """Members whose user has left at a point of the schedule, perhaps within a call."""

    # -- possible actions ----------

    def join(self, parties: int = 1, fan_out: int = 2, role: str = "") -> Sim[M]:
        number = len(self.members)
        name = f"g/{number}.x"
        sim = Sim(name, self._make(name), number)
        self.members[name], self.views[name] = sim, deque()
        self._post(self.coordinator.connected(number, self.now))
        self._post(self.coordinator.received(number, Hello(name, ""), self.now))
        self._post(self.coordinator.received(number, Join(CHANNEL, parties, fan_out, role, near=self._near), self.now))
        self._tick()
        return sim

    def start(self, sim: Sim[M]) -> None:
        sim.program = self._program(self, sim)
        self._advance(sim, None)

    def leave(self, sim: Sim[M]) -> Program:
        """The end of a program. Its messages arrive before or after the others know that it has left."""

        def begin() -> bool:
            self.send(sim, sim.machine.leave())
            return True

        yield begin
        yield lambda: sim.machine.left or None
        sim.gone, sim.poll = True, None
        self.say(sim, Bye())

    def end(self, sim: Sim[M]) -> None:
        """The user leaves, at any point."""
        self.ended.add(sim.name)
        if sim.poll is not None:
            sim.program = self.leave(sim)
            self._advance(sim, None)

    def lose(self, sim: Sim[M], arrives: int) -> None:
        """The member dies. `arrives` of its messages to each other member are still delivered."""
        sim.gone, sim.poll = True, None
        self.lost.append(sim.name)
        for (source, target), link in self.links.items():
            if source == sim.name:
                self.links[source, target] = deque(list(link)[:arrives])
        self.links = {key: link for key, link in self.links.items() if link}
        self._post(self.coordinator.disconnected(sim.connection, self.now))
        self.now += 1.5
        self._tick()

    def step(self, choice: int) -> bool:
        """One delivery, or one poll of a waiting user. False: no action is possible."""
        actions = list(self._actions())
        return bool(actions) and actions[choice % len(actions)][1]()

    def drain(self) -> None:
        """Act until nothing changes any more."""
        idle = 0
        for count in range(200_000):
            moved = self.step(count * 7919)
            idle = 0 if moved else idle + 1
            if idle > len(self.members) + 2 and not self._in_flight():
                return
        raise AssertionError("it never comes to rest")

    def race(self, seed: int, changes: int = 5) -> None:
        """Act until nothing changes any more, with some parts much slower than others.

        Each link, view and user has a rank. The first that can act does, and sometimes it becomes the last. Few changes
        of rank find bugs that need few wrong orders (Burckhardt et al., A randomized scheduler, 2010).
        """
        random, ranks, last = Random(seed), dict[tuple[str, str], float](), 1.0
        late = {random.randrange(40 * len(self.members)) for _ in range(changes)}
        for count in range(200_000):
            actions = dict(self._actions())
            for key in actions:
                ranks.setdefault(key, random.random())
            moved = next((key for key in sorted(actions, key=ranks.__getitem__) if actions[key]()), None)
            if moved is None:
                return
            if count in late:
                last += 1
                ranks[moved] = last
        raise AssertionError("it never comes to rest")

    def _actions(self) -> Iterator[tuple[tuple[str, str], Callable[[], bool]]]:
        for source, target in sorted(self.links):
            yield (source, target), partial(self._deliver, source, target)
        for name in sorted(name for name, views in self.views.items() if views):
            yield ("view", name), partial(self._view, name)
        for sim in self.members.values():
            if sim.busy and sim.machine.epoch:
                yield ("user", sim.name), partial(self._look, sim)

    def _in_flight(self) -> bool:
        return bool(self.links) or any(self.views.values())

    # -- their effects ----------

    def send(self, sim: Sim[M], sends: list[Send]) -> None:
        for target, message in sends:
            self.counts["data" if type(message) in DATA else "control"] += 1
            self.links.setdefault((sim.name, target), deque()).append(message)

    def _deliver(self, source: str, target: str) -> bool:
        link = self.links[source, target]
        message = link.popleft()
        if not link:
            del self.links[source, target]
        sim = self.members[target]
        if not sim.gone:
            self.send(sim, sim.machine.message(source, message))
            self._catch_up(sim)
        return True

    def _view(self, name: str) -> bool:
        view, sim = self.views[name].popleft(), self.members[name]
        if not sim.gone and (roster := advance(sim.machine.roster, view)) is not None:
            self.send(sim, sim.machine.view(roster))
            self._catch_up(sim)
        return True

    def _catch_up(self, sim: Sim[M]) -> None:
        machine = sim.machine
        if machine.behind:
            machine.behind = False
            again = Join(
                CHANNEL, 1, machine.roster.fan_out, "", machine.epoch, machine.roster.seat(sim.name), self._near
            )
            self.counts["joins"] += 1
            self.say(sim, again)

    def say(self, sim: Sim[M], message: FromMember) -> None:
        """The member sends a message to the coordinator."""
        self._post(self.coordinator.received(sim.connection, message, self.now))
        self._tick()

    def _look(self, sim: Sim[M]) -> bool:
        """Returns whether the user could continue."""
        assert sim.poll is not None
        try:
            result = sim.poll()
        except TreadleError as error:
            self._advance(sim, None, error)
            return True
        if result is None:
            return False
        self._advance(sim, result)
        return True

    def _advance(self, sim: Sim[M], result: Any, error: TreadleError | None = None) -> None:
        assert sim.program is not None
        try:
            sim.poll = sim.program.throw(error) if error else sim.program.send(result)
        except StopIteration:
            sim.poll = None
        except TreadleError as raised:
            sim.poll, sim.error = None, raised

    def _post(self, instructions: list[Any]) -> None:
        names = {sim.connection: name for name, sim in self.members.items()}
        for instruction in instructions:
            if isinstance(instruction, Post) and isinstance(instruction.message, View):
                self.counts.update({"views": 1, "bytes": len(msgspec.msgpack.encode(instruction.message))})
                self.views[names[instruction.connection]].append(instruction.message)

    def _tick(self) -> None:
        self._post(self.coordinator.tick(self.now))


def payload(text: str) -> Payload:
    return Payload("objects", text.encode())


def text(payload: Payload) -> str:
    return payload.data.decode()
