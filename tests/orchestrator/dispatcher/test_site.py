"""A driver's view of its runs and of other hosts: the same for all threads, and never stale."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from orchestrator.broken_runs import values
from orchestrator.conftest import Breaking
from orchestrator.dispatcher.test_loop import loop
from orchestrator.record_histories import mapped, spec

from treadle.orchestrator.dispatcher.orders import NodeOrder
from treadle.orchestrator.dispatcher.segments.execute_segment import Desk, run_segment
from treadle.orchestrator.plan.plan import Segment
from treadle.orchestrator.run_store.run_files import Manifest, RunFiles
from treadle.primitives.stores.store import Store


def test_threads_that_open_a_run_at_once_get_the_same(breaking: Breaking, monkeypatch: pytest.MonkeyPatch) -> None:
    run = breaking(spec(only=mapped({"range": 4})))
    site = run.engine(run.executor).site
    files, together = site.files, threading.Barrier(2)

    def at_once(name: str) -> RunFiles:
        together.wait(60)
        return files(name)

    monkeypatch.setattr(site, "files", at_once)
    with ThreadPoolExecutor(2) as threads:
        first, second = threads.map(site.open, [run.run, run.run])
    assert first is second


def test_a_manifest_that_another_thread_forgets_meanwhile_is_read_all_the_same(breaking: Breaking) -> None:
    class Forgetful(dict[str, Manifest]):
        def __setitem__(self, segment: str, manifest: Manifest) -> None:
            """Another thread acts at this moment."""

    run = breaking(spec(only=mapped({"range": 4})))
    run.go()
    here = run.engine(run.executor).site.open(run.run)
    here._manifests = Forgetful()  # private: the test simulates a forgetful cache
    assert here.manifest("only").segment == "only"


def test_readers_after_a_loop_find_blocks_recomputed_by_another_driver(breaking: Breaking) -> None:
    run = breaking(loop())
    run.go()
    site = run.engine(run.executor).site
    site.one_host = False
    here = site.open(run.run)
    here.catch_up(["turns"])
    [segment] = here.loop("turns").data["data"].segments
    known = here.manifest(segment)
    newer = replace(known, summary=replace(known.summary, rows=known.summary.rows + 1))
    here.files.create_manifest(newer, here.files.generation(segment) + 1)
    assert here.manifest(segment) == known
    here.catch_up(["turns"])
    assert here.manifest(segment) == newer


def test_loop_reads_blocks_recomputed_by_another_driver_at_once(breaking: Breaking) -> None:
    run = breaking(loop())
    mine, other = run.engine(run.executor), run.engine(run.executor)
    mine.site.one_host = False
    wanted = values(run.harness.result(mine, run.run), "end")
    lost = [one.block for one in mine.site.open(run.run).manifest("start").outcomes if one.block is not None]
    for block in lost:
        run.damage(block, "delete")
    there = other.site.open(run.run)
    start = there.plan.graph.node("start")
    assert isinstance(start, Segment)
    run.harness.wait(
        run_segment(there, start, NodeOrder(run.run, start.id, repair=tuple(block.name for block in lost)), Desk())
    )
    for node in ("turns", "end"):
        run.store.delete_prefix(f"runs/{run.run}/segments/{node}")
    assert values(run.harness.result(mine, run.run), "end") == wanted
    assert not list(run.store.list(f"runs/{run.run}/attempts/turns-1"))


def test_host_lost_during_a_count_disturbs_no_other(slots: Any, tmp_path: Path) -> None:
    harness, _ = slots
    (hosts,) = harness.hosts(Store.open(f"file://{tmp_path}/store"), [tmp_path / "host"], ["tcp://127.0.0.1:0"])

    class Now(float):
        """Another thread acts in between."""

        def __gt__(self, other: float, /) -> bool:
            hosts.lost("second")
            return super().__gt__(other)

    hosts._lost["first"] = Now(time.monotonic())  # private: the race needs a change during the iteration
    assert hosts.lost_lately() == 1
    assert set(hosts._lost) == {"first", "second"}
