"""Shared objects: a chain of states, each a segment of one partition, from the first state to the value in `outputs`.

    objects.hits.0        the first state
    objects.hits.count    the state after the stage `count`: the state before with the effects of its partitions
    objects.hits          the value for `outputs`

A loop carries the objects that its stages change as datasets of its state. Validation has made sure that all users of
an object that a stage changes are in one order, so the state that a stage reads is known from the plan.
"""

from __future__ import annotations

from typing import Protocol

from treadle.dsl.graph.objects import merged_in, used_objects
from treadle.dsl.model import LoopStage, Settings, Stage
from treadle.dsl.object_model import Object
from treadle.dsl.templates import template_paths
from treadle.executors.program import Call, ObjectState, UsedObject, Value

from ..plan.plan import OBJECTS, EffectsFeed, ItemsFeed, LoopData, NodeData, Shipped, StateData, merged_objects
from .pipeline import Dataset, Pipeline
from .planner import Planner

_ASSUMED_BYTES = 2**16


class StateLevel(Protocol):
    """The part of a level (`lowering.Level`) that objects need."""

    objects: dict[str, Dataset]
    planner: Planner

    @property
    def outer(self) -> StateLevel | None: ...

    def changing(self, name: str) -> list[str]: ...

    def dataset(self, name: str) -> Dataset: ...

    def add(self, flow: Pipeline, node_id: str) -> Dataset: ...


def used(stage: Stage) -> dict[str, UsedObject]:
    """The objects of a stage as arguments of its calls."""
    return {name: UsedObject(_present(name), merges) for name, merges in used_objects(stage).items()}


def settle_states(level: StateLevel, stage: Stage) -> None:
    """Close the flows that change the objects of a stage, before it joins the flow of its input."""
    for name in used_objects(stage):
        state_before(level, name)


def require_objects(level: StateLevel, flow: Pipeline, stage: Stage) -> None:
    """Let the flow read the states from before the stage."""
    for name in used_objects(stage):
        _read_state(flow, name, state_before(level, name))


def state_before(level: StateLevel, name: str) -> Dataset:
    """The present state of an object. A flow that changes it becomes a segment first."""
    here: StateLevel | None = level
    while here is not None:
        for stage in here.changing(name):
            here.dataset(stage)
        if name in here.objects or here.outer is None:
            break
        here = here.outer
    assert here is not None, "the outermost level has no parent"
    if name not in here.objects:
        first = ObjectState(OBJECTS + name, name, create=_creation(here.planner.spec.objects[name]))
        here.objects[name] = _add(here, _empty(), first, f"{OBJECTS}{name}.0", "its first state")
    return here.objects[name]


def apply_effects(level: StateLevel, flow: Pipeline, node_id: str) -> None:
    """After the segment of a flow: the next states of the objects that it changes."""
    for op in flow.ops:
        for name in merged_objects(op):
            before = state_before(level, name)
            after = Pipeline(EffectsFeed(NodeData((node_id,)), op.stage), 1, before.estimate, after={op.stage})
            after.paths = {f"stages.{op.stage}"}
            _read_state(after, name, before)
            fold = ObjectState(OBJECTS + name, name, state=_present(name), source=op.stage)
            reason = f"calls of {name} take effect when {op.stage} is over: once for each partition, in their order"
            level.objects[name] = _add(level, after, fold, f"{OBJECTS}{name}.{op.stage}", reason)


def enter_loop(level: StateLevel, body: StateLevel, loop: LoopStage) -> dict[str, Dataset]:
    """Make the objects that stages of the loop change part of its state; returns them as they are before."""
    before = {OBJECTS + name: state_before(level, name) for name in merged_in(loop)}
    for name in merged_in(loop):
        body.objects[name] = Dataset(StateData(OBJECTS + name), 1, _ASSUMED_BYTES, frozenset())
    return before


def after_iteration(body: StateLevel, loop: LoopStage) -> dict[str, Dataset]:
    """The objects as they are at the end of an iteration."""
    return {OBJECTS + name: state_before(body, name) for name in merged_in(loop)}


def leave_loop(level: StateLevel, loop_id: str, loop: LoopStage) -> None:
    for name in merged_in(loop):
        level.objects[name] = Dataset(LoopData(loop_id, OBJECTS + name), 1, _ASSUMED_BYTES, frozenset({loop_id}))


def report_values(level: StateLevel) -> None:
    """Compute the values that the outputs of the workflow name."""
    named = {path[1] for path in template_paths(level.planner.spec.outputs) if path[0] == "objects"}
    for name in sorted(named):
        flow = _empty()
        _read_state(flow, name, state_before(level, name))
        value = ObjectState(OBJECTS + name, name, state=_present(name), value=True)
        _add(level, flow, value, OBJECTS + name, "its value, for `outputs`")


def _present(name: str) -> Value:
    return Value("${{ " + OBJECTS + name + " }}")


def _creation(declared: Object) -> Call:
    return Call(declared.function, {name: Value(value) for name, value in declared.with_.items()})


def _empty() -> Pipeline:
    return Pipeline(ItemsFeed((), ((0, 0),)), 1, _ASSUMED_BYTES)


def _read_state(flow: Pipeline, name: str, state: Dataset) -> None:
    flow.broadcasts[OBJECTS + name] = Shipped(state.ref, OBJECTS + name)
    flow.data |= state.nodes


def _add(level: StateLevel, flow: Pipeline, op: ObjectState, node_id: str, reason: str) -> Dataset:
    flow.ops.append(op)
    flow.stages.append(op.stage)
    flow.policy = level.planner.policy(Settings())
    flow.reasons.append(reason)
    return level.add(flow, node_id)
