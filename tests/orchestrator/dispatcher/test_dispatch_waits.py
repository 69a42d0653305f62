"""Waits of a segment (back-off, limit, preferred slots), late reports, the segment's end, and shared tasks."""

from __future__ import annotations

import pytest
from orchestrator.dispatcher.test_backups import late
from orchestrator.dispatcher.test_dispatch import GI, fail_once, failure, one, outcome, sizes, take

from treadle.executors.program import StageCount
from treadle.orchestrator.dispatcher.decisions.attempt_outcomes import MAXIMUM_CRASHES, MAXIMUM_LOSSES, Past
from treadle.orchestrator.dispatcher.decisions.backup_tasks import TIMES_MEDIAN
from treadle.orchestrator.dispatcher.decisions.dispatch import Dispatch, PlannedAttempt
from treadle.orchestrator.dispatcher.decisions.task_sizing import TASK_PARTITIONS, TaskSizes
from treadle.orchestrator.plan.plan import Policy, Tolerance
from treadle.primitives.errors import FailureClass as Class

# -- wake-up times -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pause", [TIMES_MEDIAN / 2, TIMES_MEDIAN * 2])
def test_core_wakes_for_the_earlier_of_a_retry_and_a_straggler(pause: float) -> None:
    core, due = late(Policy(initial_interval=pause), missing=1)
    core.failed_attempt("s1", failure(1), 1.0)
    core.ended("s1")
    assert core.wakes_at() == min(1.0 + pause, due)


def test_due_retry_causes_no_wake_up_while_the_limit_is_reached() -> None:
    core = Dispatch(Policy(max_concurrency=1, initial_interval=1), [0, 1], TaskSizes(4))
    fail_once(core, Class.USER_ERROR, 0.0)
    assert core.wakes_at() == 1.0
    assert one(core) == 1
    assert core.wakes_at() is None
    assert core.next_task("free", 9.0) is None
    core.ended("s")
    assert core.wakes_at() == 1.0


def test_each_of_several_retries_comes_when_it_is_due() -> None:
    core = Dispatch(Policy(initial_interval=1), range(3), TaskSizes(3))
    for slot in "abc":
        take(core, slot)
    for partition, slot, now in ((0, "a", 0.0), (1, "b", 5.0), (2, "c", 2.0)):
        core.failed_attempt(slot, failure(partition), now)
        core.ended(slot)
    assert core.wakes_at() == 1.0
    assert one(core, "a", now=1.0) == 0
    assert core.next_task("b", 1.0) is None
    assert core.wakes_at() == 3.0
    assert one(core, "b", now=9.0) == 2


def test_straggler_causes_no_wake_up_when_backups_are_off() -> None:
    core, due = late()
    assert core.wakes_at() == due
    core.limit = 1
    assert core.wakes_at() is None
    assert core.backup("free", due) is None
    for policy in (Policy(backups=False), Policy(idempotent=False)):
        assert late(policy)[0].wakes_at() is None


def test_stopped_segment_starts_no_task_and_causes_no_wake_up() -> None:
    core, due = late(Policy(initial_interval=1), missing=1)
    core.failed_attempt("s1", failure(1), 1.0)
    core.stop()
    core.ended("s1")
    assert core.wakes_at() is None
    assert core.next_task("free", due) is None
    assert core.backup("free", due) is None
    assert not core.over
    assert core.done("slow", outcome(0), due)
    assert core.stopped, "a commit changes nothing about it"
    core.ended("slow")
    assert core.over


def test_attempt_whose_slot_ended_stops_being_a_straggler() -> None:
    core, due = late()
    assert core.ended("slow") == [0]
    assert one(core, "new", now=due - 0.1) == 0
    assert core.wakes_at() == due - 0.1 + TIMES_MEDIAN
    assert core.backup("free", due) is None


def test_unreachable_failure_is_retried_with_growing_delays_and_keeps_its_class() -> None:
    core = Dispatch(Policy(initial_interval=1, maximum_interval=100), [0], TaskSizes(1))
    waits, now = [], 0.0
    for _ in range(MAXIMUM_LOSSES - 1):
        verdict = fail_once(core, Class.UNREACHABLE, now)
        assert (verdict.final, verdict.spent) == (False, False)
        due = core.wakes_at()
        assert due is not None
        waits.append(due - now)
        now = due
    assert waits == [1, 2, 4, 8, 16, 32, 64, 100, 100]
    verdict = fail_once(core, Class.UNREACHABLE, now)
    assert (verdict.final, verdict.failure.failure) == (True, Class.UNREACHABLE)


