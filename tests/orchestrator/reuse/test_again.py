"""A stage is taken back with all stages after it: exactly these run again."""

from __future__ import annotations

import contextlib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from orchestrator.broken_runs import Broken, Done, failure, values
from orchestrator.conftest import Breaking
from orchestrator.record_histories import mapped, spec

from treadle.client.testing.faults import CrashingStore
from treadle.orchestrator.dispatcher.ledger.ledger import Closed, Fenced, Ledger
from treadle.orchestrator.plan.plan import Plan
from treadle.orchestrator.reuse.stage_rerun import following, take_back
from treadle.primitives.errors import StoreError, UsageError

FOUR = {"range": 4, "partitions": 4}


def chain(flag: Path, **more: Any) -> dict[str, Any]:
    """first -> second -> last, which fails while the flag is missing. `aside` reads the first too."""
    return spec(
        first=mapped(FOUR),
        second=mapped("first", "more", needs=["first"]),
        aside=mapped("first", "more", needs=["first"]),
        last=mapped("second", "needs_flag_later", needs=["second", "aside"], **{"with": {"flag": str(flag)}}),
        **more,
    )


def segments(done: Counter[Done]) -> set[str]:
    return {segment for segment, _ in done}


def back(run: Broken, stage: str, resumption: int = 2) -> list[str]:
    opened = run.engine(run.executor).site.open(run.run)
    return take_back(opened.files, opened.plan, stage, resumption, opened.site.files)


@pytest.fixture
def failed(breaking: Breaking, tmp_path: Path) -> Broken:
    """A run in which `last` failed, and which can resume."""
    flag = tmp_path / "flag"
    run = breaking(chain(flag))
    found, _ = run.go()
    assert failure(found) == "user error"
    flag.touch()
    return run


@pytest.mark.parametrize(
    ("stage", "again"),
    [
        ("first", {"first", "second", "aside", "last"}),
        ("second", {"second", "last"}),
        ("aside", {"aside", "last"}),
    ],
)
def test_exactly_a_stage_and_its_successors_rerun(failed: Broken, stage: str, again: set[str]) -> None:
    assert set(back(failed, stage)) == again
    found, done = failed.go(resumption=2)
    assert segments(done) == again
    assert values(found, "last") == [[2], [3], [4], [5]]
    assert not [one for one, times in done.items() if times > 1]


def test_reset_stage_is_committed_once_and_stays(failed: Broken) -> None:
    back(failed, "second")
    failed.go(resumption=2)
    found, done = failed.go(resumption=3)
    assert not done
    assert values(found, "last") == [[2], [3], [4], [5]]


def test_a_dispatcher_of_before_is_fenced(failed: Broken) -> None:
    opened = failed.engine(failed.executor).site.open(failed.run)
    stalled = Ledger(failed.store, opened.files.segment("second"), opened.files.key)
    back(failed, "second")
    stalled.append(Closed("second"))
    with pytest.raises(Fenced):
        stalled.flush()


@pytest.mark.parametrize("write", [1, 3, 6])
def test_a_command_that_is_cut_off_leaves_a_run_that_can_go_on(failed: Broken, write: int) -> None:
    """The stages taken back by then run again, over the earlier data."""
    opened = failed.engine(failed.executor, CrashingStore(failed.store, write, after=write == 3)).site.open(failed.run)
    with contextlib.suppress(StoreError):
        take_back(opened.files, opened.plan, "first", 2, opened.site.files)
    found, done = failed.go(resumption=2)
    assert values(found, "last") == [[2], [3], [4], [5]]
    assert segments(done) <= {"first", "second", "aside", "last"}


def test_a_loop_that_is_taken_back_begins_with_its_first_iteration(breaking: Breaking, tmp_path: Path) -> None:
    flag = tmp_path / "flag"
    turns = {
        "type": "loop",
        "state": {"data": "start"},
        "maxIterations": 2,
        "stages": {"step": mapped("state.data", "more")},
        "next": {"data": "step"},
    }
    end = mapped("turns.state.data", "needs_flag_later", needs=["turns"], **{"with": {"flag": str(flag)}})
    run = breaking(spec(start=mapped(FOUR), turns=turns, end=end))
    assert failure(run.go()[0]) == "user error"
    flag.touch()
    assert back(run, "turns") == ["turns", "end"]
    found, done = run.go(resumption=2)
    assert segments(done) == {"turns-1/step", "turns-2/step", "end"}
    assert values(found, "end") == [[3], [4], [5], [6]]


