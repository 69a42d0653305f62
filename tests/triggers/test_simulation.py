"""Exactly one run for each matching event, for any deaths, stalls and moves, in any order."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from properties.profiles import examples
from triggers.world import TOPIC, Outcome, Owner, World

MATCHING = b'{"a": true, "b": true, "c": 1}'
VALUES: tuple[bytes | None, ...] = (
    *4 * (MATCHING,),
    b'{"a": true, "b": false, "c": 2}',
    b'{"a": false, "b": true, "c": 1}',
    b'{"a": false, "b": false, "c": 3}',
    b'{"b": true, "c": 2}',
    b'{"a": true, "b": true, "c": 4, "refused": true}',
    b"oops",
    None,
)
FILTERS = ("event.data.a", "event.data.b", "event.data.a && event.data.b", "event.data.c < 3")
BATCHES: tuple[dict[str, Any] | None, ...] = (
    {"maxEvents": 1, "maxWait": "1s"},
    {"maxEvents": 5, "maxWait": "1s"},
    {"maxEvents": 50, "maxWait": "1s", "maxBytes": "64B"},
)
OUTCOMES: tuple[Outcome, ...] = ("done", "done", "unreachable", "written", "unheard")
PARTITIONS = 2


class Triggers(RuleBasedStateMachine):
    """The state machine. Subclasses draw the first version."""

    batch: dict[str, Any] | None = None
    max_active: int | None = None
    dedupe = "offset"

    @initialize(choice=st.sampled_from(FILTERS))
    def begin(self, choice: str) -> None:
        trigger = {
            "type": "kafka",
            "connection": "prod",
            "topics": [TOPIC],
            "format": "json",
            "startFrom": "earliest",
            "filter": choice,
            "dedupe": self.dedupe,
            "with": {"orders": "${{ trigger.events }}"},
            **({"batch": self.batch} if self.batch else {}),
        }
        self.world = World(trigger, PARTITIONS, self.max_active)
        self.names = 0
        self.come()
        for number in range(PARTITIONS):
            self.world.assign(number, self.world.owners[0], silently=False)

    # -- the world goes on

    @rule(number=st.integers(0, PARTITIONS - 1), values=st.lists(st.sampled_from(VALUES), min_size=1, max_size=6))
    def produce(self, number: int, values: list[bytes | None]) -> None:
        for value in values:
            self.world.produce(number, value)

    @rule(which=st.integers(0, 9), times=st.integers(1, 6), seconds=st.floats(0, 3))
    def turn(self, which: int, times: int, seconds: float) -> None:
        owner = self._owner(which)
        for _ in range(times):
            self.world.now += seconds
            if owner:
                owner.step()

    @rule(which=st.integers(0, 9), times=st.integers(1, 8), seconds=st.floats(0, 3))
    def serve(self, which: int, times: int, seconds: float) -> None:
        """Serve without faults."""
        owner = self._owner(which)
        for _ in range(times if owner else 0):
            assert owner is not None
            self.world.now += seconds
            owner.step()
            while owner.starts:
                self.world.answer(owner, 0, "done")
            while owner.letters:
                self.world.write(owner, 0, True)

    @rule(which=st.integers(0, 9), index=st.integers(0, 9), outcome=st.sampled_from(OUTCOMES))
    def answer(self, which: int, index: int, outcome: Outcome) -> None:
        owner = self._owner(which)
        if owner and owner.starts:
            self.world.answer(owner, index % len(owner.starts), outcome)

    @rule(which=st.integers(0, 9), index=st.integers(0, 9), works=st.booleans())
    def write(self, which: int, index: int, works: bool) -> None:
        owner = self._owner(which)
        if owner and owner.letters:
            self.world.write(owner, index % len(owner.letters), works)

    @rule(index=st.integers(0, 9))
    def end_run(self, index: int) -> None:
        if self.world.open:
            self.world.open.discard(sorted(self.world.open)[index % len(self.world.open)])

    # -- processes

    @precondition(lambda self: len(self.world.owners) < 3)
    @rule()
    def come(self) -> None:
        self.names += 1
        self.world.owners.append(Owner(self.world, self.names))

    @rule(which=st.integers(0, 9), outcomes=st.lists(st.sampled_from(OUTCOMES), max_size=4), heir=st.integers(0, 9))
    def die(self, which: int, outcomes: list[Outcome], heir: int) -> None:
        """Its unanswered requests may still take effect. Another process gets its partitions."""
        owner = self._owner(which)
        if owner is None:
            return
        for outcome in outcomes[: len(owner.starts)]:
            self.world.answer(owner, 0, outcome)
        self.world.owners.remove(owner)
        if not self.world.owners:
            self.come()
        for number in sorted(owner.assigned | owner.leaving):
            self.world.heirs.pop(number, None)
            self.world.assign(number, self._owner(heir), silently=True)

    @rule(
        number=st.integers(0, PARTITIONS - 1),
        values=st.lists(st.sampled_from(VALUES), min_size=1, max_size=8),
        turns=st.tuples(st.integers(0, 4), st.integers(1, 8)),
        outcome=st.sampled_from(("written", "unheard", "unreachable", "done")),
        late=st.booleans(),
        pace=st.sampled_from(((1, 1.5), (3, 0.3), (2, 0.6))),
    )
    def stall_half_way(
        self,
        number: int,
        values: list[bytes | None],
        turns: tuple[int, int],
        outcome: Outcome,
        late: bool,
        pace: tuple[int, float],
    ) -> None:
        """An owner requests the runs of its batch and stalls. Another one gathers the same records again."""
        mine = [each for each, owner in enumerate(self.world.owners) if number in owner.assigned]
        if not mine:
            return
        owner = self.world.owners[mine[0]]
        self.produce(number, values[: len(values) // 2])
        self.turn(mine[0], turns[0] + 1, 0.01)
        self.turn(mine[0], 2, 1.5)
        while owner.starts and not late:
            self.world.answer(owner, 0, outcome)
        if outcome == "done":
            self.turn(mine[0], 1, 1.5)  # and commits
        self.produce(number, values[len(values) // 2 :])
        if len(self.world.owners) == 1:
            self.come()
        heir = (mine[0] + 1) % len(self.world.owners)
        self.world.assign(number, self.world.owners[heir], silently=True)
        self.world.portion, seconds = pace
        self.serve(heir, turns[1], seconds)
        self.world.portion = 2

    @rule(which=st.integers(0, 9), prompt=st.booleans())
    def leave(self, which: int, prompt: bool) -> None:
        owner = self._owner(which)
        if owner is not None:
            owner.prompt = prompt
            owner.loop.close()
            self.world.owners.remove(owner)

    @rule(number=st.integers(0, PARTITIONS - 1), which=st.integers(0, 9), silently=st.booleans(), prompt=st.booleans())
    def move(self, number: int, which: int, silently: bool, prompt: bool) -> None:
        """Silently: the former owner stalls, and does not know yet."""
        for owner in self.world.owners:
            owner.prompt = prompt
        self.world.assign(number, self._owner(which), silently=silently)

    # -- faults

    @rule(down=st.booleans())
    def temporal(self, down: bool) -> None:
        self.world.temporal_down = down

    @rule(down=st.booleans())
    def broker(self, down: bool) -> None:
        self.world.broker_down = down

    @rule(which=st.integers(0, 9), paused=st.booleans())
    def pause(self, which: int, paused: bool) -> None:
        owner = self._owner(which)
        if owner:
            owner.paused = paused

    @rule()
    def forget_offsets(self) -> None:
        """Delete the offsets, as Kafka does for groups that were idle for a week."""
        self.world.commits.clear()

    @rule(number=st.integers(0, PARTITIONS - 1), before=st.integers(0, 30))
    def expire(self, number: int, before: int) -> None:
        """Expire records. A batch that was started but not committed must not lose its beginning. With a required
        order, no record with an open run may expire (see the decision record)."""
        if self.max_active == 1:
            before = min([before, *self._open(number)])
        if self.batch is None:
            self.world.expire(number, before)

    @rule()
    def make_topic_again(self) -> None:
        self.world.make_topic()

    # -- versions

    @precondition(lambda self: self.world.history[-1].begins is not None and len(self.world.history) < 5)
    @rule(choice=st.sampled_from(FILTERS), batch=st.sampled_from(BATCHES))
    def deploy(self, choice: str, batch: dict[str, Any]) -> None:
        self.world.deploy({"filter": choice, **({"batch": batch} if self.batch else {})})

    @precondition(lambda self: self.world.history[-1].begins is not None and len(self.world.history) < 5)
    @rule(
        choice=st.sampled_from(FILTERS),
        number=st.integers(0, PARTITIONS - 1),
        values=st.lists(st.sampled_from(VALUES), min_size=2, max_size=6),
    )
    def deploy_between_records(self, choice: str, number: int, values: list[bytes | None]) -> None:
        """Owners have just read the registry."""
        self.produce(number, values[:1])
        for each in range(len(self.world.owners)):
            self.turn(each, 2, 0.1)
        self.world.deploy({"filter": choice})
        self.world.settle()
        self.produce(number, values[1:])
        for each in range(len(self.world.owners)):
            self.turn(each, 2, 0.1)

    @rule()
    def settle(self) -> None:
        self.world.settle()

    # -- the end

    @invariant()
    def nothing_is_started_twice(self) -> None:
        if not hasattr(self, "world") or self.world.history[-1].begins is None:
            return
        seen: set[tuple[str, int, int]] = set()
        for batch in self.world.runs.values():
            for one in batch.matched:
                place = (one.record.topic_id, one.record.partition, one.record.offset)
                assert place not in seen, f"{place} is in two runs"
                seen.add(place)

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        world = self.world
        world.temporal_down = world.broker_down = False
        world.settle()
        for owner in world.owners:
            for number in range(PARTITIONS):
                owner.gone.add(number)
                owner.assigned.discard(number)
                owner.leaving.clear()
        last = Owner(world, 99)
        world.owners.append(last)
        last.assigned = set(range(PARTITIONS))
        self._drain(last)
        world.check_end()

    def _drain(self, last: Owner) -> None:
        quiet = 0
        while quiet < 5:
            quiet += 1
            self.world.now += 40.0
            for owner in self.world.owners:  # stalled owners return, and send their pending requests
                owner.step()
                while owner.starts:
                    self.world.answer(owner, 0, "done")
                    quiet = 0
                while owner.letters:
                    self.world.write(owner, 0, True)
                    quiet = 0
            self.world.open.clear()
            if self.world.owners[0] is not last:
                del self.world.owners[0]

    def _open(self, number: int) -> list[int]:
        """Offsets of a partition with open runs."""
        firsts = [self.world.runs[name].first for name in self.world.open]
        return [one.offset for one in firsts if (one.topic_id, one.partition) == (self.world.life.id, number)]

    def _owner(self, which: int) -> Owner | None:
        return self.world.owners[which % len(self.world.owners)] if self.world.owners else None


class Batches(Triggers):
    batch = BATCHES[1]


class InOrder(Triggers):
    max_active = 1


class BatchesInOrder(Triggers):
    batch = BATCHES[1]
    max_active = 1


class Merged(Triggers):
    dedupe = "event.data.c"


class Few(Triggers):
    max_active = 2


TestSingles = Triggers.TestCase
TestBatches = Batches.TestCase
TestInOrder = InOrder.TestCase
TestBatchesInOrder = BatchesInOrder.TestCase
TestMerged = Merged.TestCase
TestFew = Few.TestCase
_FEW = settings(examples(25), stateful_step_count=40)
for _case in (TestSingles, TestInOrder, TestBatchesInOrder, TestMerged, TestFew):
    _case.settings = _FEW
TestBatches.settings = settings(examples(60), stateful_step_count=40)
del _case
