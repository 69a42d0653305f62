"""The coordinator under any history: joins, leaves, losses, cuts, silence, duplicates, clock jumps, restarts."""

from __future__ import annotations

import pytest
from hypothesis import note, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from primitives.coordinator.world import ELSEWHERE, GRACE, LEASE, Sim, World, waits_at
from properties.profiles import examples

from treadle.primitives.coordinator import messages as m

pytestmark = pytest.mark.timeout(0)  # shrinking takes long
CHANNELS = ("a", "b")
BLOCKS = ("x", "y", "z")
BARRIER_PARTIES = 2


class Histories(RuleBasedStateMachine):
    """Rules act on a `World`, which checks each message of the coordinator at once."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.count = 0
        self.tasks = 0
        self.shapes: dict[str, tuple[int, int]] = {}

    def some(self, choice: int) -> Sim:
        sims = list(self.world.sims.values())
        return sims[choice % len(sims)]

    @property
    def peopled(self) -> bool:
        return bool(self.world.sims)

    @initialize(shapes=st.tuples(*(st.tuples(st.integers(1, 5), st.integers(1, 4)) for _ in CHANNELS)))
    def begin(self, shapes: tuple[tuple[int, int], ...]) -> None:
        """`shapes`: parties and fan-out of each channel."""
        self.shapes = dict(zip(CHANNELS, shapes, strict=True))

    # -- members ----------

    @rule(number=st.integers(1, 4), channel=st.sampled_from(CHANNELS), together=st.booleans())
    def arrive(self, number: int, channel: str, together: bool) -> None:
        for _ in range(number):
            self.count += 1
            sim = self.world.sims[f"m{self.count}"] = Sim(f"m{self.count}")
            self.world.connect(sim)
            self._join(sim, channel)
        if together:
            self.world.pass_time(0.02)

    def _join(self, sim: Sim, channel: str) -> None:
        parties, fan_out = self.shapes[channel]
        join = sim.joined[channel] = m.Join(channel, parties, fan_out)
        if sim.connection is not None:
            sim.up.append(join)

    @precondition(lambda self: self.peopled)
    @rule(choice=st.integers(0, 100), channel=st.sampled_from(CHANNELS))
    def join_or_leave(self, choice: int, channel: str) -> None:
        sim = self.some(choice)
        if channel not in sim.joined:
            self._join(sim, channel)
        else:
            del sim.joined[channel]
            sim.views.pop(channel, None)
            self._say(sim, m.Leave(channel))

    def _say(self, sim: Sim, message: m.FromMember) -> None:
        if sim.connection is not None:
            sim.up.append(message)

    @precondition(lambda self: self.peopled)
    @rule(choice=st.integers(0, 100))
    def bye(self, choice: int) -> None:
        sim = self.some(choice)
        if sim.connection is not None:
            self.world.leave(sim)

    @precondition(lambda self: self.peopled)
    @rule(choice=st.integers(0, 100), noticed=st.booleans())
    def die(self, choice: int, noticed: bool) -> None:
        sim = self.some(choice)
        note(f"{sim.name} dies")
        self.world.die(sim, noticed)

    # -- connections ----------

    @precondition(lambda self: self.peopled)
    @rule(choice=st.integers(0, 100), arrives=st.integers(0, 3), noticed=st.booleans())
    def cut(self, choice: int, arrives: int, noticed: bool) -> None:
        self.world.cut(self.some(choice), arrives, noticed)

    @rule()
    def reconnect(self) -> None:
        for sim in self.world.sims.values():
            if sim.connection is None:
                self.world.connect(sim)

    @precondition(lambda self: self.peopled)
    @rule(choice=st.integers(0, 100))
    def dial_again(self, choice: int) -> None:
        """Open a second live connection with the same name."""
        self.world.connect(self.some(choice))

    @precondition(lambda self: self.peopled)
    @rule(choice=st.integers(0, 100), up=st.integers(0, 4), down=st.integers(0, 4))
    def carry(self, choice: int, up: int, down: int) -> None:
        """Deliver messages, so that members overtake each other."""
        sim = self.some(choice)
        for _ in range(up):
            self.world.carry_up(sim)
        for _ in range(down):
            self.world.carry_down(sim)

    @precondition(lambda self: self.peopled)
    @rule(choice=st.integers(0, 100))
    def say_twice(self, choice: int) -> None:
        sim = self.some(choice)
        if sim.up:
            sim.up.append(sim.up[-1])

    @rule()
    def exchange(self) -> None:
        self.world.exchange()

    @rule()
    def tick(self) -> None:
        self.world.tick()

    # -- time, and the coordinator ----------

    @rule(seconds=st.sampled_from([0.005, 0.05, GRACE / 2, GRACE, 2 * GRACE]))
    def pass_time(self, seconds: float) -> None:
        self.world.pass_time(seconds)

    @rule()
    def silence(self) -> None:
        """All members are silent until they count as lost, although they live."""
        self.world.pass_time(LEASE, silent=True)

    @rule(seconds=st.sampled_from([-5.0, 0.5, 100.0]))
    def clock_jumps(self, seconds: float) -> None:
        """The clock jumps forward, since this process stood still. No member may be lost by that."""
        self.world.now += seconds
        self.world.tick()
        self.world.now = max(self.world.now, self.world.now - seconds)

    @rule(follows=st.booleans())
    def restart(self, follows: bool) -> None:
        """Restart the coordinator, with higher epochs than before, or without knowledge of them."""
        self.world.restart(self.world.highest if follows else 0)

    # -- barriers, blocks, tasks ----------

    @precondition(lambda self: len(self.world.sims) >= BARRIER_PARTIES)
    @rule(kind=st.sampled_from(["", ELSEWHERE]))
    def agree_on_barrier(self, kind: str) -> None:
        name = f"barrier{len(self.world.parties)}{kind}"
        self.world.parties[name] = set(list(self.world.sims)[-BARRIER_PARTIES:])

    @precondition(lambda self: self.peopled and self.world.parties)
    @rule(parties=st.lists(st.integers(0, BARRIER_PARTIES - 1), min_size=1, max_size=6), exchange=st.booleans())
    def wait(self, parties: list[int], exchange: bool) -> None:
        name = list(self.world.parties)[-1]
        for party in parties:
            sim = self.world.sims.get(sorted(self.world.parties[name])[party])
            if sim is not None and name not in sim.waiting and name not in sim.broken:
                sim.waiting[name] = BARRIER_PARTIES
                self._say(sim, waits_at(name, BARRIER_PARTIES, sim.passed.get(name, 0)))
            if exchange:
                self.world.exchange()

    @precondition(lambda self: self.peopled)
    @rule(choice=st.integers(0, 100), blocks=st.sets(st.sampled_from(BLOCKS), min_size=1))
    def announce_or_withdraw(self, choice: int, blocks: set[str]) -> None:
        sim = self.some(choice)
        if blocks <= sim.blocks:
            sim.blocks -= blocks
            self._say(sim, m.Withdraw(tuple(blocks)))
        else:
            sim.blocks |= blocks
            self._say(sim, m.Announce(tuple(blocks)))

    @precondition(lambda self: any(sim.blocks for sim in self.world.sims.values()))
    @rule(choice=st.integers(0, 100), noticed=st.booleans())
    def give_up_blocks_unheard(self, choice: int, noticed: bool) -> None:
        """Release blocks while the member has no connection."""
        having = sorted(name for name, sim in self.world.sims.items() if sim.blocks)
        sim = self.world.sims[having[choice % len(having)]]
        self.world.cut(sim, len(sim.up), noticed)
        sim.blocks.remove(min(sim.blocks))
        self.world.connect(sim)

    @rule()
    def offer(self) -> None:
        self.tasks += 1
        self.world.offer(f"task{self.tasks}")

    @precondition(lambda self: self.peopled)
    @rule(choice=st.integers(0, 100))
    def offer_to_one(self, choice: int) -> None:
        self.tasks += 1
        self.world.offer_to(f"own{self.tasks}", self.some(choice).name)

    @rule(choice=st.integers(0, 100))
    def withdraw(self, choice: int) -> None:
        tasks = sorted({*self.world.own, *(self.world.offered - self.world.finished)})
        if tasks:
            self.world.withdraw(tasks[choice % len(tasks)])

    @precondition(lambda self: self.peopled)
    @rule(choice=st.integers(0, 100), free=st.integers(0, 2))
    def take(self, choice: int, free: int) -> None:
        self._say(self.some(choice), m.Take(free))

    @precondition(lambda self: self.peopled)
    @rule(choice=st.integers(0, 100), finishes=st.booleans())
    def end_task(self, choice: int, finishes: bool) -> None:
        sim = self.some(choice)
        if sim.tasks:
            task, epoch = sim.tasks.popitem()
            if finishes:
                sim.unanswered[task] = epoch
                self._say(sim, m.Finished(task, epoch))
            else:
                self._say(sim, m.GiveUp(task, epoch))

    def teardown(self) -> None:
        self.world.settle()
        self.world.settled()


TestHistories = Histories.TestCase
TestHistories.settings = settings(examples(150), stateful_step_count=50)
