"""What a stage looks like while it runs."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from treadle.executors.program import Discard, Keep
from treadle.orchestrator.cli.view import picture
from treadle.orchestrator.cli.view.picture import Painter, _bare, _from_beat
from treadle.orchestrator.client.views import NodeView, State
from treadle.orchestrator.dispatcher.orders import Progress
from treadle.orchestrator.plan import ItemsFeed, Policy, Segment

SEGMENT = Segment("a", ("a",), ItemsFeed((), ()), (), Keep(), Policy(), partitions=4, put="host", estimate=99)


def test_stage_under_way_says_where_its_blocks_go_as_before_and_after() -> None:
    beat = NodeView("a", 2, (Progress("a", 4, 1, 0, 1, 2, 77),), "", "")
    shown = _from_beat(SEGMENT, beat)
    assert (shown.state, shown.committed, shown.running, shown.bytes, shown.attempt) == ("running", 1, 2, 77, 2)
    assert (shown.place, shown.estimate) == (_bare(SEGMENT, "waiting").place, 99) == ("host", 99)


def test_driver_that_begins_again_is_told_before_its_first_heartbeat() -> None:
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
    monkeypatch.setattr(picture, "_from_ledger", lambda *_: known)
    nothing: Any = None
    assert Painter(nothing, nothing)._unfinished(SEGMENT, {}, "", run).state == shown
