"""Generates shuffles, in all forms that the shapes of their inputs allow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

from .dataset_shapes import DatasetScope, DatasetShape
from .generator import Draws
from .stages import Stage, some_input


def shuffle_stage(draws: Draws, place: DatasetScope) -> tuple[Stage, DatasetShape]:
    references, shape = _inputs(draws, place, *some_input(draws, place))
    return _shuffle(draws, place, references, shape, _by(draws, shape))


def by_key_stage(draws: Draws, place: DatasetScope, pairs: str) -> tuple[Stage, DatasetShape]:
    """A shuffle of these pairs, and perhaps of others."""
    references, shape = _inputs(draws, place, pairs, place.datasets[pairs])
    return _shuffle(draws, place, references, shape, "key" if shape.keyed else _by(draws, shape))


def _shuffle(
    draws: Draws, place: DatasetScope, references: Any, shape: DatasetShape, by: Any
) -> tuple[Stage, DatasetShape]:
    stage: Stage = {"type": "shuffle", "input": references, "by": by}
    if draws.maybe() or shape.dynamic:
        stage["partitions"] = draws.number(1, 5)
    if draws.maybe():
        stage["sort"] = True
    if stage["by"] == "key" and draws.maybe():
        stage["combine"] = draws.function(draws.pick(["nest", "add", "append"]))
    if draws.maybe():
        _range(draws, place, stage)
    grouped: Literal["one", "several"] = "several" if isinstance(references, list) and len(references) > 1 else "one"
    return stage, DatasetShape(shape.kind, shape.records, grouped)


def _inputs(draws: Draws, place: DatasetScope, name: Any, shape: DatasetShape) -> tuple[Any, DatasetShape]:
    """This input alone, or with others of its kind."""
    alike = [other for other, its in place.with_kind(shape.kind) if other != name]
    if not (isinstance(name, str) and alike and draws.number(0, 2) == 2):
        return name, replace(shape, dynamic=False)
    chosen = [name, draws.pick(alike)]
    more = [other for other in alike if other not in chosen]
    if more and draws.rarely():
        chosen.append(draws.pick(more))
    return chosen, _common([place.datasets.get(each, shape) for each in chosen])


def _common(shapes: Sequence[DatasetShape]) -> DatasetShape:
    records = {shape.records for shape in shapes}
    return DatasetShape(
        shapes[0].kind, records.pop() if len(records) == 1 else "any", dynamic=any(s.dynamic for s in shapes)
    )


def _by(draws: Draws, shape: DatasetShape) -> Any:
    functions = ["key_of", "small_key_of", "hot_key_of", *(["no_key_of"] if draws.failing and draws.rarely() else [])]
    ways: list[Any] = [draws.function(name) for name in functions]
    if shape.keyed:
        ways = ["key"] * 6 + ways
    if shape.columns:
        ways = [["k"], ["v", "k"], ["k"], *ways]
    if shape.kind == "table":
        ways.append(draws.function("keys_of_table"))
    if shape.kind == "array":
        ways = [draws.function("keys_of_array"), *ways]
    return draws.pick(ways)


def _range(draws: Draws, place: DatasetScope, stage: Stage) -> None:
    """Boundaries that are literal, computed by another stage, or sampled."""
    partitioner: dict[str, Any] = {"type": "range"}
    cuts = [(name, count) for name, count in place.cuts if name not in (stage["input"], *stage["input"])]
    how = draws.pick(["sampled", "written", "computed"])
    if how == "written":
        partitioner["boundaries"] = draws.pick([[1], [], [0, 2, 500], [1, 1], [None, 3, "a"]])
        stage["partitions"] = len(partitioner["boundaries"]) + 1
    elif how == "computed" and cuts:
        name, count = draws.pick(cuts)
        partitioner["boundaries"] = name
        stage["partitions"] = count + 1
    stage["partitioner"] = partitioner


def cuts_stages(draws: Draws, place: DatasetScope) -> tuple[dict[str, Stage], str, int]:
    """Two stages: a reduce that computes boundaries, and its broadcast. Returns them with the broadcast's name and the
    number of boundaries."""
    given, _ = some_input(draws, place)
    count = draws.number(1, 3)
    reduce, broadcast = draws.name("quantiles"), draws.name("cuts")
    stages: dict[str, Stage] = {
        reduce: {
            "type": "reduce",
            "input": given,
            "per": "all",
            "uses": draws.function("boundaries"),
            "with": {"count": count},
        },
        broadcast: {"type": "broadcast", "input": reduce},
    }
    return stages, broadcast, count
