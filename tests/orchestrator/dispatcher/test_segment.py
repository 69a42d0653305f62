"""An interrupted segment resumes from its state; lost blocks are recomputed, and nothing else."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from orchestrator.broken_runs import failure, values
from orchestrator.conftest import Breaking
from orchestrator.record_histories import M, mapped, spec

from treadle.client.testing import EngineResult
from treadle.client.testing.faults import CrashingStore
from treadle.executors.interface import Executor
from treadle.executors.program import Outcome, Report, Task
from treadle.orchestrator.dispatcher.ledger.ledger import Expected, Ledger
from treadle.orchestrator.dispatcher.ledger.ledger_state import Account, SegmentHistory
from treadle.orchestrator.dispatcher.orders import NodeOrder
from treadle.orchestrator.dispatcher.segments.execute_segment import Desk, prepare, writing
from treadle.orchestrator.dispatcher.segments.failed_segment import Stopped
from treadle.orchestrator.plan.plan import Segment
from treadle.orchestrator.reuse.stage_rerun import take_back
from treadle.orchestrator.scheduler.scheduler import MAXIMUM_REPAIRS
from treadle.primitives.errors import CorruptError, InternalError, MissingError, StoreError, UsageError
from treadle.primitives.stores.store import Store, Stream

EIGHT = {"range": 8, "partitions": 8}
WORDS = spec(
    pairs=mapped(EIGHT, "pair"),
    groups={"type": "shuffle", "input": "pairs", "by": "key", "partitions": 3},
    counts={"type": "reduce", "input": "groups", "per": "key", "combine": f"{M}:add"},
)


def with_flag(flag: Path, function: str = "needs_flag", given: Any = EIGHT, **more: Any) -> dict[str, Any]:
    return spec(only=mapped(given, function, **{"with": {"flag": str(flag)}}, **more))


def test_resume_does_expected_minus_committed(breaking: Breaking, tmp_path: Path) -> None:
    document = spec(
        first=mapped(EIGHT),
        only=mapped("first", "needs_flag_later", needs=["first"], **{"with": {"flag": str(tmp_path / "flag")}}),
    )
    run = breaking(document)
    found, before = run.go()
    assert failure(found) == "user error"
    (tmp_path / "flag").touch()
    found, after = run.go(resumption=2)
    assert values(found, "only") == [[number + 1] for number in range(8)]
    assert {("first", partition) for partition in range(8)} <= set(before)
    wanted = {(stage, partition) for stage in ("first", "only") for partition in range(8)}
    assert set(after) == wanted - set(before)
    assert set((before + after).values()) == {1}


def test_committed_partition_is_not_rerun(breaking: Breaking) -> None:
    run = breaking(WORDS)
    first, before = run.go()
    again, after = run.go()
    assert values(first, "counts") == values(again, "counts")
    assert sum(before.values()) == 11
    assert not after


def test_exactly_the_lost_partition_is_recomputed(breaking: Breaking) -> None:
    run = breaking(WORDS)
    found, done = run.go(run.losing(("groups", 5)))
    assert sorted(pair for part in values(found, "counts") for pair in part) == [(0, 9), (1, 12), (2, 7)]
    assert {one for one, times in done.items() if times > 1 and one[0] == "groups"} == {("groups", 5)}
    assert done["groups", 5] == 2


class DyingAt(CrashingStore):
    """Fails just before one object is written."""

    def __init__(self, inner: Store, name: str) -> None:
        super().__init__(inner, sys.maxsize, after=False)
        self._name = name

    def create(self, name: str, data: Stream) -> bool:
        self.crashed |= name.endswith(self._name)
        return super().create(name, data)


def test_recomputed_partitions_survive_the_death_of_the_driver(breaking: Breaking) -> None:
    run = breaking(WORDS)
    store = DyingAt(run.store, "groups/manifest/2")
    with pytest.raises(StoreError):
        run.go(run.losing(("groups", 5)), store=store)
    found, done = run.go()
    assert sorted(pair for part in values(found, "counts") for pair in part) == [(0, 9), (1, 12), (2, 7)]
    assert ("groups", 5) not in done, "it is on record"


def test_partition_lost_again_and_again_fails_the_run_in_the_end(breaking: Breaking) -> None:
    run = breaking(WORDS)

    def see(segment: str, outcome: Outcome) -> None:
        if segment == "groups" and outcome.partition == 5 and outcome.block is not None:
            run.damage(outcome.block, "delete")

    found, done = run.go(see)
    assert failure(found) in ("unreachable", "data corrupt")
    assert done["groups", 5] < 20


def test_long_chain_of_lost_blocks_is_recomputed_in_one_go(breaking: Breaking, tmp_path: Path) -> None:
    """For example after the loss of their host. The number of repairs of each stage is limited."""
    names = [f"a{number}" for number in range(MAXIMUM_REPAIRS + 2)]
    stages = {"a0": mapped({"range": 2, "partitions": 1})}
    stages |= {name: mapped(before, needs=[before]) for before, name in pairwise(names)}
    last = mapped(names[-1], "needs_flag", needs=[names[-1]], **{"with": {"flag": str(tmp_path / "flag")}})
    run = breaking(spec(**stages, only=last))
    assert failure(run.go()[0]) == "user error"
    (tmp_path / "flag").touch()
    breaking(spec(other=mapped(EIGHT))).go()  # workers cache the blocks of one run only
    run.store.delete_prefix(f"runs/{run.run}/blocks/")
    found, done = run.go(resumption=2)
    assert values(found, "only") == [[0, 1]]
    assert done == dict.fromkeys([(name, 0) for name in (*names, "only")], 1)


def test_block_lost_long_after_its_stage_is_recomputed(
    breaking: Breaking, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The deadline of the stage is over by then."""
    last = mapped("first", "needs_flag", needs=["first"], **{"with": {"flag": str(tmp_path / "flag")}})
    run = breaking(spec(first=mapped(EIGHT, deadline="60s"), only=last))
    assert failure(run.go()[0]) == "user error"
    (tmp_path / "flag").touch()
    breaking(spec(other=mapped(EIGHT))).go()  # workers cache the blocks of one run only
    run.store.delete_prefix(f"runs/{run.run}/blocks/")
    later = SimpleNamespace(time=lambda: time.time() + 3600, monotonic=time.monotonic)
    monkeypatch.setattr("treadle.orchestrator.dispatcher.segments.segment.time", later)
    found, done = run.go()
    assert values(found, "only") == [[number] for number in range(8)]
    assert ("first", 0) in done


