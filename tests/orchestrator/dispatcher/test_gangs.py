"""Whole runs with gangs: all members run together or none, for any process that dies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from orchestrator.broken_runs import failure, values
from orchestrator.conftest import Breaking
from orchestrator.record_histories import spec

from treadle.client.testing.engine import EngineFailure
from treadle.client.testing.faults import CrashingStore
from treadle.client.testing.harness import Harness
from treadle.client.testing.strategies import Case
from treadle.dsl.model import Spec
from treadle.dsl.reference import run_reference
from treadle.orchestrator.dispatcher.ledger.ledger import Committed, Failed, Record, Started, read
from treadle.orchestrator.dispatcher.segments import gang_segment as gang_segment
from treadle.primitives.errors import StoreError
from treadle.primitives.stores.shared_memory import HostFolder
from treadle.primitives.stores.store import Store

M = "orchestrator.gang_functions"
FOUR = {"range": 4, "partitions": 2}


def gang(function: str, given: Any = FOUR, **more: Any) -> dict[str, Any]:
    return {"type": "map", "input": given, "uses": f"{M}:{function}", "per": "partition", "gang": 2, **more}


TWICE = {"maximumAttempts": 2, "initialInterval": "1ms"}


def noting(function: str, folder: Path, given: Any = FOUR, **more: Any) -> dict[str, Any]:
    return gang(function, given, **{"with": {"folder": str(folder)}}, **more)


def started(folder: Path) -> list[str]:
    """`stage-partition.attempt` of every call, with repeats."""
    return sorted(path.name for path in folder.iterdir() for _ in path.read_text())


def records(run: Any, segment: str) -> list[Record]:
    files = run.engine(run.executor).site.files(run.run)
    return [one for one in read(run.store, files.segment(segment), files.key) if getattr(one, "segment", "") == segment]


def test_gang_uses_all_four_collectives_as_the_reference_does(breaking: Breaking) -> None:
    document = spec(all=gang("everything", flat=True))
    meant = run_reference(Spec.model_validate(document))
    found, _ = breaking(document).go()
    assert [partition.value for partition in meant.datasets["all"]] == values(found, "all")
    assert sorted(values(found, "all")) == [[10, 60, [0, 2]], [10, 60, [1, 3]]]


def test_gang_starts_again_as_a_whole_when_a_member_dies(breaking: Breaking, tmp_path: Path) -> None:
    run = breaking(spec(sum=noting("dies_first", tmp_path)))
    found, _ = run.go()
    assert values(found, "sum") == [[6], [6]]
    assert started(tmp_path) == ["sum-0.1", "sum-0.2", "sum-1.1", "sum-1.2"]
    failed = [one for one in records(run, "sum") if isinstance(one, Failed)]
    assert [(one.partition, one.failure, one.spent, one.final) for one in failed] == [
        (0, "worker lost", False, False),
        (1, "worker lost", False, False),
    ]


@pytest.mark.parametrize("busy", [False, True])
def test_member_that_leaves_in_time_keeps_its_process_for_the_next_attempt(
    breaking: Breaking, tmp_path: Path, busy: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gang_segment, "LEAVE", 0.2 if busy else 60.0)
    given = {"with": {"folder": str(tmp_path), "busy": busy}}
    found, _ = breaking(spec(sum=gang("names_its_process", **given))).go()
    assert values(found, "sum") == [[1], [5]]
    processes = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert (processes["0.1"] in (processes["0.2"], processes["1.2"])) is not busy


@pytest.mark.parametrize("step", range(1, 11))
def test_member_may_be_killed_in_every_phase_of_every_collective(breaking: Breaking, step: int) -> None:
    found, _ = breaking(spec(all=gang("dies_at", flat=True, **{"with": {"step": step}}))).go()
    assert sorted(values(found, "all")) == [[6, [0, 2]], [6, [1, 3]]]


def test_what_killed_members_left_in_shared_memory_goes_with_their_segment(
    slots: tuple[Harness, Any], tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """One member is killed before the first barrier, then the other one, which waits there. A driver was killed
    earlier."""
    harness, host = slots[0], tmp_path_factory.mktemp("memory") / "host"
    engine = harness.engine(Store.open(f"file://{harness.folder}/store"), harness.local(2, host), host)
    HostFolder(host).put("left/channels/all#1.00/bell", [b""])
    case = Case(spec(all=gang("dies_at", flat=True, **{"with": {"step": 1}})))
    assert harness.submit(engine, case, tmp_path, "left") is None
    found = harness.result(engine, "left")
    assert sorted(values(found, "all")) == [[6, [0, 2]], [6, [1, 3]]]
    assert list(host.glob("left/channels/*")) == []


def test_error_of_one_member_is_an_attempt_of_the_gang(breaking: Breaking, tmp_path: Path) -> None:
    run = breaking(spec(sum=noting("raises_first", tmp_path, retry=TWICE)))
    found, _ = run.go()
    assert values(found, "sum") == [[6], [6]]
    failed = [one for one in records(run, "sum") if isinstance(one, Failed)]
    assert [(one.partition, one.failure, one.spent) for one in failed] == [
        (0, "user error", True),
        (1, "user error", True),
    ]


def test_gang_fails_with_the_first_cause(breaking: Breaking, tmp_path: Path) -> None:
    found, _ = breaking(spec(sum=noting("raises_always", tmp_path, retry=TWICE))).go()
    assert failure(found) == "user error"
    assert isinstance(found, EngineFailure)
    assert "sum: the gang failed, partition 1 first: ValueError: never" in found.problem.message
    assert sum(name.startswith("sum-1") for name in started(tmp_path)) == 2


def test_cause_is_reported_even_if_its_consequence_arrives_first(breaking: Breaking) -> None:
    found, _ = breaking(spec(sum=gang("follows", **{"with": {"cause": True}}))).go()
    assert failure(found) == "user error"
    assert isinstance(found, EngineFailure)
    assert "partition 1 first: ValueError: the cause" in found.problem.message


def test_failure_without_a_cause_ends_the_others_and_spends_no_attempt(
    breaking: Breaking, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gang_segment, "GRACE", 0.2)
    found, _ = breaking(spec(sum=gang("follows", **{"with": {"cause": False}}))).go()
    assert values(found, "sum") == [[1], [5]]


def test_outcome_of_a_gang_cut_off_is_asked_of_a_person(breaking: Breaking, tmp_path: Path) -> None:
    run = breaking(spec(sum=noting("counted", tmp_path, idempotent=False)))
    with pytest.raises(StoreError):
        run.go(store=CrashingStore(run.store, 3, after=False))
    assert started(tmp_path) == ["sum-0.1", "sum-1.1"]
    found, done = run.go()
    assert failure(found) == "unknown outcome"
    assert not done
    found, done = run.go(resumption=2, assume="retry")
    assert values(found, "sum") == [[6], [6]]
    assert done == {("sum", 0): 1, ("sum", 1): 1}


def test_member_that_hangs_ends_with_its_gang(breaking: Breaking, tmp_path: Path) -> None:
    found, _ = breaking(
        spec(sum=noting("never_ends", tmp_path, timeout="3s", retry={**TWICE, "maximumAttempts": 5}))
    ).go()
    assert values(found, "sum") == [[1], [5]]


def test_gangs_that_want_the_same_slots_take_turns(breaking: Breaking, tmp_path: Path) -> None:
    stages = {f"s{number}": noting("counted", tmp_path) for number in range(4)}
    plain = {
        f"p{number}": {"type": "map", "input": {"range": 20}, "uses": "orchestrator.history_functions:same"}
        for number in range(2)
    }
    found, _ = breaking(spec(**stages, **plain)).go()
    assert [values(found, stage) for stage in stages] == [[[6], [6]]] * 4
    assert len(started(tmp_path)) == 8


def test_gang_in_a_loop(breaking: Breaking) -> None:
    turns = {
        "type": "loop",
        "state": {"numbers": "start"},
        "maxIterations": 3,
        "stages": {"next": {"type": "map", "input": "state.numbers", "uses": f"{M}:added", "gang": 2}},
        "next": {"numbers": "next"},
    }
    start = {"type": "map", "input": {"range": 2}, "uses": "orchestrator.history_functions:same"}
    last = {"type": "map", "input": "turns.state.numbers", "uses": "orchestrator.history_functions:same"}
    found, _ = breaking(spec(start=start, turns=turns, last=last)).go()
    assert values(found, "last") == [[11], [11]]


def test_whole_gang_reruns_when_a_part_of_its_output_is_lost(breaking: Breaking, tmp_path: Path) -> None:
    last = {"type": "map", "input": "sum", "uses": "orchestrator.history_functions:same"}
    run = breaking(spec(sum=noting("counted", tmp_path), last=last))
    found, done = run.go(run.losing(("sum", 1)))
    assert values(found, "last") == [[6], [6]]
    assert done["sum", 0] == done["sum", 1] == 2
    assert done["last", 0] <= 2


@pytest.mark.parametrize("after", [False, True], ids=["before the write", "after the write"])
@pytest.mark.parametrize("write", range(1, 5))
def test_driver_that_dies_leaves_a_whole_gang_or_none(
    breaking: Breaking, tmp_path: Path, write: int, after: bool
) -> None:
    """This holds for each object of the ledger too: no object has a part of a gang."""
    run = breaking(spec(sum=noting("counted", tmp_path)))
    store = CrashingStore(run.store, write, after=after)
    try:
        run.go(store=store)
    except StoreError:
        assert store.crashed
    seen = committed(records(run, "sum"))
    assert seen in (set(), {0, 1})
    found, done = run.go()
    assert values(found, "sum") == [[6], [6]]
    assert sum(done.values()) == (0 if seen else 2)


def committed(found: list[Record]) -> set[int]:
    return {one.outcome.partition for one in found if isinstance(one, Committed)}


def test_executor_whose_workers_cannot_connect_refuses_gangs(
    slots: tuple[Harness, Any], breaking: Breaking, tmp_path: Path
) -> None:
    harness, _ = slots
    engine = breaking(spec(plain=gang("everything"))).engine(harness.isolated(2))
    refused = harness.submit(engine, Case(spec(all=gang("everything"))), tmp_path, "refused")
    assert refused is not None
    assert "workers of this executor cannot connect to each other" in refused.problem.message


def test_gang_over_other_than_its_partitions_fails_when_they_are_known(breaking: Breaking) -> None:
    found, _ = breaking(spec(all=gang("everything", batch={"maxBytes": "1KiB", "maxItems": 1}))).go()
    assert failure(found) == "user error"
    assert isinstance(found, EngineFailure)
    assert "its input has 4 partitions, and `gang: 2` needs exactly 2" in found.problem.message


def test_hint_says_how_a_gang_gets_its_slots(slots: tuple[Harness, Any], breaking: Breaking, tmp_path: Path) -> None:
    harness, executor = slots
    wide = {"type": "map", "input": {"range": 3}, "uses": f"{M}:added", "gang": 3}
    refused = harness.submit(
        breaking(spec(plain=gang("everything"))).engine(executor), Case(spec(wide=wide)), tmp_path, "wide"
    )
    assert refused is not None
    assert "wide: `gang: 3` needs 3 slots at once, and there are 2" in refused.problem.message
    assert "Set `slots = 3` in a profile" in refused.problem.message


def test_attempts_of_a_gang_are_on_record_together(breaking: Breaking, tmp_path: Path) -> None:
    run = breaking(spec(sum=noting("dies_first", tmp_path)))
    run.go()
    assert [one.attempts for one in records(run, "sum") if isinstance(one, Started)] == [{0: 1, 1: 1}, {0: 2, 1: 2}]