def test_a_lost_worker_is_replaced_at_once_and_lets_later_pauses_grow() -> None:
    core = Dispatch(Policy(maximum_attempts=9, initial_interval=1), [0], TaskSizes(1))
    fail_once(core, Class.WORKER_LOST, 5.0)
    assert core.wakes_at() == 5.0
    fail_once(core, Class.USER_ERROR, 5.0)
    assert core.wakes_at() == 7.0


@pytest.mark.parametrize("most", [0, 2**30])
def test_unset_memory_does_not_grow(most: int) -> None:
    core = Dispatch(Policy(maximum_attempts=9, memory_max=most), [0], TaskSizes(1))
    verdict = fail_once(core, Class.OUT_OF_MEMORY, 0.0, message="too much")
    assert (verdict.failure.message, verdict.final) == ("too much", False)
    assert take(core, now=99.0).memory == 0


def test_memory_does_not_grow_for_other_failures() -> None:
    core = Dispatch(Policy(maximum_attempts=9, memory_start=2**30, memory_max=2**31), [0], TaskSizes(1))
    assert fail_once(core, Class.USER_ERROR, 0.0, message="no").failure.message == "no"
    assert take(core, now=99.0).memory == 2**30


def test_failed_attempt_is_not_a_straggler_while_its_task_goes_on() -> None:
    core, due = late(Policy(initial_interval=1000, maximum_interval=1000), missing=1)
    core.failed_attempt("s1", failure(1), 1.0)
    first = core.backup("free", due)
    assert first is not None
    assert first.attempts[0].partition == 0
    assert core.backup("other", due) is None


def test_one_of_two_that_ends_unheard_leaves_it_to_the_other() -> None:
    core, due = late()
    assert core.backup("free", due) is not None
    assert core.ended("free") == []
    assert core.next_task("free", due) is None
    assert core.ended("slow") == [0]
    assert one(core, now=due) == 0


def test_attempts_spent_under_earlier_drivers_count() -> None:
    core = Dispatch(Policy(maximum_attempts=3), [0, 1], TaskSizes(1), Past(starts={0: 5}, spent={0: 2}))
    assert take(core).attempts == (PlannedAttempt(0, 6, final=True),)
    verdict = core.failed_attempt("s", failure(0), 0.0)
    core.ended("s")
    assert verdict is not None
    assert verdict.final
    assert take(core).attempts == (PlannedAttempt(1, 1, final=False),)
    done = Dispatch(Policy(maximum_attempts=1), [0], TaskSizes(1), Past(spent={0: 1}))
    assert not fail_once(done, Class.WORKER_LOST, 0.0).final, "which spends none"


# -- assignment to slots -------------------------------------------------------------------------------------------


def test_preferred_partitions_are_all_assigned_once_to_the_available_slots() -> None:
    preferred = dict.fromkeys(range(12), "gone") | dict.fromkeys(range(12, 18), "a")
    core = Dispatch(Policy(), range(20), TaskSizes(3), preferred=preferred)
    seen: list[int] = []
    for turn in range(100):
        if core.over:
            break
        slot = "abc"[turn % 3]
        for attempt in take(core, slot).attempts:
            seen.append(attempt.partition)
            assert core.done(slot, outcome(attempt.partition, seconds=1.0), 0.0)
        core.ended(slot)
    assert core.over
    assert sorted(seen) == list(range(20))


def test_a_segment_whose_slots_are_not_there_yet_is_cut_as_for_one() -> None:
    assert len(take(Dispatch(Policy(), range(64), TaskSizes(0))).attempts) == 16


def test_a_task_holds_a_bounded_number_of_partitions_however_short_they_are() -> None:
    assert (
        max(sizes(Dispatch(Policy(), range(3 * TASK_PARTITIONS), TaskSizes(1, pace=1e-9)), 1, 1e-9)) == TASK_PARTITIONS
    )


