"""Wide segments run in task groups: the same result, each group resumes from its state, and nothing runs twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from orchestrator.broken_runs import Broken, failure, values
from orchestrator.conftest import Breaking
from orchestrator.record_histories import M, mapped, spec

from treadle.client.testing.faults import CrashingStore
from treadle.dsl import Spec
from treadle.executors.interface import Capabilities
from treadle.executors.program import Outcome
from treadle.orchestrator.dispatcher.ledger.ledger import Committed, read
from treadle.orchestrator.plan.plan import Plan, Segment
from treadle.orchestrator.planner import RunLocation, make_plan, task_groups
from treadle.orchestrator.run_store.run_files import RunFiles
from treadle.primitives.errors import StoreError

HUNDRED = {"range": 100, "partitions": 100}
SIZE = 30


@pytest.fixture(autouse=True)
def small_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_groups, "GROUP_TASKS", SIZE)


def files(run: Broken) -> RunFiles:
    return run.engine(run.executor).site.files(run.run)


def node(run: Broken, name: str) -> Segment:
    found = files(run).load(Plan, "plan").graph.node(name)
    assert isinstance(found, Segment)
    return found


def grouped(run: Broken, segment: str) -> dict[int, list[int]]:
    """Group -> the partitions committed in its ledger, in order."""
    here = files(run)
    chains = here.ledgers(segment)[1:]
    return {
        int(chain.rsplit("/", 1)[1]): sorted(
            record.outcome.partition for record in read(here.store, chain, here.key) if isinstance(record, Committed)
        )
        for chain in chains
    }


def committed(run: Broken) -> set[tuple[str, int]]:
    """The committed partitions in the ledgers."""
    return {
        (node.id, partition)
        for node in files(run).load(Plan, "plan").graph.nodes
        for partitions in grouped(run, node.id).values()
        for partition in partitions
    }


def test_each_group_has_a_ledger_of_its_own_and_the_manifest_has_them_all(breaking: Breaking) -> None:
    run = breaking(spec(only=mapped(HUNDRED, "more")))
    found, done = run.go()
    assert values(found, "only") == [[number + 1] for number in range(100)]
    assert set(done.values()) == {1}
    assert grouped(run, "only") == {
        0: list(range(30)), 1: list(range(30, 60)), 2: list(range(60, 90)), 3: list(range(90, 100))
    }  # fmt: skip
    manifest = files(run).manifest("only")
    assert manifest is not None
    assert [outcome.partition for outcome in manifest.outcomes] == list(range(100))
    assert (manifest.summary.rows, manifest.summary.partitions) == (100, 100)
    assert any("4 task groups of at most 30 partitions" in reason for reason in node(run, "only").reasons)


def test_width_that_shows_only_when_the_input_is_there_is_cut_too(breaking: Breaking) -> None:
    fat = mapped({"range": 4, "partitions": 2}, "spread", flat=True)
    run = breaking(spec(fat=fat, thin=mapped("fat", batch={"maxItems": 1})))
    assert node(run, "thin").partitions == 0
    found, done = run.go()
    assert len(values(found, "thin")) == 80
    assert [len(partitions) for partitions in grouped(run, "thin").values()] == [30, 30, 20]
    assert set(done.values()) == {1}


def test_metrics_outputs_and_failed_items_cover_all_groups(breaking: Breaking, tmp_path: Path) -> None:
    stage = mapped(
        HUNDRED, "measured", metrics={"seen": "sum"}, toleratedFailures="60%",
        failedItems={"uri": str(tmp_path / "failed")}, output={"uri": str(tmp_path / "out"), "format": "jsonl"},
    )  # fmt: skip
    run = breaking(spec(only=stage))
    found, _ = run.go()
    assert not isinstance(found, Exception)
    assert found.metrics == {"only": {"seen": 50}}
    assert len(list((tmp_path / "out").glob("part-*"))) == 100
    assert len(list((tmp_path / "failed").glob("part-*"))) == 50


@pytest.mark.parametrize("tolerated", [40, "49%"])
def test_failed_records_are_judged_over_all_groups(breaking: Breaking, tolerated: Any) -> None:
    """No group has more than 15 failed records, which are half of its records."""
    run = breaking(spec(only=mapped(HUNDRED, "measured", metrics={"seen": "sum"}, toleratedFailures=tolerated)))
    found, _ = run.go()
    assert failure(found) == "user error"
    assert "failed" in str(found)


def test_a_group_may_fail_more_than_its_share_of_a_percentage(breaking: Breaking) -> None:
    run = breaking(spec(only=mapped(HUNDRED, "refuses_small", toleratedFailures="20%", **{"with": {"below": 20}})))
    found, _ = run.go()
    assert sum(map(len, values(found, "only"))) == 80


def test_resume_runs_partitions_that_no_group_committed(breaking: Breaking, tmp_path: Path) -> None:
    failing = {"flag": str(tmp_path / "flag"), "first": 99}  # the last of its group: groups run at the same time
    run = breaking(spec(only=mapped(HUNDRED, "needs_flag_from", **{"with": failing})))
    found, _ = run.go()
    assert failure(found) == "user error"
    before = committed(run)
    (tmp_path / "flag").touch()
    found, after = run.go(resumption=2)
    assert values(found, "only") == [[number] for number in range(100)]
    assert before
    assert after == {("only", partition): 1 for partition in range(100) if ("only", partition) not in before}


def test_commits_survive_the_death_of_the_driver_at_any_write(breaking: Breaking) -> None:
    document = spec(first=mapped(HUNDRED, "more"), only=mapped("first", "more", retry={"maximumAttempts": 2}))
    for write in (9, 22):
        run = breaking(document)
        store = CrashingStore(run.store, write, after=True)
        try:
            run.go(store=store)
        except StoreError:
            assert store.crashed
        before = committed(run)
        found, after = run.go()
        assert values(found, "only") == [[number + 2] for number in range(100)]
        assert not before & set(after), "done again"


def test_exactly_the_lost_partitions_are_recomputed_with_a_new_manifest(breaking: Breaking) -> None:
    run = breaking(spec(first=mapped(HUNDRED, "more"), only=mapped("first", "more", retry={"maximumAttempts": 2})))
    lost = {("first", 5), ("first", 6), ("first", 95)}
    found, done = run.go(run.losing(*lost))
    assert values(found, "only") == [[number + 2] for number in range(100)]
    assert {one for one, times in done.items() if times > 1} == lost
    assert files(run).generation("first") > 1
    assert files(run).closed_groups("first") == {0: 2, 1: 1, 2: 1, 3: 2}


def test_a_group_that_is_gone_is_run_again(breaking: Breaking) -> None:
    """Assembly names the open groups for any cause."""
    run = breaking(spec(only=mapped(HUNDRED, "more")))
    run.go()
    here = files(run)
    here.store.delete_prefix(f"{here.segment('only')}/manifest/")
    here.store.delete_prefix(f"{here.segment('only')}/closed/2/")
    found, done = run.go()
    assert values(found, "only") == [[number + 1] for number in range(100)]
    assert not done, "its ledger still has every commit"


def test_concurrency_of_a_stage_holds_over_its_groups(breaking: Breaking) -> None:
    running: Counter[str] = Counter()
    run = breaking(spec(only=mapped(HUNDRED, "more", maxConcurrency=1)))
    assert node(run, "only").group == SIZE
    found, _ = run.go(lambda segment, outcome: running.update([segment]))
    assert len(values(found, "only")) == 100


@pytest.mark.parametrize(
    ("stages", "reason"),
    [
        ({"only": mapped(HUNDRED), "most": {"type": "barrier", "input": "only", "quorum": "80%"}}, "80%"),
        ({"only": mapped({"range": 100, "partitions": 2}, "listed", per="partition", gang=2)}, "a gang"),
    ],
)
def test_uncuttable_stage_gives_the_reason(
    stages: Mapping[str, Any], reason: str, breaking: Breaking, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_groups, "GROUP_TASKS", 1)
    run = breaking(spec(**stages))
    only = node(run, "only")
    assert only.group == 0
    assert any(one.startswith("one task group: ") and reason in one for one in only.reasons)


@pytest.mark.parametrize(
    ("partitions", "drivers", "executor", "size"),
    [
        (100, 1, "local", 0),
        (4, 2, "local", 0),  # a driver has four slots
        (9, 2, "local", 4),
        (100, 2, "local", 13),  # eight groups
        (100, 3, "local", 9),
        (100_000, 2, "local", 5_000),
        (100, 2, "functions", 0),  # any driver can call them all
        (100, 0, "local", 0),  # not known
    ],
)
def test_drivers_that_are_there_share_a_segment(
    partitions: int, drivers: int, executor: str, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_groups, "GROUP_TASKS", 5_000)
    can = {
        "local": Capabilities("local", 4, shares_host=True),
        "functions": Capabilities("lambda", 4, shares_host=False),
    }
    site = RunLocation(can, 2**30, "file:///store", one_host=False, drivers=drivers)
    only = mapped({"range": partitions, "partitions": partitions}, executor=executor)
    document = Spec.model_validate(spec(only=only))
    (found,) = make_plan(document, {}, {"id": "r", "startTime": ""}, {}, Path("/nowhere"), site).graph.nodes
    assert isinstance(found, Segment)
    assert found.group == size
    assert [reason for reason in found.reasons if "planned for one driver" in reason] == [
        "one task group: planned for one driver; where several serve the queue, they share it"
    ] * (not drivers)


def test_a_shuffle_of_groups_on_both_sides_is_as_any_other(breaking: Breaking) -> None:
    document = spec(
        pairs=mapped(HUNDRED, "pair"),
        groups={"type": "shuffle", "input": "pairs", "by": "key", "partitions": 40},
        counts={"type": "reduce", "input": "groups", "per": "key", "combine": f"{M}:add"},
    )
    run = breaking(document)
    found, done = run.go()
    assert sorted(pair for part in values(found, "counts") for pair in part) == [
        (key, sum(range(key, 100, 3))) for key in range(3)
    ]
    assert set(done.values()) == {1}
    assert len(grouped(run, "groups")) == 4
    assert len(grouped(run, "counts")) == 2


def test_attempts_are_numbered_and_logged_apart(breaking: Breaking, tmp_path: Path) -> None:
    run = breaking(spec(only=mapped(HUNDRED, "chatty")))
    seen: list[Outcome] = []
    run.go(lambda segment, outcome: seen.append(outcome))
    names = {info.name.rsplit("/", 1)[1] for info in run.store.list(f"runs/{run.run}/attempts/only/")}
    assert {name.partition("-")[0] for name in names} == {"0", "1", "2", "3"}