def test_files_of_a_stage_that_is_taken_back_are_written_again(breaking: Breaking, tmp_path: Path) -> None:
    flag = tmp_path / "flag"
    out = tmp_path / "out"
    document = chain(flag, lines=mapped("second", output={"uri": str(out), "format": "jsonl"}))
    document["stages"]["last"]["needs"].append("lines")
    run = breaking(document)
    assert failure(run.go()[0]) == "user error"
    assert (out / "_manifest.json").exists()
    flag.touch()
    back(run, "second")
    assert not list(out.iterdir())
    _, done = run.go(resumption=2)
    assert segments(done) == {"second", "lines", "last"}
    assert (out / "_manifest.json").exists()


def test_a_stage_that_is_not_there_is_refused_by_name(failed: Broken) -> None:
    graph = failed.engine(failed.executor).site.open(failed.run).plan.graph
    with pytest.raises(UsageError, match="there is no stage 'third' to begin from") as refused:
        following(graph, "third")
    assert "first, aside, second, last" in refused.value.hint


# -- sub-workflows ---------------------------------------------------------------------------------------------------


@pytest.fixture
def nested(breaking: Breaking, tmp_path: Path) -> Broken:
    """first -> sub, which has a child of its own -> last, which has failed. It can resume."""
    flag = tmp_path / "flag"
    deep = spec(x=mapped(FOUR, output={"uri": str(tmp_path / "out"), "format": "jsonl"})) | {"name": "deep"}
    inner = spec(
        a=mapped(FOUR),
        deep={"type": "workflow", "uses": deep, "needs": ["a"]},
        b=mapped("a", "more", needs=["deep"]),
    )
    last = mapped("first", "needs_flag_later", needs=["sub"], **{"with": {"flag": str(flag)}})
    run = breaking(spec(first=mapped(FOUR), sub={"type": "workflow", "uses": inner, "needs": ["first"]}, last=last))
    assert failure(run.go()[0]) == "user error"
    flag.touch()
    return run


@pytest.mark.parametrize(
    ("stage", "again", "runs"),
    [
        ("sub", {"a", "x", "b", "last"}, ["sub", "sub-2", "sub-2/deep"]),
        ("sub/deep", {"x", "b", "last"}, ["sub", "sub/deep-2"]),
        ("sub/b", {"b", "last"}, ["sub", "sub/deep"]),
        ("sub/deep/x", {"x", "b", "last"}, ["sub", "sub/deep"]),
    ],
)
def test_a_child_runs_again_as_a_whole_or_from_a_stage_of_it_on(
    nested: Broken, tmp_path: Path, stage: str, again: set[str], runs: list[str]
) -> None:
    back(nested, stage)
    found, done = nested.go(resumption=2)
    assert segments(done) == again
    assert values(found, "last") == [[1], [2], [3], [4]]
    files = nested.engine(nested.executor).site.files
    assert all(files(f"{nested.run}/{run}").find(Plan, "plan") for run in runs)
    assert len(list((tmp_path / "out").glob("part-*"))) == 4
    assert not nested.go(resumption=3)[1]


def test_restarted_child_run_is_the_current_one(nested: Broken) -> None:
    files = nested.engine(nested.executor).site.files(nested.run)
    assert files.children(["sub"]) == {"sub": [f"{nested.run}/sub"]}
    assert back(nested, "first") == ["first", "sub", "last"]
    assert back(nested, "sub") == ["sub", "last"]
    assert files.child("sub") == f"{nested.run}/sub-3"
    assert segments(nested.go(resumption=2)[1]) == {"first", "a", "x", "b", "last"}


@pytest.mark.parametrize(
    ("stage", "text"),
    [
        ("sub/none", "there is no stage 'none'"),
        ("none/b", "there is no stage 'none'"),
        ("first/b", "first is no workflow"),
    ],
)
def test_a_path_that_leads_nowhere_changes_nothing(nested: Broken, stage: str, text: str) -> None:
    with pytest.raises(UsageError, match=text):
        back(nested, stage)
    assert segments(nested.go(resumption=2)[1]) == {"last"}
