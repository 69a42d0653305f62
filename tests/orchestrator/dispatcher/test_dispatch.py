"""The partition that runs next, and the consequence of an ended attempt."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from treadle.executors.program import Failure, Outcome
from treadle.orchestrator.dispatcher.decisions.attempt_outcomes import MAXIMUM_CRASHES, MAXIMUM_LOSSES, Past
from treadle.orchestrator.dispatcher.decisions.dispatch import SAME_ERRORS, Assignment, Dispatch
from treadle.orchestrator.dispatcher.decisions.task_sizing import TaskSizes
from treadle.orchestrator.plan.plan import Policy
from treadle.primitives.errors import FailureClass as Class

GI = 2**30


def outcome(partition: int, attempt: int = 1, **known: Any) -> Outcome:
    return Outcome(partition, attempt, "objects", 1, **known)


def failure(partition: int, kind: Class = Class.USER_ERROR, attempt: int = 1, **known: Any) -> Failure:
    return Failure(partition, attempt, kind, "a test", **known)


def take(core: Dispatch, slot: str = "s", now: float = 0.0) -> Assignment:
    found = core.next_task(slot, now)
    assert found is not None
    return found


def one(core: Dispatch, slot: str = "s", now: float = 0.0) -> int:
    [attempt] = take(core, slot, now).attempts
    return attempt.partition


def fail_once(core: Dispatch, kind: Class, now: float, **known: Any) -> Any:
    partition = one(core, now=now)
    verdict = core.failed_attempt("s", failure(partition, kind, **known), now)
    core.ended("s")
    return verdict


def test_everything_is_handed_out_once_and_then_it_is_over() -> None:
    core = Dispatch(Policy(), range(100), TaskSizes(2))
    seen: list[int] = []
    while not core.over:
        task = take(core)
        for attempt in task.attempts:
            seen.append(attempt.partition)
            assert core.done("s", outcome(attempt.partition), 0.0)
        core.ended("s")
    assert sorted(seen) == list(range(100))
    assert core.problem() is None


def test_a_user_error_is_tried_exactly_maximum_attempts_times() -> None:
    core = Dispatch(Policy(maximum_attempts=3), [0], TaskSizes(1))
    verdicts = [fail_once(core, Class.USER_ERROR, now) for now in (0.0, 10.0, 20.0)]
    assert [(v.final, v.spent) for v in verdicts] == [(False, True), (False, True), (True, True)]
    assert core.over
    problem = core.problem()
    assert problem is not None
    assert problem[0] is Class.USER_ERROR


def test_the_last_attempt_knows_that_it_is_the_last() -> None:
    core = Dispatch(Policy(maximum_attempts=2), [0], TaskSizes(1))
    assert not take(core).attempts[0].final
    core.failed_attempt("s", failure(0), 0.0)
    core.ended("s")
    assert take(core, now=9.0).attempts[0].final


def test_an_error_that_is_not_retryable_fails_at_once() -> None:
    core = Dispatch(Policy(maximum_attempts=9), [0], TaskSizes(1))
    assert fail_once(core, Class.USER_ERROR, 0.0, retryable=False).final


@pytest.mark.parametrize("kind", [Class.USER_ERROR, Class.OUT_OF_MEMORY, Class.THROTTLED, Class.UNREACHABLE])
def test_back_off_grows_and_is_bounded(kind: Class) -> None:
    policy = Policy(maximum_attempts=9, initial_interval=1, backoff_coefficient=2, maximum_interval=3)
    core = Dispatch(policy, [0], TaskSizes(1))
    waits, now = [], 0.0
    for _ in range(4):
        fail_once(core, kind, now)
        due = core.wakes_at()
        assert due is not None
        assert core.next_task("s", due - 0.01) is None
        waits.append(due - now)
        now = due
    assert waits == [1, 2, 3, 3]


def test_the_steepest_back_off_comes_to_the_longest_pause() -> None:
    policy = Policy(maximum_attempts=9, backoff_coefficient=1e300, maximum_interval=3)
    core = Dispatch(policy, [0], TaskSizes(1))
    for now in (0.0, 10.0, 20.0):
        fail_once(core, Class.USER_ERROR, now)
    assert core.wakes_at() == 23.0


@pytest.mark.parametrize("kind", [Class.THROTTLED, Class.WORKER_LOST])
def test_throttling_and_lost_workers_spend_no_attempt(kind: Class) -> None:
    core = Dispatch(Policy(maximum_attempts=1), [0], TaskSizes(1))
    for now in range(MAXIMUM_LOSSES - 1):
        assert not fail_once(core, kind, now * 1000.0).spent
    assert not core.over


def test_a_partition_that_loses_its_worker_ten_times_is_poison() -> None:
    core = Dispatch(Policy(), [0], TaskSizes(1))
    verdicts = [fail_once(core, Class.WORKER_LOST, now * 100.0) for now in range(MAXIMUM_LOSSES)]
    assert [v.final for v in verdicts] == [False] * (MAXIMUM_LOSSES - 1) + [True]
    assert verdicts[-1].failure.failure is Class.POISON
    assert verdicts[-1].failure.how == f"{MAXIMUM_LOSSES} losses; the last: a test"


def test_losses_under_earlier_drivers_count_towards_poison() -> None:
    core = Dispatch(Policy(), [0], TaskSizes(1), Past(losses={0: MAXIMUM_LOSSES - 1}))
    assert fail_once(core, Class.WORKER_LOST, 0.0).failure.failure is Class.POISON


def test_a_partition_that_drivers_keep_dying_of_is_not_handed_out_again() -> None:
    core = Dispatch(Policy(), [0, 1], TaskSizes(1), Past(crashes={0: MAXIMUM_CRASHES, 1: MAXIMUM_CRASHES - 1}))
    assert core.failed[0].failure is Class.POISON
    assert one(core) == 1


def test_memory_grows_for_the_partition_that_ran_out_of_it_only() -> None:
    core = Dispatch(Policy(memory_start=GI, memory_max=3 * GI, maximum_attempts=9), [0, 1], TaskSizes(1))
    sizes, messages = [], []
    for now in range(3):
        task = take(core, now=now * 100.0)
        while task.attempts[0].partition != 0:
            core.done("s", outcome(1), 0.0)
            core.ended("s")
            task = take(core, now=now * 100.0)
        sizes.append(task.memory)
        verdict = core.failed_attempt(
            "s", failure(0, Class.OUT_OF_MEMORY, message="too much" if now else ""), now * 100.0
        )
        assert verdict is not None
        messages.append(verdict.failure.message)
        core.ended("s")
    assert sizes == [GI, 2 * GI, 3 * GI]
    known = ["it had 1GiB of memory; the next attempt has 2GiB", "it had 2GiB of memory; the next attempt has 3GiB"]
    assert messages == [known[0], f"too much ({known[1]})", "too much"]


def test_interrupted_non_idempotent_attempt_has_an_unknown_outcome_and_never_reruns() -> None:
    core = Dispatch(Policy(idempotent=False), [0], TaskSizes(1))
    verdict = fail_once(core, Class.WORKER_LOST, 0.0)
    assert (verdict.final, verdict.spent, verdict.failure.failure) == (True, True, Class.UNKNOWN_OUTCOME)
    assert core.next_task("s", 1e9) is None


@pytest.mark.parametrize(("kind", "final"), [(Class.USER_ERROR, True), (Class.THROTTLED, False)])
def test_non_idempotent_stage_has_one_attempt_for_every_retry_setting(kind: Class, final: bool) -> None:
    core = Dispatch(Policy(idempotent=False, maximum_attempts=5), [0], TaskSizes(1))
    verdict = fail_once(core, kind, 0.0)
    assert (verdict.final, verdict.failure.failure) == (final, kind)


def test_lost_blocks_stop_nothing_else_and_are_remembered() -> None:
    core = Dispatch(Policy(), [0], TaskSizes(1))
    verdict = fail_once(core, Class.CORRUPT, 0.0, lost=("a/0.1.x",))
    assert (verdict.final, verdict.spent, core.lost) == (False, False, {"a/0.1.x"})


@pytest.mark.parametrize(
    ("kind", "retryable", "final"),
    [
        (Class.CORRUPT, True, True),
        (Class.UNREACHABLE, False, True),
        (Class.UNREACHABLE, True, False),
        (Class.THROTTLED, False, False),
        (Class.WORKER_LOST, False, False),
    ],
)
def test_failure_that_a_retry_cannot_mend_is_final_at_once(kind: Class, retryable: bool, final: bool) -> None:
    core = Dispatch(Policy(), [0], TaskSizes(1))
    verdict = fail_once(core, kind, 0.0, retryable=retryable)
    assert (verdict.final, verdict.spent) == (final, False)


def test_a_failed_partition_does_not_stop_the_others() -> None:
    core = Dispatch(Policy(maximum_attempts=1), range(3), TaskSizes(1))
    fail_once(core, Class.USER_ERROR, 0.0)
    assert not core.over


def test_ten_equal_final_failures_stop_the_segment() -> None:
    core = Dispatch(Policy(maximum_attempts=1), range(50), TaskSizes(50))
    for _ in range(SAME_ERRORS):
        fail_once(core, Class.USER_ERROR, 0.0, error="ValueError", message="same")
    assert core.over


def test_different_errors_do_not_stop_the_segment() -> None:
    core = Dispatch(Policy(maximum_attempts=1), range(50), TaskSizes(50))
    for number in range(SAME_ERRORS):
        fail_once(core, Class.USER_ERROR, 0.0, error="ValueError", message=f"{number % 2}")
    assert not core.over


def test_no_more_tasks_than_the_limit_run_at_once() -> None:
    core = Dispatch(Policy(max_concurrency=2), range(100), TaskSizes(8))
    assert core.next_task("a", 0.0)
    assert core.next_task("b", 0.0)
    assert core.next_task("c", 0.0) is None


def test_a_slot_gets_the_partitions_it_has_decoded() -> None:
    core = Dispatch(Policy(), range(4), TaskSizes(2), preferred={0: "a", 1: "b", 2: "a", 3: "b"})
    assert one(core, "b") == 1
    assert one(core, "a") == 0


def test_a_slot_without_work_of_its_own_helps_the_longest_queue() -> None:
    core = Dispatch(Policy(), range(3), TaskSizes(3), preferred={0: "a", 1: "a", 2: "b"})
    assert one(core, "c") in (0, 1)


def sizes(core: Dispatch, slots: int, seconds: float) -> list[int]:
    """Partitions in each task when the slots ask in turn, and every task ends before the next request."""
    found = []
    while not core.over:
        for slot in map(str, range(slots)):
            task = core.next_task(slot, 0.0)
            if task is not None:
                found.append(len(task.attempts))
                for attempt in task.attempts:
                    assert core.done(slot, outcome(attempt.partition, seconds=seconds), 0.0)
                core.ended(slot)
    return found


def test_partitions_known_to_be_short_share_one_task() -> None:
    assert sizes(Dispatch(Policy(), range(8), TaskSizes(2, pace=0.0001)), 2, 0.0001) == [8]
    assert sizes(Dispatch(Policy(), range(8), TaskSizes(2)), 2, 0.0001) == [1, 7]


def test_tasks_shrink_towards_the_end_where_times_are_known() -> None:
    assert sizes(Dispatch(Policy(), range(8), TaskSizes(2, pace=0.01)), 2, 0.01) == [2, 2, 1, 1, 1, 1]
    assert sizes(Dispatch(Policy(), range(9), TaskSizes(2, pace=0.01)), 2, 0.01) == [3, 2, 1, 1, 1, 1]
    assert sizes(Dispatch(Policy(), range(8), TaskSizes(2)), 2, 0.01) == [1] * 8


def test_long_partitions_are_apart_however_many_there_are() -> None:
    assert sizes(Dispatch(Policy(), range(100), TaskSizes(2, pace=0.3)), 2, 0.3) == [1] * 100


def test_unreported_partition_of_a_task_is_reassigned() -> None:
    core = Dispatch(Policy(), range(64), TaskSizes(1))
    task = take(core)
    partitions = [attempt.partition for attempt in task.attempts]
    assert len(partitions) > 2
    core.done("s", outcome(partitions[0]), 0.0)
    core.failed_attempt("s", failure(partitions[1], Class.WORKER_LOST), 0.0)
    assert core.ended("s") == partitions[2:]


def test_a_quorum_freezes_the_set() -> None:
    core = Dispatch(Policy(), range(4), TaskSizes(4), quorum=2)
    first, second, third = (one(core, slot) for slot in "abc")
    assert core.done("a", outcome(first), 0.0)
    assert core.done("b", outcome(second), 0.0)
    assert not core.done("c", outcome(third), 0.0)
    assert core.next_task("d", 0.0) is None


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 60), st.integers(1, 4), st.integers(1, 4), st.integers(0, 10**6), st.booleans())
def test_any_schedule_ends_with_each_partition_committed_once_or_failed(
    partitions: int, slots: int, attempts: int, seed: int, idempotent: bool
) -> None:
    chance = random.Random(seed)
    core = Dispatch(Policy(maximum_attempts=attempts, idempotent=idempotent), range(partitions), TaskSizes(slots))
    committed: Counter[int] = Counter()
    errors: Counter[int] = Counter()
    under_way: dict[str, list[int]] = {}
    now = 0.0
    for _ in range(200 + 200 * partitions):
        if core.over:
            break
        now += 50.0
        slot = f"s{chance.randrange(slots)}"
        if slot not in under_way:
            task = core.next_task(slot, now) or core.backup(slot, now)
            if task is not None:
                under_way[slot] = [attempt.partition for attempt in task.attempts]
            continue
        todo = under_way[slot]
        fate = chance.random()
        if todo and fate < 0.7:
            partition = todo.pop(0)
            committed[partition] += core.done(slot, outcome(partition), now)
            for rival in core.rivals(partition) if chance.random() < 0.7 else ():
                core.ended(rival)
                del under_way[rival]
        elif todo and fate < 0.8:
            partition = todo.pop(0)
            verdict = core.failed_attempt(slot, failure(partition, message=str(partition)), now)
            errors[partition] += verdict is not None and verdict.spent
        elif todo and fate < 0.9:
            core.failed_attempt(slot, failure(todo[0], Class.WORKER_LOST), now)
            core.ended(slot)
            del under_way[slot]
        elif not todo:
            core.ended(slot)
            del under_way[slot]
    assert core.over
    assert max(committed.values(), default=1) == 1
    assert set(committed) | set(core.failed) == set(range(partitions))
    assert not set(committed) & set(core.failed)
    assert max(errors.values(), default=0) <= (attempts if idempotent else 1)


def test_under_a_quorum_no_partition_waits_behind_a_straggler() -> None:
    core = Dispatch(Policy(), range(100), TaskSizes(1), quorum=50)
    assert len(take(core).attempts) == 1


# -- attempts that cost a call -------------------------------------------------------------------------------------


def test_refusals_of_a_provider_never_make_a_partition_poison() -> None:
    core = Dispatch(Policy(), [0], TaskSizes(1))
    for count in range(3 * MAXIMUM_LOSSES):
        assert not fail_once(core, Class.THROTTLED, 100.0 * count).final
    assert not fail_once(core, Class.WORKER_LOST, 9000.0).final
    assert one(core, now=9999.0) == 0


def test_partitions_share_a_call_only_once_their_time_is_known() -> None:
    core = Dispatch(Policy(), range(1000), TaskSizes(2, time_limit=900))
    assert len(take(core).attempts) == 1
    core.done("s", outcome(0, seconds=0.01), 0.0)
    core.ended("s")
    assert len(take(core).attempts) == 20


def test_a_call_holds_no_more_partitions_than_may_time_out_in_it() -> None:
    core = Dispatch(Policy(timeout=300), range(1000), TaskSizes(2, pace=0.001, time_limit=900, timeout=300))
    assert len(take(core).attempts) == 3


@given(st.lists(st.integers(1, 100), min_size=1, max_size=50), st.integers(100, 300))
def test_a_task_fits_into_its_payload(sizes: list[int], room: int) -> None:
    core = Dispatch(Policy(), range(len(sizes)), TaskSizes(1, pace=1e-6, room=room, weights=dict(enumerate(sizes))))
    seen: list[int] = []
    while not core.over:
        partitions = [attempt.partition for attempt in take(core).attempts]
        assert len(partitions) == 1 or sum(sizes[partition] for partition in partitions) <= room
        seen += partitions
        for partition in partitions:
            core.done("s", outcome(partition), 0.0)
        core.ended("s")
    assert seen == list(range(len(sizes)))
