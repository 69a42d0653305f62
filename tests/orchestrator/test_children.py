"""A child run's submission, its place in the store, and its parent's scheduler. Without server or store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from orchestrator.planner.test_planner import plan

from treadle.orchestrator.plan.plan import Child, Graph, Plan, Segment
from treadle.orchestrator.planner.placement import PlacementRefused
from treadle.orchestrator.run_store.child_runs import child_submission, keep_child
from treadle.orchestrator.run_store.run_files import NO_CACHE, RunFiles, Submission
from treadle.orchestrator.run_store.uri_policy import Forbidden, check_allowed
from treadle.orchestrator.scheduler.instructions import (
    Complete,
    Fail,
    Hold,
    NodeDone,
    NodeFailed,
    Pause,
    Problem,
    Release,
    RunNode,
    Stop,
    Summary,
    Unpause,
)
from treadle.orchestrator.scheduler.scheduler import Scheduler
from treadle.primitives import sealing
from treadle.primitives.errors import CorruptError, UsageError
from treadle.primitives.run_paths import child_run, parent_run, run_folder, stage_of
from treadle.primitives.stores.shared_memory import HostFolder
from treadle.primitives.stores.store import Store

KEY = b"k" * 32
MAP = {"type": "map", "input": {"uri": "${{ inputs.source }}", "format": "text"}, "uses": "m:f"}
INNER = {
    "apiVersion": "treadle/v1",
    "name": "inner",
    "inputs": {"source": {"type": "uri", "default": "in/*.txt"}, "n": {"type": "integer"}},
    "stages": {"a": MAP, "b": {**MAP, "output": {"uri": "out/${{ inputs.n }}", "format": "text"}}},
}
STARTED = "2026-01-01T00:00:00Z"
COPY = "events/0123456789abcdef"


def submission(given: dict[str, Any], inputs: dict[str, Any] | None = None, **more: Any) -> Submission:
    stage = {"type": "workflow", "uses": INNER, "with": given}
    spec = {"apiVersion": "treadle/v1", "name": "outer", "stages": {"sub": stage}, **more}
    return Submission("r", spec, inputs or {}, "digest", {"m:f": {}}, "/srv/project", "local")


# -- names -----------------------------------------------------------------------------------------------------------


def test_names_of_children() -> None:
    assert child_run(child_run("r", "sub"), "deep") == "r/sub/deep"
    assert (parent_run("r/sub/deep"), stage_of("r/sub/deep"), parent_run("r")) == ("r/sub", "deep", "")
    assert run_folder("r/sub/deep") == "r/_sub/_deep"
    again = child_run(child_run("r", "sub", 2), "deep", 3)
    assert (again, parent_run(again), stage_of(again)) == ("r/sub-2/deep-3", "r/sub-2", "deep")
    assert run_folder(again) == "r/_sub-2/_deep-3"


@pytest.mark.parametrize("stage", ["plan", "spec", "blocks", "segments", "hosts", "sub"])
def test_stage_may_be_called_like_a_folder_of_its_parent(tmp_path: Path, stage: str) -> None:
    store = Store.open(f"file://{tmp_path}")
    for run in ("r", child_run("r", stage)):
        files = RunFiles(store, run, sealing.run_key(KEY, run))
        made = msgspec.structs.replace(submission({}), run=run)
        assert files.create("spec", made)
        store.put(f"{files.prefix}/blocks/a/0", b"x")
    for run in ("r", child_run("r", stage)):
        assert RunFiles(store, run, sealing.run_key(KEY, run)).load(Submission, "spec").run == run


def test_host_knows_children_and_removes_them_alone_or_with_their_parent(tmp_path: Path) -> None:
    host = HostFolder(tmp_path / "host")
    for run in ("r", "r/sub", "r/sub/deep", "s"):
        host.put(f"{run_folder(run)}/segment/0.1", [b"x"])
    assert host.runs() == ["r", "r/sub", "r/sub/deep", "s"]
    host.delete_run("r/sub")
    assert host.runs() == ["r", "s"]
    host.put(f"{run_folder('r/sub')}/segment/0.1", [b"x"])
    host.delete_run("r")
    assert host.runs() == ["s"]


# -- submissions -----------------------------------------------------------------------------------------------------


def test_child_follows_from_its_parent() -> None:
    given = {"n": "${{ stages.before.metrics.n }}", "source": "${{ run.id }}/${{ run.startTime }}"}
    parent = submission(given, defaults={"executor": "far"})
    child = child_submission(parent, STARTED, "r/sub", {"stages": {"before": {"metrics": {"n": 3}}}})
    assert child.run == "r/sub"
    assert child.inputs == {"n": 3, "source": f"r/{STARTED}"}
    assert (child.spec, child.bundle, child.base, child.executor) == (INNER, "digest", "/srv/project", "far")


def test_child_reuses_nothing_when_its_parent_does_not_or_a_user_reran_it() -> None:
    plain = submission({})
    without = msgspec.structs.replace(plain, memo={NO_CACHE: True, "trigger": "t"})
    assert child_submission(plain, STARTED, "r/sub", {}).memo == {}
    assert child_submission(plain, STARTED, "r/sub-2", {}).memo == {NO_CACHE: True}
    assert child_submission(without, STARTED, "r/sub", {}).memo == {NO_CACHE: True}


def test_value_of_a_skipped_stage_counts_as_not_given() -> None:
    child = child_submission(
        submission({"source": "${{ stages.b.outputs.x }}"}), STARTED, "r/sub", {"stages": {"b": None}}
    )
    assert child.inputs == {"n": None, "source": "in/*.txt"}


def test_events_that_were_copied_for_the_parent_are_copied_for_the_child(tmp_path: Path) -> None:
    store = Store.open(f"file://{tmp_path}")
    parent, files = (RunFiles(store, run, sealing.run_key(KEY, run)) for run in ("r", "r/sub"))
    parent.create_bytes(COPY, b"records")
    events = {"kafka": {"connection": "c", "topic": "t", "copied": COPY}}
    wanted = msgspec.structs.replace(child_submission(submission({}), STARTED, "r/sub", {}), bundle="")
    keep_child(parent, files, msgspec.structs.replace(wanted, inputs={"events": events, "n": 1}))
    assert store.head(f"runs/r/_sub/{COPY}") is not None
    assert bytes(files.load_bytes(COPY)) == b"records"


@pytest.mark.parametrize("name", ["plan", "events/../plan", "../s/plan", "events/0123456789abcdef/../../plan", 3])
def test_lookalike_of_an_event_copy_is_not_handed_over(tmp_path: Path, name: object) -> None:
    store = Store.open(f"file://{tmp_path}")
    parent, files = (RunFiles(store, run, sealing.run_key(KEY, run)) for run in ("r", "r/sub"))
    parent.create_bytes("plan", b"the plan of another run")
    wanted = msgspec.structs.replace(child_submission(submission({}), STARTED, "r/sub", {}), bundle="")
    keep_child(
        parent, files, msgspec.structs.replace(wanted, inputs={"a": {"kafka": {"copied": name}}, "b": {"kafka": 1}})
    )
    assert [info.name for info in store.list("runs/r/_sub")] == ["runs/r/_sub/spec"]


def test_run_of_a_user_has_no_allow_list() -> None:
    """So that runs from before the field existed keep their digest."""
    assert b"allow" not in msgspec.msgpack.encode(submission({}))


def test_restarted_child_keeps_the_allow_list_of_its_event() -> None:
    inner = {**INNER, "stages": {"b": {**MAP, "output": {"uri": "out/${{ run.id }}", "format": "text"}}}}
    stage = {"type": "workflow", "uses": inner}
    parent = msgspec.structs.replace(
        submission({}),
        spec={"apiVersion": "treadle/v1", "name": "outer", "stages": {"sub": stage}},
        allow=("/srv/project/in", "/srv/project/out/r/sub"),
    )
    assert child_submission(parent, STARTED, "r/sub", {}).allow == parent.allow
    with pytest.raises(Forbidden, match="run r/sub-2 would touch 'out/r/sub-2'"):
        child_submission(parent, STARTED, "r/sub-2", {})
    by_a_person = msgspec.structs.replace(parent, allow=msgspec.UNSET)
    assert child_submission(by_a_person, STARTED, "r/sub-2", {}).run == "r/sub-2"


def test_child_that_would_begin_differently_does_not_go_on(tmp_path: Path) -> None:
    store = Store.open(f"file://{tmp_path}")
    parent, files = (RunFiles(store, run, sealing.run_key(KEY, run)) for run in ("r", "r/sub"))
    parent.create_bytes("bundle", b"code")
    first = child_submission(submission({"n": 1}), STARTED, "r/sub", {})
    kept = keep_child(parent, files, first)
    assert kept == msgspec.structs.replace(first, shared=kept.shared)
    assert keep_child(parent, files, first) == kept
    with pytest.raises(UsageError, match="r/sub cannot go on: the inputs of it"):
        keep_child(parent, files, child_submission(submission({"n": 2}), STARTED, "r/sub", {}))


def test_children_read_the_code_of_the_run_that_began_it_all(tmp_path: Path) -> None:
    store = Store.open(f"file://{tmp_path}")
    parent, files, deep = (RunFiles(store, run, sealing.run_key(KEY, run)) for run in ("r", "r/sub", "r/sub/deep"))
    parent.create_bytes("bundle", b"code")
    kept = keep_child(parent, files, child_submission(submission({}), STARTED, "r/sub", {}))
    inner = msgspec.structs.replace(submission({}), run="r/sub", shared=kept.shared)
    below = keep_child(files, deep, msgspec.structs.replace(child_submission(inner, STARTED, "r/sub/sub", {}), run="x"))
    assert [info.name for info in store.list() if info.name.endswith("bundle")] == ["runs/r/bundle"]
    assert files.code(kept) == deep.code(below) == b"code"
    store.put("runs/r/bundle", sealing.seal(KEY, "runs/r/bundle", b"other"))
    with pytest.raises(CorruptError, match="is not what it was when the run was submitted"):
        files.code(kept)


# -- planning --------------------------------------------------------------------------------------------------------

COUNTED: dict[str, Any] = {
    "apiVersion": "treadle/v1",
    "name": "counted",
    "inputs": {"n": {"type": "integer", "default": 3}},
    "stages": {
        "a": {"type": "map", "input": {"range": "${{ inputs.n }}"}, "uses": "m:f", "with": {"id": "${{ run.id }}"}}
    },
}


def planned(**stage: Any) -> tuple[Plan, Child]:
    found = plan({"sub": {"type": "workflow", "uses": COUNTED, **stage.pop("sub")}, **stage.pop("more", {})}, **stage)
    node = found.graph.node("sub")
    assert isinstance(node, Child)
    return found, node


def test_child_whose_inputs_are_known_is_planned_with_its_parent() -> None:
    found, node = planned(sub={"with": {"n": 5}}, defaults={"executor": "isolated"})
    assert node.graph is not None
    segment = node.graph.node("a")
    assert isinstance(segment, Segment)
    assert (segment.partitions, segment.policy.executor) == (5, "isolated")
    assert found.inexact == ("sub/a: is given run.id",)
    assert set(found.executors) == {"isolated"}


def test_child_whose_inputs_come_from_a_stage_is_planned_when_it_starts() -> None:
    first = {"type": "workflow", "uses": {**COUNTED, "outputs": {"n": 2}}}
    _, node = planned(sub={"with": {"n": "${{ stages.first.outputs.n }}"}}, more={"first": first})
    assert node.graph is None
    assert (node.after, node.paths) == (("first",), ("stages.first.outputs.n",))
    assert node.reasons[-1] == "its stages: a (map)"


def test_executor_that_there_is_not_is_refused_in_a_child_that_cannot_be_planned_yet() -> None:
    far = {**COUNTED["stages"]["a"], "executor": "far"}
    deep = {**COUNTED, "stages": {"a": far}}
    middle = {**COUNTED, "stages": {"deep": {"type": "workflow", "uses": deep, "with": {"n": "${{ inputs.n }}"}}}}
    first = {"type": "workflow", "uses": {**COUNTED, "outputs": {"n": 2}}}
    with pytest.raises(PlacementRefused, match="there is no executor 'far' here") as refused:
        planned(sub={"uses": middle, "with": {"n": "${{ stages.first.outputs.n }}"}}, more={"first": first})
    assert refused.value.paths[0] == ("stages", "sub", "uses", "stages", "deep", "uses", "stages", "a", "executor")


def test_unplannable_child_is_refused_unless_a_stage_precedes_it() -> None:
    reads = {**INNER, "inputs": {}, "stages": {"a": {**MAP, "input": {"uri": "absent/*", "format": "text"}}}}
    with pytest.raises(UsageError, match=r"^sub: .*absent"):
        plan({"sub": {"type": "workflow", "uses": reads}})
    first = {"type": "workflow", "uses": COUNTED}
    found = plan({"first": first, "sub": {"type": "workflow", "uses": reads, "needs": ["first"]}}).graph.node("sub")
    assert isinstance(found, Child)
    assert found.graph is None
    assert "now it could not be" in found.reasons[0]


# -- addresses of triggered runs -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "refused"),
    [
        ({"source": "data/x.txt", "n": 1}, ""),
        ({"source": "${{ inputs.day }}/x.txt", "n": 1}, ""),
        ({"source": "${{ inputs.far }}", "n": 1}, "'/etc/passwd'"),
        ({"source": "../x.txt", "n": 1}, "'../x.txt'"),
        ({"source": "${{ stages.a.outputs.x }}", "n": 1}, "its input source cannot be known"),
        ({"n": "${{ stages.a.outputs.x }}"}, "the URI 'out/"),
    ],
)
def test_children_of_triggered_runs_read_only_allowed_places(given: dict[str, Any], refused: str) -> None:
    parent = submission(given, {"day": "monday", "far": "/etc/passwd"})
    if not refused:
        check_allowed(None, parent)
        return
    with pytest.raises(Forbidden, match=refused.replace("..", r"\.\.")):
        check_allowed(None, parent)


# -- scheduling ------------------------------------------------------------------------------------------------------

CHILD = Child("sub", ("sub",), "inner")
AFTER = Child(
    "after", ("after",), "inner", after=("sub",), when="stages.sub.outputs.n > 1", paths=("stages.sub.outputs.n",)
)
BESIDE = Child("beside", ("beside",), "inner")


def test_outputs_of_a_child_are_visible_to_its_successors() -> None:
    scheduler = Scheduler(Graph((CHILD, AFTER)), {})
    assert scheduler.start() == [RunNode("sub", {})]
    (run,) = scheduler.handle(NodeDone("sub", Summary(outputs={"n": 2})))
    assert isinstance(run, RunNode)
    assert run.bindings["stages"]["sub"]["outputs"] == {"n": 2}
    assert scheduler.handle(NodeDone("after", Summary())) == [Complete()]


def test_pause_holds_a_child_and_unpause_releases_it() -> None:
    scheduler = Scheduler(Graph((CHILD, AFTER)), {})
    scheduler.start()
    assert scheduler.handle(Pause()) == [Hold("sub")]
    assert scheduler.running == ("sub",)
    assert scheduler.handle(Unpause()) == [Release("sub")]
    assert scheduler.handle(NodeDone("sub", Summary(outputs={"n": 1}))) == [Complete()]
    assert scheduler.skipped == ("after",)


def test_child_that_ends_while_it_is_held_starts_nothing() -> None:
    scheduler = Scheduler(Graph((CHILD, AFTER)), {})
    scheduler.start()
    scheduler.handle(Pause())
    assert scheduler.handle(NodeDone("sub", Summary(outputs={"n": 2}))) == []
    (run,) = scheduler.handle(Unpause())
    assert isinstance(run, RunNode)


def test_failure_stops_children_even_while_they_are_held() -> None:
    scheduler = Scheduler(Graph((CHILD, BESIDE)), {})
    scheduler.start()
    scheduler.handle(Pause())
    problem = Problem("user error", "no", "sub")
    assert scheduler.handle(NodeFailed("sub", problem)) == [Stop("beside")]
    assert scheduler.handle(NodeFailed("beside", Problem("user error", "stopped", "beside"))) == [Fail(problem)]
