"""Damaged objects of a run that follow from its ledgers are replaced. No committed partition runs again."""

from __future__ import annotations

from pathlib import Path

import pytest
from orchestrator.broken_runs import Broken, failure, values
from orchestrator.conftest import Breaking
from orchestrator.record_histories import mapped, spec

from treadle.orchestrator.reuse.repair import mend
from treadle.primitives.errors import CorruptError

FOUR = {"range": 4, "partitions": 4}


@pytest.fixture
def failed(breaking: Breaking, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Broken:
    """first -> a loop -> last, which has failed. Stages with more than two partitions have task groups."""
    monkeypatch.setattr("treadle.orchestrator.planner.task_groups.GROUP_TASKS", 2)
    flag = tmp_path / "flag"
    turns = {
        "type": "loop",
        "state": {"x": "first"},
        "stages": {"step": mapped("state.x", "more")},
        "next": {"x": "step"},
        "maxIterations": 2,
    }
    last = mapped("turns.state.x", "needs_flag_later", needs=["turns"], **{"with": {"flag": str(flag)}})
    run = breaking(spec(first=mapped(FOUR), turns=turns, last=last))
    assert failure(run.go()[0]) == "user error"
    flag.touch()
    return run


def derived(run: Broken) -> list[str]:
    """The names of the run's manifests, of its task groups' manifests, and of its loops' results."""
    names = [info.name for info in run.store.list(f"runs/{run.run}/segments/")]
    return [name for name in names if {"manifest", "closed", "result"} & set(name.split("/"))]


def damage(run: Broken, *names: str) -> None:
    for name in names:
        data = bytes(run.store.get(name))
        run.store.put(name, data[:-1] + bytes([data[-1] ^ 1]))


def mended(run: Broken) -> set[str]:
    site = run.engine(run.executor).site
    return set(mend(site.files(run.run), site.files))


def test_nothing_is_replaced_in_a_run_that_is_whole(failed: Broken) -> None:
    before = derived(failed)
    assert mended(failed) == set()
    assert derived(failed) == before


@pytest.mark.parametrize("kind", ["manifest", "closed", "result", ""])
def test_damaged_objects_are_rewritten_without_rerunning_committed_partitions(failed: Broken, kind: str) -> None:
    which = [name for name in derived(failed) if kind in name.split("/") or not kind]
    assert which
    damage(failed, *which)
    assert mended(failed) <= set(which)
    assert mended(failed) == set()
    found, done = failed.go(resumption=2)
    assert {segment for segment, _ in done} <= {"last"}
    assert values(found, "last") == [[3], [4], [5], [6]]


def test_damaged_manifest_stays_when_its_ledger_is_damaged_too(failed: Broken) -> None:
    ledgers = [info.name for info in failed.store.list(f"runs/{failed.run}/segments/") if "/ledger/" in info.name]
    damage(failed, *derived(failed), *ledgers)
    with pytest.raises(CorruptError, match="ledger"):
        mended(failed)