# -- attempts that must not run twice ------------------------------------------------------------------------------


@pytest.fixture
def unknown(breaking: Breaking, tmp_path: Path) -> Any:
    document = spec(only=mapped({"range": 2, "partitions": 1}, idempotent=False))
    for write in range(1, 20):
        run = breaking(document)
        store = CrashingStore(run.store, write, after=True)
        try:
            run.go(store=store)
        except StoreError:
            assert store.crashed
        found, done = run.go()
        if not isinstance(found, EngineResult):
            assert failure(found) == "unknown outcome"
            assert not done, "nobody may try again by himself"
            return run
    raise AssertionError("no crash fell between the start of the attempt and its outcome")


def test_attempt_of_unknown_outcome_waits_for_a_person(unknown: Any) -> None:
    found, done = unknown.go(resumption=2)
    assert failure(found) == "unknown outcome"
    assert not done


def test_assume_retry_does_it_again(unknown: Any) -> None:
    found, done = unknown.go(resumption=2, assume="retry")
    assert values(found, "only") == [[0, 1]]
    assert done == {("only", 0): 1}


def test_assume_done_takes_it_as_done_without_a_result(unknown: Any) -> None:
    found, done = unknown.go(resumption=2, assume="done")
    assert isinstance(found, EngineResult)
    assert not done


# -- limits --------------------------------------------------------------------------------------------------------


def test_deadline_ends_the_stage(breaking: Breaking, tmp_path: Path) -> None:
    run = breaking(with_flag(tmp_path / "never", "slowly", deadline="300ms"))
    found, done = run.go()
    assert failure(found) == "timed out"
    assert not done


def test_quorum_lets_stragglers_go(breaking: Breaking, tmp_path: Path) -> None:
    """The last partition waits for a file that never comes, so only a quorum ends the run."""
    given = {"flag": str(tmp_path / "never"), "first": 3}
    slow = mapped({"range": 4, "partitions": 4}, "needs_file_from", **{"with": given})
    document = spec(slow=slow, most={"type": "barrier", "input": "slow", "quorum": "75%"}, end=mapped("most"))
    run = breaking(document)
    found, _ = run.go()
    assert values(found, "end") == [[0], [1], [2]]
    again, after = run.go()
    assert values(again, "end") == [[0], [1], [2]], "the set is frozen"
    assert not after


def test_a_quorum_is_met_by_exactly_its_share(breaking: Breaking, tmp_path: Path) -> None:
    """7 / 100 x 100 in floats is more than seven."""
    given = {"flag": str(tmp_path / "never"), "first": 7}
    slow = mapped({"range": 100, "partitions": 100}, "needs_file_from", **{"with": given})
    run = breaking(spec(slow=slow, most={"type": "barrier", "input": "slow", "quorum": "7%"}, end=mapped("most")))
    found, _ = run.go()
    assert values(found, "end") == [[number] for number in range(7)]


