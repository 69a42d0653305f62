"""The display of a stage while it runs."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from treadle.cli.view.watch_output import Pace
from treadle.client import progress
from treadle.client.progress import Painter, _bare, _from_beat  # private: a small unit of the output
from treadle.client.wide_segments import SegmentTaskGroups, sum_of
from treadle.executors.program import Discard, Keep
from treadle.orchestrator.dispatcher.orders import Progress
from treadle.orchestrator.plan.plan import ItemsFeed, Policy, Segment
from treadle.orchestrator.run_requests.run_views import NodeView, RunView, State

SEGMENT = Segment("a", ("a",), ItemsFeed((), ()), (), Keep(), Policy(), partitions=4, put="host", estimate=99)


def test_stage_under_way_says_where_its_blocks_go_as_before_and_after() -> None:
    beat = NodeView("a", 2, (Progress("a", 4, 1, 0, 1, 2, 77),), "", "")
    shown = _from_beat(SEGMENT, beat)
    assert (shown.state, shown.committed, shown.running, shown.bytes, shown.attempt) == ("running", 1, 2, 77, 2)
    assert (shown.place, shown.estimate) == (_bare(SEGMENT, "waiting").place, 99) == ("host", 99)


def test_restarted_driver_is_shown_before_its_first_heartbeat() -> None:
    shown = _from_beat(SEGMENT, NodeView("", 3, (), "", "it fell silent"))
    assert (shown.state, shown.partitions, shown.attempt) == ("running", 4, 3)


def test_stage_that_leaves_no_data_has_no_place_for_it() -> None:
    assert _bare(replace(SEGMENT, tail=Discard()), "waiting").place == ""


@pytest.mark.parametrize(
    ("committed", "run", "shown"),
    [
        (0, "running", "waiting"),
        (1, "running", "running"),
        (1, "paused", "waiting"),
        (1, "failed", "stopped"),
        (0, "failed", "waiting"),
    ],
)
def test_stage_that_follows_another_runs_once_it_has_committed(
    committed: int, run: State, shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = replace(_bare(SEGMENT, "waiting"), committed=committed)
    monkeypatch.setattr(progress, "_from_ledger", lambda *_: known)
    nothing: Any = None
    # private: a state that lasts for a moment only
    assert Painter(nothing, nothing)._unfinished(SEGMENT, {}, "", run).state == shown


def test_nothing_runs_in_a_run_that_was_terminated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_from_ledger", lambda *_: replace(_bare(SEGMENT, "waiting"), committed=1))
    monkeypatch.setattr(progress, "_closed", lambda *_: None)
    files: Any = SimpleNamespace(
        find=lambda *_: SimpleNamespace(graph=SimpleNamespace(nodes=(SEGMENT,))), closed_groups=lambda _: {}
    )
    beat = NodeView("a", 1, (Progress("a", 4, 1, 0, 1, 2, 77),), "", "")
    view = RunView("r", "w", "terminated", datetime.now(UTC), None, 1, (beat,), 9)
    (shown,) = Painter(files, lambda _: files).stages(view)
    assert (shown.state, shown.running, shown.committed) == ("stopped", 0, 1)


def test_repeated_attempts_are_counted_over_all_task_groups() -> None:
    files: Any = SimpleNamespace(closed_groups=lambda _: {})
    groups = SegmentTaskGroups(files)

    def seen(*progress: Progress) -> int:
        beats = [NodeView("a", 1, (one,), "", "") for one in progress]
        return sum_of(SEGMENT, beats, groups).progress[0].retried

    first, second = Progress("a", 2, 1, 0, 3, 1, 0, group=0, total=6), Progress("a", 2, 0, 0, 1, 2, 0, group=1, total=6)
    assert seen(first, second) == 4
    assert seen(replace(second, retried=2)) == 5
    assert groups.retried("a") == 5
    assert seen(Progress("a", 2, 0, 0, 1, 2, 0, group=2, total=6)) == 6
    assert groups.retried("b") == 0


def test_time_that_a_stage_has_waited_does_not_slow_its_pace() -> None:
    pace = Pace()
    stage = _bare(SEGMENT, "waiting")
    running = replace(stage, state="running")
    assert pace.left(stage, 0) is None
    assert pace.left(running, 600) is None
    assert pace.left(replace(running, committed=1), 602) == 6
    assert pace.left(replace(running, committed=2), 604) == 4
