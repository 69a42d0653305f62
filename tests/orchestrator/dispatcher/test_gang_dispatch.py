"""A gang's decisions, and its service by a pool; without processes or a clock."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence

from hypothesis import given
from hypothesis import strategies as st

from treadle.executors.interface import Capabilities, Slot
from treadle.executors.program import Failure, Job, Outcome, Program, Report, Task
from treadle.executors.program import Keep as KeepTail
from treadle.orchestrator.dispatcher.decisions.attempt_outcomes import MAXIMUM_CRASHES, MAXIMUM_LOSSES, Past, Verdict
from treadle.orchestrator.dispatcher.decisions.dispatch import PlannedAttempt
from treadle.orchestrator.dispatcher.decisions.gang import GangDispatch
from treadle.orchestrator.dispatcher.driver_context.slot_pool import SlotPool
from treadle.orchestrator.plan.plan import Policy
from treadle.primitives.encoding.references import BlockRef
from treadle.primitives.errors import FailureClass, TreadleError

TRIO = Policy(gang=3, maximum_attempts=2, initial_interval=1.0)
SLOTS = ("a", "b", "c")


def start(core: GangDispatch, now: float = 0.0) -> list[int]:
    """Give the gang its wanted slots. Returns the partitions in them."""
    assert core.wanted(now) == core.size
    assignments = [core.next_task(slot, now) for slot in SLOTS[: core.size]]
    return [attempt.partition for one in assignments if one for attempt in one.attempts]


def outcome(partition: int) -> Outcome:
    return Outcome(partition, 1, "objects", 1)


def failure(partition: int, kind: FailureClass = FailureClass.USER_ERROR, *, followed: bool = False) -> Failure:
    return Failure(partition, 1, kind, "by a test", message=f"of {partition}", followed=followed)


def test_every_member_gets_a_slot_and_nothing_counts_before_the_last() -> None:
    core = GangDispatch(TRIO)
    assert start(core) == [0, 1, 2]
    assert core.wanted(0) == 0
    assert core.delivered(outcome(2)) == core.delivered(outcome(0)) == ()
    assert [one.partition for one in core.delivered(outcome(1))] == [0, 1, 2]
    for slot in SLOTS:
        assert not core.over
        assert core.verdict(slot, 0) is None
        core.ended(slot)
    assert core.over
    assert core.problem() is None


def test_failure_of_one_is_one_attempt_of_all() -> None:
    core = GangDispatch(TRIO)
    start(core)
    assert core.broke("b", failure(1))
    assert core.delivered(outcome(0)) == ()
    assert core.verdict("a", 0) is None
    core.ended("a")
    core.ended("c")
    verdict = core.verdict("b", 0)
    core.ended("b")
    assert verdict is not None
    assert (verdict.failure.partition, verdict.spent, verdict.final) == (1, True, False)
    assert core.wanted(0.5) == 0
    assert core.wakes_at() == 1.0
    assert start(core, 1.0) == [0, 1, 2]
    core.broke("c", failure(2))
    for slot in SLOTS:
        found = core.verdict(slot, 1.0)
        core.ended(slot)
    assert found is not None
    assert found.final
    assert core.over
    assert core.problem() == (FailureClass.USER_ERROR, "the gang failed, partition 2 first: of 2")


def test_consequence_of_a_failure_does_not_count_as_its_cause() -> None:
    core = GangDispatch(TRIO)
    start(core)
    assert not core.broke("a", failure(0, FailureClass.WORKER_LOST, followed=True))
    assert core.broke("b", failure(1))
    assert core.broke("c", failure(2, FailureClass.OUT_OF_MEMORY))
    for slot in SLOTS:
        found = core.verdict(slot, 0)
        core.ended(slot)
    assert found is not None
    assert (found.failure.partition, found.failure.failure) == (1, FailureClass.USER_ERROR)


def test_gang_cut_off_without_a_failure_starts_again() -> None:
    core = GangDispatch(TRIO)
    start(core)
    for slot in SLOTS:
        core.ended(slot)
    assert start(core) == [0, 1, 2]


def test_losses_are_the_gangs() -> None:
    core = GangDispatch(TRIO, Past(losses={0: MAXIMUM_LOSSES - 1, 1: MAXIMUM_LOSSES - 1, 2: MAXIMUM_LOSSES - 1}))
    start(core)
    core.broke("a", failure(-1, FailureClass.WORKER_LOST))
    for slot in SLOTS:
        found = core.verdict(slot, 0)
        core.ended(slot)
    assert found is not None
    assert found.failure.failure is FailureClass.POISON
    assert found.failure.partition == 0


def state(partition: int) -> BlockRef:
    return BlockRef(f"checkpoints/s/1.{partition}.x", "objects", 1, (), ("store",))


def test_checkpoint_has_the_states_of_all_members_or_none() -> None:
    core = GangDispatch(TRIO)
    start(core)
    assert core.saved(2, state(2)) == core.saved(0, state(0)) == ()
    assert core.saved(1, state(1)) == (state(0), state(1), state(2))
    assert core.saved(2, state(2)) == core.saved(0, state(0)) == (), "the next one"
    core.broke("b", failure(1, FailureClass.WORKER_LOST))
    assert core.saved(1, state(1)) == ()
    for slot in SLOTS:
        core.verdict(slot, 0)
        core.ended(slot)
    start(core)
    assert core.saved(1, state(1)) == core.saved(0, state(0)) == (), "the states of the attempt before are gone"


def test_losses_before_a_checkpoint_do_not_count() -> None:
    core = GangDispatch(TRIO, Past(losses=dict.fromkeys(range(3), MAXIMUM_LOSSES - 1)))
    start(core)
    for partition in range(3):
        core.saved(partition, state(partition))
    core.broke("a", failure(0, FailureClass.WORKER_LOST))
    found = [core.verdict(slot, 0) or core.ended(slot) for slot in SLOTS][-1]
    assert isinstance(found, Verdict)
    assert not found.final


def test_member_that_has_ended_without_a_checkpoint_is_named() -> None:
    core = GangDispatch(TRIO)
    start(core)
    core.delivered(outcome(2))
    assert core.ended_early is None, "no member waits for it"
    core.saved(0, state(0))
    assert core.ended_early == 2


def test_a_gang_goes_on_from_the_counts_of_its_ledger() -> None:
    core = GangDispatch(TRIO, Past(starts={0: 4, 1: 4, 2: 3}, spent={0: 1, 1: 1, 2: 0}))
    assert core.wanted(0) == 3
    for partition, slot in enumerate(SLOTS):
        found = core.next_task(slot, 0)
        assert found is not None
        assert found.attempts == (PlannedAttempt(partition, 5, final=True),)
    assert core.next_task("d", 0) is None, "it has its slots"
    dead = GangDispatch(TRIO, Past(crashes={0: MAXIMUM_CRASHES - 1, 1: MAXIMUM_CRASHES}))
    assert dead.over
    problem = dead.problem()
    assert problem is not None
    assert problem[0] is FailureClass.POISON
    assert problem[1].startswith("1 partition failed; the first: the driver died")


def test_a_gang_that_is_committed_wants_nothing() -> None:
    core = GangDispatch(TRIO, committed=True)
    assert core.over
    assert core.wanted(0) == 0
    assert core.next_task("a", 0) is None
    assert core.problem() is None


def test_outcomes_of_a_gang_that_breaks_never_count() -> None:
    core = GangDispatch(TRIO)
    start(core)
    core.broke("b", failure(1, followed=True))
    assert [core.delivered(outcome(partition)) for partition in range(3)] == [(), (), ()]
    assert [core.ended(slot) for slot in SLOTS] == [[], [], [2]]
    assert core.delivered(outcome(0)) == ()
    assert start(core) == [0, 1, 2]
    assert [core.delivered(outcome(partition)) for partition in range(2)] == [(), ()], "those of before are gone"


def test_output_of_a_broken_gang_attempt_does_not_enter_the_next() -> None:
    core = GangDispatch(TRIO)
    start(core)
    assert core.delivered(outcome(0)) == ()
    core.broke("b", failure(1))
    for slot in SLOTS:
        core.verdict(slot, 0)
        core.ended(slot)
    start(core, 1.0)
    assert core.delivered(outcome(1)) == core.delivered(outcome(2)) == ()
    assert len(core.delivered(outcome(0))) == 3


def test_a_member_that_dies_once_all_have_delivered_breaks_nothing() -> None:
    core = GangDispatch(TRIO)
    start(core)
    assert len([core.delivered(outcome(partition)) for partition in range(3)][-1]) == 3
    core.broke("b", failure(1, FailureClass.WORKER_LOST))
    for slot in SLOTS:
        assert core.verdict(slot, 0) is None
        core.ended(slot)
    assert (core.over, core.problem()) == (True, None)
    assert core.delivered(outcome(1)) == (), "all are committed once"


def test_of_failures_that_follow_from_others_the_first_counts() -> None:
    core = GangDispatch(TRIO)
    start(core)
    for slot, partition in (("c", 2), ("a", 0)):
        assert not core.broke(slot, failure(partition, followed=True))
    for slot in SLOTS:
        found = core.verdict(slot, 0)
        core.ended(slot)
    assert found is not None
    assert found.failure.partition == 2


# -- slots ---------------------------------------------------------------------------------------------------------


class Client:
    """Wants `size` slots at once, `tasks` times."""

    def __init__(self, name: str, size: int, tasks: int) -> None:
        self.name, self.size, self.left = name, size, tasks * size
        self.running: set[str] = set()
        self.seen: list[int] = []
        """Slots of this client in use, after each change."""

    def together(self) -> int:
        return self.size if self.size == 1 or (self.left and not self.running) else 0

    def offer(self, slot: str) -> Task | None:
        if not self.left:
            return None
        self.left -= 1
        self.running.add(slot)
        self.seen.append(len(self.running))
        return TASK

    def backup(self, slot: str) -> Task | None:
        return None

    async def ready(self) -> None:
        pass

    def report(self, slot: str, report: Report) -> None:
        pass

    def ended(self, slot: str, error: BaseException | None) -> None:
        self.running.discard(slot)

    def refuse(self, error: TreadleError) -> None:
        raise AssertionError("every slot is in service")


TASK = Task("t", Job("r", "w", "", 0, "", ""), Program("s", (), KeepTail()), ())


class Held:
    """A slot whose tasks end on request."""

    def __init__(self, name: str, running: deque[asyncio.Event]) -> None:
        self.name, self._running = name, running
        self.task = ""

    async def run(self, task: Task, report: Callable[[Report], None]) -> None:
        end, self.task = asyncio.Event(), task.id
        self._running.append(end)
        await end.wait()
        self.task = ""

    async def stop(self) -> None:
        raise AssertionError("no slot is stuck")


class Slots:
    def __init__(self, count: int) -> None:
        self.running: deque[asyncio.Event] = deque()
        self.slots: Sequence[Slot] = [Held(f"s{number}", self.running) for number in range(count)]
        self.capabilities = Capabilities("held", count, shares_host=False)

    async def start(self) -> None:
        pass

    async def stop(self) -> None:
        pass


@given(
    slots=st.integers(1, 4),
    wants=st.lists(st.tuples(st.integers(1, 4), st.integers(1, 4)), min_size=1, max_size=5),
    order=st.lists(st.integers(0, 3), max_size=10),
)
def test_all_tasks_are_served_and_gangs_only_whole(slots: int, wants: list[tuple[int, int]], order: list[int]) -> None:
    """For any order of ends: no gang waits for ever, holds a part of its slots, or blocks the others for ever."""
    clients = [Client(f"c{index}", min(size, slots), tasks) for index, (size, tasks) in enumerate(wants)]

    async def run() -> None:
        executor = Slots(slots)
        pool = SlotPool(executor)
        for client in clients:
            pool.join(client)
        choices = deque(order)
        for _ in range(200):
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            for client in clients:
                assert client.size == 1 or len(client.running) <= client.size
            if not executor.running:
                break
            executor.running.rotate(-(choices.popleft() if choices else 0))
            executor.running.popleft().set()
            await asyncio.sleep(0)
        for client in clients:
            assert client.left == 0
            await pool.leave(client)

    asyncio.run(run())
    for client in clients:
        if client.size > 1:
            assert client.seen == list(range(1, client.size + 1)) * (len(client.seen) // client.size)


async def test_stream_of_small_tasks_does_not_keep_a_gang_waiting() -> None:
    executor = Slots(2)
    pool = SlotPool(executor)
    stream, gang = Client("stream", 1, 1000), Client("gang", 2, 1)
    pool.join(stream)
    pool.join(gang)
    for _ in range(10):
        await asyncio.sleep(0)
        if executor.running:
            executor.running.popleft().set()
    assert gang.seen == [1, 2]
    stream.left = 0
    for client in (stream, gang):
        await pool.leave(client)


async def test_slots_kept_for_a_gang_that_leaves_are_free_again() -> None:
    executor = Slots(2)
    pool = SlotPool(executor)
    first, gang, last = Client("first", 1, 1), Client("gang", 2, 1), Client("last", 1, 1)
    for client in (first, gang, last):
        pool.join(client)
    assert (len(first.running), len(last.running)) == (1, 0)
    await pool.leave(gang)
    assert len(last.running) == 1
    for client in (first, last):
        await pool.leave(client)


def test_gang_does_not_start_before_it_is_due() -> None:
    core = GangDispatch(TRIO)
    core.stop()
    assert core.wanted(0) == 0
    assert core.over