def quorum(function: str, **given: Any) -> dict[str, Any]:
    """Three of four records are enough."""
    return spec(
        slow=mapped({"range": 4, "partitions": 4}, function, **{"with": given}),
        most={"type": "barrier", "input": "slow", "quorum": "75%"},
        end=mapped("most"),
    )


def test_a_quorum_stays_as_it_was_met_when_a_block_of_it_is_lost(breaking: Breaking) -> None:
    """Its readers may have begun. With other partitions in their places, some would be read twice and some never."""
    run = breaking(quorum("late_again"))
    found, _ = run.go(run.losing(("slow", 1)))
    assert values(found, "end") == [[0], [1], [2]]


def test_rerun_by_a_user_gets_a_quorum_of_its_own(breaking: Breaking, tmp_path: Path) -> None:
    flag = tmp_path / "flag"
    run = breaking(quorum("late_by_file", flag=str(flag)))
    run.go()
    flag.touch()
    opened = run.engine(run.executor).site.open(run.run)
    take_back(opened.files, opened.plan, "slow", 2, opened.site.files)
    found, _ = run.go(resumption=2)
    assert values(found, "end") == [[0], [2], [3]], "record 1 is late this time"


def test_drained_segment_goes_on_where_it_stopped(breaking: Breaking) -> None:
    document = spec(only=mapped({"range": 40, "partitions": 40}, "slow_last", **{"with": {"seconds": 0.01}}))
    run = breaking(document)
    desk = Desk()
    seen: list[int] = []

    def drain(_segment: str, outcome: Outcome) -> None:
        seen.append(outcome.partition)
        desk.drain()

    with pytest.raises(Stopped):
        run.go(drain, desk=desk)
    assert 0 < len(seen) < 40
    found, done = run.go()
    assert values(found, "only") == [[number] for number in range(40)]
    assert {partition for _, partition in done} == set(range(40)) - set(seen)


@pytest.mark.parametrize("inside", [False, True], ids=["segment", "loop"])
def test_segment_paused_before_its_start_starts_no_task(breaking: Breaking, inside: bool) -> None:
    """A pause may arrive between two segments of a loop, or while a segment reads its ledger."""
    turns = {
        "type": "loop",
        "state": {"numbers": "only"},
        "maxIterations": 2,
        "stages": {"next": mapped("state.numbers")},
        "next": {"numbers": "next"},
    }
    run = breaking(spec(only=mapped(EIGHT), **({"turns": turns} if inside else {})))
    if inside:
        run.go()
        run.store.delete_prefix(f"runs/{run.run}/segments/turns")
    desk, seen = Desk(), list[str]()
    desk.drain()
    with pytest.raises(Stopped):
        run.go(lambda segment, _outcome: seen.append(segment), desk=desk)
    assert not seen


def test_a_segment_that_cannot_begin_keeps_no_slot_from_others(breaking: Breaking) -> None:
    """Its ledger broke before it began, so it must not be offered slots."""
    run = breaking(spec(only=mapped(EIGHT)))
    engine = run.engine(run.executor)
    known = engine.site.open(run.run)
    segment = known.plan.graph.node("only")
    assert isinstance(segment, Segment)

    async def begin() -> None:
        ledger = Ledger(CrashingStore(run.store, 2, after=False), known.files.segment("only"), known.files.key)
        async with writing(ledger) as (writer, _):
            account = Account("only", writer, SegmentHistory(expected=8))
            begun = await prepare(known, segment, known.scope, NodeOrder(known.id, segment.id), account)
            writer.append(Expected("only", 8, 0.0))
            with pytest.raises(StoreError):
                await writer.synced()
            with pytest.raises(StoreError, match="the driver is dead"):
                await begun.run()

    run.harness.wait(begin())
    assert values(run.harness.result(engine, run.run), "only") == [[number] for number in range(8)]


class Refusing:
    """An executor with one slot that raises."""

    name = "only"
    task = ""

    def __init__(self, inner: Executor, error: Exception) -> None:
        self.capabilities, self._error = inner.capabilities, error

    @property
    def slots(self) -> list[Refusing]:
        return [self]

    async def start(self) -> None:
        pass

    stop = start

    async def run(self, task: Task, report: Callable[[Report], None]) -> None:
        raise self._error


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (UsageError("it does not fit"), "user error"),
        (CorruptError("this deployment did not write it"), "data corrupt"),
        (MissingError("the bundle is gone"), "unreachable"),
        (InternalError("a task runs already"), "internal"),
        (ValueError("a defect"), "internal"),
    ],
)
def test_error_of_a_slot_fails_the_segment_with_its_class(breaking: Breaking, error: Exception, kind: str) -> None:
    run = breaking(spec(only=mapped(EIGHT)))
    refusing = Refusing(run.executor, error)
    found = run.harness.result(run.engine(refusing), run.run)
    assert failure(found) == kind
    assert str(error) in str(found)
