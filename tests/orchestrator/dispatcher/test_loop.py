"""An interrupted loop resumes inside its iteration. A lost block sends it back only as far as necessary."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from orchestrator.broken_runs import Done, failure, values
from orchestrator.conftest import Breaking
from orchestrator.record_histories import M, mapped, spec

from treadle.client.attempt_logs import LogFollower
from treadle.client.testing import EngineFailure, EngineResult
from treadle.client.testing.faults import CrashingStore
from treadle.executors.program import Outcome
from treadle.orchestrator.dispatcher.ledger.ledger import Committed, Iterated, Ledger, Started, read
from treadle.orchestrator.dispatcher.segments.execute_segment import Desk
from treadle.orchestrator.dispatcher.segments.failed_segment import Stopped
from treadle.primitives import sealing
from treadle.primitives.errors import StoreError

L = "orchestrator.loop_functions"
FOUR = {"range": 4, "partitions": 4}


def loop(iterations: int = 3, inner: Any = None, **more: Any) -> dict[str, Any]:
    """`step` adds one to every record of the state, `iterations` times."""
    turns = {
        "type": "loop",
        "state": {"data": "start"},
        "maxIterations": iterations,
        "stages": inner or {"step": mapped("state.data", "more")},
        "next": {"data": "step"},
        **more,
    }
    return spec(start=mapped(FOUR), turns=turns, end=mapped("turns.state.data", needs=["turns"]))


def at(iteration: int, *partitions: int, stage: str = "step") -> set[Done]:
    return {(f"turns-{iteration}/{stage}", partition) for partition in partitions}


def repeated(done: Counter[Done]) -> set[Done]:
    return {one for one, times in done.items() if times > 1}


def test_loop_does_every_iteration_once(breaking: Breaking) -> None:
    found, done = breaking(loop()).go()
    assert values(found, "end") == [[3], [4], [5], [6]]
    assert {one for one in done if one[0].startswith("turns")} == at(1, 0, 1, 2, 3) | at(2, 0, 1, 2, 3) | at(
        3, 0, 1, 2, 3
    )
    assert not repeated(done)


@pytest.mark.parametrize("given", ["start", "state.data"])
def test_next_refuses_data_of_a_skipped_stage(breaking: Breaking, given: str) -> None:
    gate = {"type": "barrier", "input": given, "when": "1 > 2"}
    found, _ = breaking(loop(inner={"step": mapped("state.data"), "gate": gate}, next={"data": "gate"})).go()
    assert failure(found) == "user error"
    assert isinstance(found, EngineFailure)
    assert "`next` takes data from gate, which was skipped" in found.problem.message


def test_next_may_take_what_nothing_inside_reads(breaking: Breaking) -> None:
    found, done = breaking(loop(state={"data": 1}, inner={"step": mapped(FOUR)}, next={"data": "start"})).go()
    assert values(found, "end") == [[0], [1], [2], [3]]
    assert not repeated(done)


def test_resume_inside_an_iteration_runs_only_missing_partitions(breaking: Breaking, tmp_path: Path) -> None:
    flag = tmp_path / "flag"
    step = mapped("state.data", "needs_flag_later", **{"with": {"flag": str(flag)}})
    run = breaking(loop(inner={"step": step}))
    found, before = run.go()
    assert failure(found) == "user error"
    assert at(1, 0, 1, 2, 3) <= set(before)
    assert set(before) & at(2, 0, 1, 2, 3) <= at(2, 0)
    flag.touch()
    found, after = run.go(resumption=2)
    assert values(found, "end") == [[3], [4], [5], [6]]
    assert not repeated(before + after)


@pytest.mark.parametrize("write", range(3, 14))
def test_driver_that_dies_anywhere_in_a_loop_repeats_nothing_committed(breaking: Breaking, write: int) -> None:
    run = breaking(loop())
    store = CrashingStore(run.store, write, after=True)
    try:
        run.go(store=store)
    except StoreError:
        assert store.crashed
    key = sealing.run_key(run.harness.key, run.run)
    prefix = f"runs/{run.run}/segments/turns"
    known = {record.iteration for record in read(run.store, prefix, key) if isinstance(record, Iterated)}
    found, after = run.go()
    assert values(found, "end") == [[3], [4], [5], [6]]
    assert not {one for one in after for iteration in known if one[0].startswith(f"turns-{iteration}/")}


def test_paused_loop_lets_every_attempt_end(breaking: Breaking) -> None:
    """A cut-off attempt might be of a stage that is not idempotent."""
    body = {
        name: mapped("state.data", "takes", maxConcurrency=1, **{"with": {"seconds": seconds}})
        for name, seconds in (("short", 0.2), ("long", 3.0))
    }
    run, desk = breaking(loop(inner=body, next={"data": "short"})), Desk()

    def rest(segment: str, _: Outcome) -> None:
        if segment.endswith("/short"):
            desk.drain()

    with pytest.raises(Stopped):
        run.go(rest, desk=desk)
    records = read(run.store, f"runs/{run.run}/segments/turns", sealing.run_key(run.harness.key, run.run))
    begun = {(one.segment, each) for one in records if isinstance(one, Started) for each in one.attempts}
    assert begun == {(one.segment, one.outcome.partition) for one in records if isinstance(one, Committed)}
    assert {segment for segment, _ in begun} == {"turns-1/short", "turns-1/long"}


def test_lost_block_of_an_earlier_iteration_is_recomputed_alone(breaking: Breaking) -> None:
    run = breaking(loop())
    found, done = run.go(run.losing(("turns-2/step", 1)))
    assert values(found, "end") == [[3], [4], [5], [6]]
    assert repeated(done) == at(2, 1)


def test_what_attempts_printed_is_kept_when_a_loop_goes_back(breaking: Breaking) -> None:
    run = breaking(loop(inner={"step": mapped("state.data", "chatty")}))
    run.go(run.losing(("turns-2/step", 1)))
    records = LogFollower(run.engine(run.executor).site.files(run.run)).new()
    printed = Counter((record.segment, record.partition) for record in records if record.log)
    assert set(printed) == {one for iteration in (1, 2, 3) for one in at(iteration, 0, 1, 2, 3)}
    assert repeated(printed) >= at(2, 1)


def test_block_lost_again_and_again_fails_the_loop_in_the_end(breaking: Breaking) -> None:
    run = breaking(loop())

    def see(segment: str, outcome: Outcome) -> None:
        if (segment, outcome.partition) == ("turns-2/step", 1) and outcome.block is not None:
            run.damage(outcome.block, "delete")

    found, done = run.go(see)
    assert failure(found) == "unreachable"
    assert "blocks of turns-2/step were lost 10 times" in str(found)
    assert done["turns-2/step", 1] == 11


def test_lost_block_of_the_last_iteration_is_recomputed_for_readers_after_the_loop(breaking: Breaking) -> None:
    run = breaking(loop())
    found, done = run.go(run.losing(("turns-3/step", 2)))
    assert values(found, "end") == [[3], [4], [5], [6]]
    assert repeated(done) == at(3, 2)


def shipping(limit: str = "1MiB") -> dict[str, Any]:
    """From six on, `turns` adds six to four times the previous sum, which ships without a task: 30, 126, 510."""
    total = {"type": "reduce", "per": "all", "combine": f"{M}:add"}
    turns = {
        "type": "loop",
        "state": {"sum": "start"},
        "maxIterations": 3,
        "stages": {
            "ship": {"type": "broadcast", "input": "state.sum", "limit": limit},
            "step": {"type": "map", "input": FOUR, "uses": f"{L}:plus", "with": {"other": "${{ stages.ship }}"}},
            "sum": {**total, "input": "step"},
        },
        "next": {"sum": "sum"},
    }
    return spec(start={**total, "input": FOUR}, turns=turns, end=mapped("turns.state.sum"))


def test_value_shipped_unchanged_is_recomputed_when_it_is_lost(breaking: Breaking) -> None:
    run = breaking(shipping())
    found, done = run.go(run.losing(("start", 0), ("turns-2/sum", 0)))
    assert values(found, "end") == [[510]]
    assert {("start", 0), ("turns-2/sum", 0)} <= repeated(done)
    assert not any(name.endswith("/ship") for name, _ in done)


def test_a_loop_further_in_ships_the_one_record_that_is_state_of_the_loop_around_it(breaking: Breaking) -> None:
    document = shipping()
    turns = document["stages"]["turns"]
    again = {"type": "loop", "state": {"found": "start"}, "maxIterations": 2, "next": {"found": "sum"}}
    turns |= {"stages": {"again": {**again, "stages": turns["stages"]}}, "next": {"sum": "again.state.found"}}
    found, done = breaking(document).go()
    assert values(found, "end") == [[510]]
    assert not any(name.endswith("/ship") for name, _ in done)


def test_value_shipped_as_it_is_keeps_to_its_limit(breaking: Breaking) -> None:
    found, done = breaking(shipping("16B")).go()
    assert isinstance(found, EngineFailure)
    assert found.problem.failure == "user error"
    assert "the broadcast ship has" in found.problem.message
    assert not at(1, 0, 1, 2, 3) & set(done)


def test_lost_block_from_outside_the_loop_is_recomputed_outside(breaking: Breaking) -> None:
    run = breaking(loop())
    found, done = run.go(run.losing(("start", 3)))
    assert values(found, "end") == [[3], [4], [5], [6]]
    assert repeated(done) == {("start", 3)}


def test_chain_of_lost_blocks_is_recomputed_from_its_beginning(breaking: Breaking) -> None:
    run = breaking(loop())
    found, done = run.go(run.losing(("start", 1), ("turns-1/step", 1), ("turns-2/step", 1)))
    assert values(found, "end") == [[3], [4], [5], [6]]
    assert repeated(done) == {("start", 1), *at(1, 1), *at(2, 1)}


def test_nested_loop_starts_afresh_and_repairs_itself(breaking: Breaking) -> None:
    inner = {
        "type": "loop",
        "state": {"deep": "state.data"},
        "maxIterations": 2,
        "stages": {"dig": mapped("state.deep", "more")},
        "next": {"deep": "dig"},
    }
    document = loop(2, {"inner": inner, "step": mapped("inner.state.deep", "more")})
    run = breaking(document)
    found, done = run.go(run.losing(("turns-2/inner-1/dig", 0)))
    assert values(found, "end") == [[6], [7], [8], [9]]
    assert repeated(done) == {("turns-2/inner-1/dig", 0)}


def test_exhausted_loop_is_a_user_error(breaking: Breaking) -> None:
    state: dict[str, Any] = {"state": {"data": "start", "count": 0}, "until": "state.count > 9"}
    found, _ = breaking(loop(**state)).go()
    assert failure(found) == "user error"
    found, _ = breaking(loop(onExhausted="succeed", **state)).go()
    assert isinstance(found, EngineResult)
    assert found.metrics["turns"] == {"iterations": 3}


def test_second_dispatcher_finds_the_loop_finished(breaking: Breaking) -> None:
    run = breaking(loop())
    run.go()
    Ledger(run.store, f"runs/{run.run}/segments/turns", sealing.run_key(run.harness.key, run.run))
    found, done = run.go()
    assert values(found, "end") == [[3], [4], [5], [6]]
    assert not done