# -- the end of a segment ------------------------------------------------------------------------------------------


def test_quorum_ends_while_others_run_and_despite_failures() -> None:
    core = Dispatch(Policy(maximum_attempts=1), range(3), TaskSizes(3), quorum=1)
    for slot in "abc":
        take(core, slot)
    core.failed_attempt("a", failure(0), 0.0)
    core.ended("a")
    assert not core.over
    assert core.done("b", outcome(1), 0.0)
    core.ended("b")
    assert (core.over, core.idle, core.problem()) == (True, False, None)


def test_unknown_outcome_of_a_dead_driver_is_not_rerun_and_fails_the_segment() -> None:
    core = Dispatch(Policy(idempotent=False), [1], TaskSizes(1))
    core.unknown(0, 3)
    assert one(core) == 1
    assert core.done("s", outcome(1), 0.0)
    core.ended("s")
    assert core.over
    problem = core.problem()
    assert problem is not None
    assert problem[0] is Class.UNKNOWN_OUTCOME
    assert (core.failed[0].attempt, core.failed[0].retryable) == (3, False)
    assert "treadle resume --assume done|retry" in core.failed[0].message


def test_a_partition_that_drivers_died_with_says_what_to_do() -> None:
    known = Dispatch(Policy(), [0], TaskSizes(1), Past(starts={0: 44}, crashes={0: MAXIMUM_CRASHES})).failed[0]
    assert (known.attempt, known.retryable) == (44, False)
    assert "treadle resume" in known.message


@pytest.mark.parametrize("partition", [0, 7, -1])
def test_report_of_a_partition_that_the_slot_does_not_hold_changes_nothing(partition: int) -> None:
    core = Dispatch(Policy(maximum_attempts=1), [0, 1], TaskSizes(2))
    assert one(core, "a") == 0
    core.ended("a")
    assert one(core, "b") == 0
    for slot in ("a", "b") if partition == 7 else ("a",):
        assert not core.done(slot, outcome(partition), 0.0)
        assert core.failed_attempt(slot, failure(partition), 0.0) is None
    assert core.running == 1
    assert not core.failed
    assert core.done("b", outcome(0, 2), 0.0)


def test_a_failure_without_a_partition_is_of_the_one_under_way() -> None:
    core = Dispatch(Policy(), range(64), TaskSizes(1))
    first, second, third, *_ = (attempt.partition for attempt in take(core).attempts)
    assert core.done("s", outcome(first), 0.0)
    verdict = core.failed_attempt("s", failure(-1), 0.0)
    assert verdict is not None
    assert verdict.failure.partition == second
    named = core.failed_attempt("s", failure(third + 1), 0.0)
    assert named is not None
    assert named.failure.partition == third + 1


# -- memory --------------------------------------------------------------------------------------------------------


def test_a_partition_that_ran_out_of_memory_gets_more_of_it_and_no_company() -> None:
    policy = Policy(memory_start=GI, memory_max=4 * GI, maximum_attempts=9)
    core = Dispatch(policy, range(64), TaskSizes(1, pace=1e-4))
    first, *rest = (attempt.partition for attempt in take(core).attempts)
    core.failed_attempt("s", failure(first, Class.OUT_OF_MEMORY), 0.0)
    assert core.ended("s") == rest
    seen: list[int] = []
    while not core.over:
        task = take(core, now=99.0)
        partitions = [attempt.partition for attempt in task.attempts]
        assert (task.memory, partitions) == (2 * GI, [first]) if first in partitions else task.memory == GI
        seen += partitions
        for partition in partitions:
            assert core.done("s", outcome(partition, seconds=1e-4), 99.0)
        core.ended("s")
    assert sorted(seen) == list(range(64))


def test_the_last_attempt_that_runs_out_of_memory_promises_no_other() -> None:
    core = Dispatch(Policy(memory_start=GI, memory_max=2 * GI, maximum_attempts=1), [0], TaskSizes(1))
    verdict = fail_once(core, Class.OUT_OF_MEMORY, 0.0, message="too much")
    assert (verdict.final, verdict.spent, verdict.failure.message) == (True, True, "too much")


