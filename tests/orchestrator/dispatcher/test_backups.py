"""Stragglers: their detection, the effects of a second attempt, and that each result counts once."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from orchestrator.broken_runs import Broken, values
from orchestrator.record_histories import mapped, spec

from treadle.dsl.builder.decorator import task
from treadle.executors.program import Failure, Outcome
from treadle.orchestrator.dispatcher.decisions.backup_tasks import (
    LEAST_PARTITIONS,
    LEAST_SECONDS,
    TIMES_MEDIAN,
    Backups,
)
from treadle.orchestrator.dispatcher.decisions.dispatch import Dispatch
from treadle.orchestrator.dispatcher.decisions.task_sizing import TaskSizes
from treadle.orchestrator.dispatcher.ledger.ledger import Fenced, Ledger
from treadle.orchestrator.plan.plan import Policy
from treadle.primitives import sealing
from treadle.primitives.errors import FailureClass as Class

PARTITIONS = 20


def outcome(partition: int, attempt: int = 1) -> Outcome:
    return Outcome(partition, attempt, "objects", 1)


def late(policy: Policy = Policy(), partitions: int = PARTITIONS, missing: int = 0) -> tuple[Dispatch, float]:
    """(a dispatch whose partition 0 runs in slot `slow` since 0 while all others took a second; the time when it is
    late).

    `missing`: the number of the others that still run, each in the slot `s` and its number.
    """
    core = Dispatch(policy, range(partitions), TaskSizes(partitions))
    for index in range(partitions):
        assignment = core.next_task("slow" if index == 0 else f"s{index}", 0.0)
        assert assignment is not None
        assert len(assignment.attempts) == 1
    for index in range(1 + missing, partitions):
        assert core.done(f"s{index}", outcome(index), 1.0)
        core.ended(f"s{index}")
    return core, TIMES_MEDIAN


def test_a_straggler_runs_a_second_time_and_no_third() -> None:
    core, due = late()
    assert core.wakes_at() == due
    assert core.backup("free", due - 0.01) is None
    second = core.backup("free", due)
    assert second is not None
    assert [(one.partition, one.number) for one in second.attempts] == [(0, 2)]
    assert core.backup("other", due + 1000) is None
    assert core.wakes_at() is None


@pytest.mark.parametrize(("first", "second"), [("slow", "free"), ("free", "slow")])
def test_first_delivery_counts_and_the_rival_changes_nothing(first: str, second: str) -> None:
    core, due = late()
    core.backup("free", due)
    assert core.done(first, outcome(0), due + 1)
    assert core.rivals(0) == [second]
    assert not core.done(second, outcome(0, 2), due + 2)
    assert core.ended(second) == core.ended(first) == []
    assert core.over
    assert core.problem() is None


@pytest.mark.parametrize("partition", [0, -1])
def test_the_failure_of_a_rival_after_delivery_is_nobodys_business(partition: int) -> None:
    core, due = late()
    core.backup("free", due)
    assert core.done("free", outcome(0, 2), due + 1)
    assert core.failed_attempt("slow", Failure(partition, 1, Class.WORKER_LOST, "killed"), due + 1) is None


@pytest.mark.parametrize("kind", [Class.USER_ERROR, Class.WORKER_LOST, Class.OUT_OF_MEMORY, Class.INTERNAL])
def test_one_of_two_failing_spends_nothing_and_the_other_decides(kind: Class) -> None:
    core, due = late(Policy(maximum_attempts=1))
    core.backup("free", due)
    verdict = core.failed_attempt("free", Failure(0, 2, kind, "a test"), due + 1)
    assert verdict is not None
    assert (verdict.final, verdict.spent) == (False, False)
    core.ended("free")
    assert core.next_task("free", due + 100) is None
    assert core.done("slow", outcome(0), due + 101)


def test_when_both_fail_the_partition_has_failed_once() -> None:
    core, due = late(Policy(maximum_attempts=2))
    core.backup("free", due)
    for slot, attempt in (("slow", 1), ("free", 2)):
        verdict = core.failed_attempt(slot, Failure(0, attempt, Class.USER_ERROR, "a test"), due + 1)
        core.ended(slot)
    assert verdict is not None
    assert (verdict.final, verdict.spent) == (False, True)
    again = core.next_task("free", due + 100)
    assert again is not None
    assert (again.attempts[0].number, again.attempts[0].final) == (3, True)


def test_what_waits_behind_a_straggler_is_free_again_once_it_is_killed() -> None:
    core = Dispatch(Policy(), range(40), TaskSizes(1))
    first = core.next_task("slow", 0.0)
    assert first is not None
    waiting = [one.partition for one in first.attempts]
    assert len(waiting) > 1
    finished: set[int] = set()
    while assignment := core.next_task("fast", 1.0):
        for one in assignment.attempts:
            assert core.done("fast", outcome(one.partition), 1.0)
            finished.add(one.partition)
        core.ended("fast")
    assert core.backup("fast", 10.0) is not None
    assert core.done("fast", outcome(waiting[0], 2), 11.0)
    core.ended("fast")
    assert core.ended("slow") == waiting[1:]


@pytest.mark.parametrize(
    "policy",
    [Policy(idempotent=False), Policy(backups=False), Policy(max_concurrency=PARTITIONS)],
    ids=["not idempotent", "backups: false", "maxConcurrency"],
)
def test_no_backup_where_it_must_not_be(policy: Policy) -> None:
    core, due = late(policy)
    if policy.max_concurrency:
        core.limit = 1
    assert core.backup("free", due + 1000) is None


def test_no_backup_of_few_partitions_or_before_half_are_done_or_within_a_moment() -> None:
    few, due = late(partitions=LEAST_PARTITIONS - 1)
    assert few.backup("free", due + 1000) is None
    enough, due = late(partitions=LEAST_PARTITIONS)
    assert enough.backup("free", due) is not None
    clocks = Backups()
    for index in range(PARTITIONS):
        clocks.begins(f"s{index}", index, 0.0)
    for index in range(PARTITIONS // 2 - 1):
        clocks.finishes(f"s{index}", 0.001)
    assert clocks.straggler(PARTITIONS, 1000.0) is None
    clocks.finishes(f"s{PARTITIONS // 2}", 0.001)
    assert clocks.wakes_at(PARTITIONS) == LEAST_SECONDS


def test_patience_is_a_multiple_of_the_median_time_of_finished_tasks() -> None:
    clocks = Backups()
    clocks.begins("slow", 99, 200.0)
    for slot, seconds in enumerate((9.0, 1.0, 3.0, 2.0, 8.0)):
        clocks.begins(f"s{slot}", slot, 100.0 + slot)
        clocks.finishes(f"s{slot}", 100.0 + slot + seconds)
    assert clocks.wakes_at(LEAST_PARTITIONS) == 200.0 + TIMES_MEDIAN * 3.0


def test_no_backup_while_anything_waits() -> None:
    core = Dispatch(Policy(), range(PARTITIONS + 1), TaskSizes(100))
    for index in range(PARTITIONS):
        assert core.next_task(f"s{index}", 0.0) is not None
    for index in range(1, PARTITIONS):
        core.done(f"s{index}", outcome(index), 1.0)
    assert core.backup("free", 1000.0) is None
    assert core.next_task("free", 1000.0) is not None
    assert core.backup("other", 1000.0) is not None


# -- whole runs -----------------------------------------------------------------------------------------------------


@task()
def stalls_once(record: int, *, folder: str) -> int:
    """Record 7 sleeps for ever the first time."""
    if record == 7:
        try:
            (Path(folder) / "stalled").touch(exist_ok=False)
        except FileExistsError:
            (Path(folder) / "again").touch()
        else:
            time.sleep(600)
    return record


def test_a_stalled_partition_does_not_hold_up_its_segment(
    breaking: Callable[[Mapping[str, Any]], Broken], tmp_path: Path
) -> None:
    stage = {
        "type": "map",
        "input": {"range": PARTITIONS, "partitions": PARTITIONS},
        "batch": {"maxItems": 1},
        "uses": "orchestrator.dispatcher.test_backups:stalls_once",
        "with": {"folder": str(tmp_path)},
    }
    run = breaking({"apiVersion": "treadle/v1", "name": "stalls", "stages": {"work": stage}})
    found, counts = run.go()
    assert values(found, "work") == [[record] for record in range(PARTITIONS)]
    assert (tmp_path / "again").exists()
    assert set(counts.values()) == {1}


def test_blocks_of_the_losing_attempt_are_removed(
    breaking: Callable[[Mapping[str, Any]], Broken], tmp_path: Path
) -> None:
    """The attempt was killed after its put and before its report, so its block was never reported."""
    stage = mapped({"range": PARTITIONS}, batch={"maxItems": 1})
    stage |= {"uses": "orchestrator.dispatcher.test_backups:stalls_once", "with": {"folder": str(tmp_path)}}
    run = breaking(spec(work=stage))
    blocks = f"runs/{run.run}/blocks/work"

    def see(segment: str, outcome: Outcome) -> None:
        if outcome.partition == 7:
            run.store.put(f"{blocks}/7.1.unheard", b"")
            run.store.put(f"{blocks}/70.1.other", b"")

    found, _ = run.go(see)
    assert values(found, "work") == [[record] for record in range(PARTITIONS)]
    left = [info.name.removeprefix(f"{blocks}/") for info in run.store.list(blocks)]
    assert [name.rpartition(".")[0] for name in left if name.startswith("7")] == ["7.2", "70.1"]
    assert len(left) == PARTITIONS + 1


def test_replaced_dispatcher_removes_no_block_of_its_successor(
    breaking: Callable[[Mapping[str, Any]], Broken], tmp_path: Path
) -> None:
    """A stalled driver learns only from its ledger that its commits do not count."""
    stage = mapped({"range": PARTITIONS}, batch={"maxItems": 1})
    stage |= {"uses": "orchestrator.dispatcher.test_backups:stalls_once", "with": {"folder": str(tmp_path)}}
    run = breaking(spec(work=stage))
    theirs = f"runs/{run.run}/blocks/work/7.9.theirs"

    def see(segment: str, outcome: Outcome) -> None:
        if outcome.partition == 7:
            Ledger(run.store, f"runs/{run.run}/segments/work", sealing.run_key(run.harness.key, run.run))
            run.store.put(theirs, b"")

    with pytest.raises(Fenced):
        run.go(see)
    assert run.store.head(theirs) is not None
