"""The service removes the data of triggered runs that ended long ago, and nothing else."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from treadle.client.client import Runs
from treadle.client.testing.service import service
from treadle.orchestrator.environment.home import Home
from treadle.orchestrator.environment.profile import Profile
from treadle.orchestrator.reuse.cache_entries import Entries
from treadle.orchestrator.run_store.run_files import RunFiles, Submission
from treadle.orchestrator.temporal.temporal_runs import TemporalRuns
from treadle.primitives import sealing
from treadle.primitives.stores.store import Store
from treadle.triggers import retention
from treadle.triggers.retention import Retention
from treadle.triggers.starter import ensure_search_attribute

KEY = b"k" * 32
DAY = 86_400.0


class Temporal:
    """A client that lists these runs as open."""

    def __init__(self, *still: str) -> None:
        self._still = still

    async def list_workflows(self, query: str) -> AsyncIterator[Any]:
        assert query == "TreadleTrigger IS NOT NULL AND ExecutionStatus = 'Running'"
        for run in self._still:
            yield SimpleNamespace(id=run)


def add(store: Store, run: str, **memo: Any) -> None:
    RunFiles(store, run, sealing.run_key(KEY, run)).create("spec", Submission(run, {}, {}, "", {}, "/", memo=memo))
    store.put(f"runs/{run}/blocks/each/0.1", b"x" * 100)


def kept(store: Store) -> set[str]:
    return {info.name.split("/")[1] for info in store.list("runs")}


def remover(store: Store, *still: str, seconds: float = 30 * DAY) -> Retention:
    client: Any = Temporal(*still)
    return Retention(client, Runs(TemporalRuns(client), store, KEY, "treadle"), Entries(store, KEY), seconds)


async def test_triggered_runs_that_are_long_over_are_removed_and_no_others(tmp_path: Path) -> None:
    store = Store.open(tmp_path.as_uri())
    for run in ("etl.live.1", "etl.live.2"):
        add(store, run, trigger="etl.live")
    add(store, "by-hand")
    wanted = remover(store, "etl.live.2")
    assert await wanted.remove(time.time() + 29 * DAY) == 0
    assert kept(store) == {"etl.live.1", "etl.live.2", "by-hand"}
    assert await wanted.remove(time.time() + 31 * DAY) == 1
    assert kept(store) == {"etl.live.2", "by-hand"}


async def test_a_round_removes_a_bounded_number_of_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "MOST", 2)
    store = Store.open(tmp_path.as_uri())
    for number in range(5):
        add(store, f"etl.live.{number}", trigger="etl.live")
    later = time.time() + 31 * DAY
    assert [await remover(store).remove(later) for _ in range(4)] == [2, 2, 1, 0]


async def test_runs_of_another_deployment_stay(tmp_path: Path) -> None:
    store = Store.open(tmp_path.as_uri())
    RunFiles(store, "a.b.1", sealing.run_key(b"o" * 32, "a.b.1")).create(
        "spec", Submission("a.b.1", {}, {}, "", {}, "/", memo={"trigger": "a.b"})
    )
    assert await remover(store).remove(time.time() + 31 * DAY) == 0
    assert kept(store) == {"a.b.1"}


def test_retention_is_a_duration_of_the_profile_or_never() -> None:
    assert Profile().triggers.retention == 30 * DAY
    assert Profile.model_validate({"triggers": {"retention": "7d"}}).triggers.retention == 7 * DAY
    assert Profile.model_validate({"triggers": {"retention": "never"}}).triggers.retention == "never"
    for wrong in ("59m", "soon", 5):
        with pytest.raises(ValueError, match="retention"):
            Profile.model_validate({"triggers": {"retention": wrong}})


async def test_the_server_says_which_triggered_runs_are_open(tmp_path: Path) -> None:
    async with service(Home(tmp_path / "home")) as here:
        await ensure_search_attribute(here.client)
        add(here.site.store, "etl.live.1", trigger="etl.live")
        wanted = Retention(here.client, here.runs, Entries(here.site.store, here.site.key), 30 * DAY)
        assert await wanted.remove(time.time() + 31 * DAY) == 0, "sealed by another deployment"
        files = RunFiles(here.site.store, "etl.live.2", sealing.run_key(here.site.key, "etl.live.2"))
        files.create("spec", Submission("etl.live.2", {}, {}, "", {}, "/", memo={"trigger": "etl.live"}))
        assert await wanted.remove(time.time() + 31 * DAY) == 1