# -- tasks ---------------------------------------------------------------------------------------------------------


def test_what_must_not_be_repeated_has_a_task_of_its_own() -> None:
    assert len(take(Dispatch(Policy(idempotent=False), range(64), TaskSizes(1))).attempts) == 1


def test_a_task_is_as_large_as_what_partitions_took_on_average_lets_it_be() -> None:
    known = TaskSizes(1)
    assert known.most(1000) == 16
    for seconds in (0.01, 0.03):
        known.took(seconds)
    assert known.most(1000) == 10
    known.took(9.0)
    assert known.most(1000) == 1


def test_what_waits_for_its_own_slot_waits_like_any_other() -> None:
    assert not Dispatch(Policy(), range(4), TaskSizes(1), preferred={0: "a", 1: "a"}).over


def test_a_payload_may_be_filled_to_the_last_byte() -> None:
    core = Dispatch(Policy(), range(3), TaskSizes(1, pace=1e-6, room=100, weights={0: 60, 1: 40, 2: 1}))
    assert [attempt.partition for attempt in take(core).attempts] == [0, 1]


def test_a_timeout_alone_keeps_no_partitions_apart() -> None:
    assert len(take(Dispatch(Policy(timeout=300), range(1000), TaskSizes(2, pace=0.001, timeout=300))).attempts) == 200


def test_returned_partitions_come_first_and_in_their_order() -> None:
    core = Dispatch(Policy(), range(64), TaskSizes(1))
    first = [attempt.partition for attempt in take(core).attempts]
    assert core.ended("s") == first
    assert [attempt.partition for attempt in take(core).attempts] == first


def test_repeated_report_of_a_finished_partition_does_not_affect_the_current_one() -> None:
    core = Dispatch(Policy(), range(64), TaskSizes(1))
    first, second, *_ = (attempt.partition for attempt in take(core).attempts)
    assert core.done("s", outcome(first), 0.0)
    assert core.failed_attempt("s", failure(first), 0.0) is None
    assert core.done("s", outcome(second), 0.0)


# -- failures ------------------------------------------------------------------------------------------------------


def test_an_internal_error_spends_its_attempt_and_is_final() -> None:
    verdict = fail_once(Dispatch(Policy(), [0], TaskSizes(1)), Class.INTERNAL, 0.0)
    assert (verdict.final, verdict.spent) == (True, True)


@pytest.mark.parametrize(("partitions", "said"), [([5], "1 partition failed"), ([5, 2], "2 partitions failed")])
def test_a_segment_that_failed_says_how_many_did_and_of_the_first_why(partitions: list[int], said: str) -> None:
    core = Dispatch(Policy(maximum_attempts=1), partitions, TaskSizes(2))
    for partition in partitions:
        assert fail_once(core, Class.TIMED_OUT, 0.0, message=f"of {partition}").final
    assert core.problem() == (Class.TIMED_OUT, f"{said}; the first: of {min(partitions)}")


@pytest.mark.parametrize(
    ("tolerance", "failed", "at_once", "said"),
    [
        (Tolerance(), 20, False, ""),
        (Tolerance(count=0), 0, False, ""),
        (Tolerance(count=0), 1, True, "m: 1 failed records are more than toleratedFailures: 0"),
        (Tolerance(count=2), 2, False, ""),
        (Tolerance(percent=0), 0, False, ""),
        (Tolerance(percent=0), 1, False, "m: 1 of 20 records failed, more than toleratedFailures: 0%"),
        (Tolerance(percent=12.5), 2, False, ""),
        (Tolerance(percent=12.5), 3, False, "m: 3 of 20 records failed, more than toleratedFailures: 12.5%"),
    ],
)
def test_as_many_failed_records_as_are_tolerated_are_well(
    tolerance: Tolerance, failed: int, at_once: bool, said: str
) -> None:
    core = Dispatch(Policy(), range(2), TaskSizes(2), tolerated={"m": tolerance})
    core.committed(outcome(0, counts={"m": StageCount(12, failed), "other": StageCount(30, 30)}))
    assert core.stopped == at_once
    core.committed(outcome(1, counts={"m": StageCount(8, 0)}))
    assert core.problem() == ((Class.USER_ERROR, said) if said else None)
