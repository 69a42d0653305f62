"""Generates loops, nested up to two deep, and the list of stages of a document or a loop's body."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from .dataset_shapes import DatasetScope, DatasetShape
from .exchanges import by_key_stage, cuts_stages, shuffle_stage
from .generator import Draws
from .stages import (
    METRICS,
    Stage,
    add_order,
    add_output,
    barrier_stage,
    broadcast_stage,
    exported,
    map_stage,
    pairs_stage,
    per_key_stage,
    reduce_stage,
    some_input,
)

_MAKERS = {
    "map": map_stage,
    "shuffle": shuffle_stage,
    "reduce": reduce_stage,
    "broadcast": broadcast_stage,
    "barrier": barrier_stage,
}
_TYPES = [
    "map",
    "map",
    "keyed",
    "reduce",
    "shuffle",
    "keyed",
    "broadcast",
    "barrier",
    "reduce",
    "loop",
    "keyed",
    "cuts",
]
DEPTH = 2


def add_stages(draws: Draws, place: DatasetScope, count: int) -> dict[str, Stage]:
    """Generate `count` stages, each of which can read the earlier ones; they are added to `place`."""
    stages: dict[str, Stage] = {}
    for _ in range(count):
        kind = draws.pick(_TYPES)
        if kind == "cuts":
            made, name, size = cuts_stages(draws, place)
            stages |= made
            place.cuts.append((name, size))
            place.broadcasts.append(name)
        elif kind == "keyed":
            _keyed(draws, place, stages)
        elif kind == "loop" and len(place.loops) < DEPTH:
            _loop(draws, place, stages)
        elif kind == "barrier" and not any("." not in name for name in place.datasets):
            _plain(draws, place, stages, "map")
        else:
            _plain(draws, place, stages, "map" if kind == "loop" else kind)
    return stages


def _plain(draws: Draws, place: DatasetScope, stages: dict[str, Stage], kind: str) -> None:
    _add(draws, place, stages, kind, *_MAKERS[kind](draws, place))


def _keyed(draws: Draws, place: DatasetScope, stages: dict[str, Stage]) -> None:
    """The three stages of a map-reduce."""
    pairs = _add(draws, place, stages, "map", *pairs_stage(draws, place))
    groups = _add(draws, place, stages, "shuffle", *by_key_stage(draws, place, pairs))
    _add(draws, place, stages, "reduce", *per_key_stage(draws, place, groups))


def _add(
    draws: Draws, place: DatasetScope, stages: dict[str, Stage], kind: str, stage: Stage, shape: DatasetShape
) -> str:
    """Add a stage with the settings that any stage may have; return its name."""
    name = draws.name(kind)
    shape = replace(shape, dynamic=_is_dynamic(stage, place))
    add_order(draws, place, stage)
    if not place.loops and kind not in ("broadcast", "barrier"):
        add_output(draws, name, stage, shape)
    stages[name] = stage
    if kind == "broadcast":
        place.broadcasts.append(name)
    else:
        place.datasets[name] = shape
    metrics = stage.get("metrics", {})
    place.numbers += [f"stages.{name}.metrics.{metric}" for metric in metrics]
    if kind == "reduce" and stage.get("per") == "all":
        place.values.append(f"stages.{name}.value")
    place.siblings.append(name)
    return name


def _is_dynamic(stage: Stage, place: DatasetScope) -> bool:
    given = stage["input"] if isinstance(stage["input"], list) else [stage["input"]]
    inherits = "partitions" not in stage and stage.get("per") != "all"
    read = any(place.datasets[one].dynamic for one in given if isinstance(one, str) and one in place.datasets)
    return "batch" in stage or (inherits and read)


def _loop(draws: Draws, place: DatasetScope, stages: dict[str, Stage]) -> None:
    name = draws.name("loop")
    inside = place.inside(name)
    data, count = (f"{kind}{len(place.loops)}" for kind in ("data", "count"))
    state = _state(draws, place, inside, data, count)
    before = set(inside.datasets)
    body = add_stages(draws, inside, draws.number(1, 3))
    loop: Stage = {
        "type": "loop",
        "state": state,
        "maxIterations": draws.number(1, 3),
        "stages": body,
        "next": _next(draws, state, data, count, inside, before),
    }
    _until(draws, loop, state, count, body)
    add_order(draws, place, loop)
    stages[name] = loop
    if data in state:
        place.datasets[f"{name}.state.{data}"] = inside.datasets[f"state.{data}"]
    if count in state:
        place.numbers.append(f"stages.{name}.state.{count}")
    place.numbers.append(f"stages.{name}.metrics.iterations")
    place.siblings.append(name)
    if data in state and draws.maybe():
        _read_state(draws, place, stages, f"{name}.state.{data}")


def _state(draws: Draws, place: DatasetScope, inside: DatasetScope, data: str, count: str) -> dict[str, Any]:
    """The state of a loop: a dataset, a number, or both."""
    state: dict[str, Any] = {}
    if draws.number(0, 3):
        given, shape = some_input(draws, place)
        if isinstance(given, str):
            state[data] = given
            inside.datasets[f"state.{data}"] = exported(shape)
    if not state or draws.maybe():
        state[count] = draws.pick([0, 1, "${{ 1 + 1 }}"])
        inside.numbers.append(f"state.{count}")
    return state


def _read_state(draws: Draws, place: DatasetScope, stages: dict[str, Stage], reference: str) -> None:
    """Add a stage that reads the last state."""
    name = draws.name("map")
    stages[name] = {
        "type": "map",
        "input": reference,
        "per": "partition",
        "uses": draws.function("gone_through"),
    }
    place.datasets[name] = DatasetShape("objects", "int")
    place.siblings.append(name)


def _next(
    draws: Draws, state: dict[str, Any], data: str, count: str, inside: DatasetScope, before: set[str]
) -> dict[str, Any]:
    following: dict[str, Any] = {}
    if count in state:
        following[count] = f"${{{{ state.{count} + 1 }}}}"
    if data in state:
        shape = inside.datasets[f"state.{data}"]
        made = [name for name, its in inside.datasets.items() if name not in before and _fits(its, shape)]
        if made:
            following[data] = draws.pick(list(reversed(made)))
    return following


def _fits(given: DatasetShape, state: DatasetShape) -> bool:
    return given.kind == state.kind and (state.records == "any" or given.records == state.records)


def _until(draws: Draws, loop: Stage, state: dict[str, Any], count: str, body: dict[str, Stage]) -> None:
    measured = [name for name, stage in body.items() if stage.get("metrics") == METRICS]
    if count in state and draws.maybe():
        loop["until"] = f"state.{count} >= {draws.number(1, 3)}"
    elif measured and draws.maybe():
        loop["until"] = f"has(stages.{measured[0]}.metrics.seen) && stages.{measured[0]}.metrics.seen < 2"
    if "until" in loop and not (draws.failing and draws.rarely()):
        loop["onExhausted"] = "succeed"
