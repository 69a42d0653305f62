"""Generates stages that read one dataset: map, reduce, broadcast, barrier."""

from __future__ import annotations

from typing import Any

from .dataset_shapes import DatasetScope, DatasetShape
from .generator import Draws
from .sources import any_input, text_files

Stage = dict[str, Any]
METRICS = {"seen": "sum", "least": "min", "most": "max"}
_PER_RECORD = {
    "number": DatasetShape("objects", "int"),
    "to_pair": DatasetShape("objects", "pair"),
    "to_skewed_pair": DatasetShape("objects", "pair"),
    "several": DatasetShape("objects", "int"),
    "word": DatasetShape("objects", "str"),
    "measured": DatasetShape("objects", "int"),
    "to_list_pair": DatasetShape("objects", "pair"),
    "listed": DatasetShape("objects", "json"),
    "drawn": DatasetShape("objects", "int"),
    "changing": DatasetShape("objects", "int"),
    "to_nothing": DatasetShape("objects", "json"),
    "to_rows": DatasetShape("objects", "any"),
    "placed": DatasetShape("objects", "json"),
    "same": DatasetShape("objects", "any"),
}
_PER_PARTITION = {
    "counted": DatasetShape("objects", "int"),
    "gone_through": DatasetShape("objects", "int"),
    "to_table": DatasetShape("table", "row"),
    "to_array": DatasetShape("array", "any"),
    "to_frame": DatasetShape("table", "row"),
    "to_float_table": DatasetShape("table", "row"),
    "to_float_array": DatasetShape("array", "any"),
    "measured_partition": DatasetShape("objects", "json"),
    "to_scalar_array": DatasetShape("objects", "any"),
}
_PICKY = ("picky", "picky_late")


def some_input(draws: Draws, place: DatasetScope) -> tuple[Any, DatasetShape]:
    """An existing dataset, or a source."""
    if place.datasets and draws.number(0, 4) < 4:
        name = draws.pick(list(reversed(place.datasets)))
        return name, place.datasets[name]
    return any_input(draws)


# -- map -----------------------------------------------------------------------------------------------------------


def map_stage(draws: Draws, place: DatasetScope) -> tuple[Stage, DatasetShape]:
    given, shape = some_input(draws, place)
    how = draws.pick(["record", "record", "partition", "value", "whole", "picky"])
    if how == "whole":
        stage: Stage = {"type": "map", "input": text_files(draws), "per": "partition", "whole": True}
        return stage | {"uses": draws.function("read_whole")}, DatasetShape("objects", "json")
    if how == "value" and place.broadcasts:
        stage = {"type": "map", "input": given, "uses": draws.function(draws.pick(["with_value", "changing"]))}
        stage["with"] = {"value": f"${{{{ stages.{draws.pick(place.broadcasts)} }}}}"}
        result = DatasetShape("objects", "int")
    elif how == "value":
        stage = {
            "type": "map",
            "input": given,
            "uses": draws.function("with_value"),
            "with": {"value": _value(draws, place)},
        }
        result = DatasetShape("objects", "int")
    elif how == "partition":
        stage, result = _per_partition(draws, given)
    elif how == "picky":
        stage, result = _picky(draws, place, given)
    else:
        stage, result = _per_record(draws, given, shape)
    _batch(draws, stage)
    return stage, result


def pairs_stage(draws: Draws, place: DatasetScope) -> tuple[Stage, DatasetShape]:
    """A map to pairs, for a shuffle by key."""
    given, _ = some_input(draws, place)
    name = draws.pick(["to_pair", "to_skewed_pair", "to_list_pair"])
    return {"type": "map", "input": given, "uses": draws.function(name)}, _PER_RECORD[name]


def _value(draws: Draws, place: DatasetScope) -> Any:
    if place.numbers:
        return {"deep": [f"${{{{ {draws.pick(place.numbers)} }}}}", "and ${{ run.startTime == '' }}"]}
    return [1, {"a": None}]


def _per_record(draws: Draws, given: Any, shape: DatasetShape) -> tuple[Stage, DatasetShape]:
    name = draws.pick(list(_PER_RECORD))
    stage: Stage = {"type": "map", "input": given, "uses": draws.function(name)}
    if name == "listed":
        stage["flat"] = True
    if name == "measured":
        stage["metrics"] = METRICS
    if name == "same":
        return stage, DatasetShape("objects", shape.records)
    return stage, _PER_RECORD[name]


def _per_partition(draws: Draws, given: Any) -> tuple[Stage, DatasetShape]:
    name = draws.pick(list(_PER_PARTITION))
    stage: Stage = {"type": "map", "input": given, "per": "partition", "uses": draws.function(name)}
    if name == "measured_partition":
        stage |= {"metrics": METRICS, "flat": draws.maybe()}
    return stage, _PER_PARTITION[name]


def _picky(draws: Draws, place: DatasetScope, given: Any) -> tuple[Stage, DatasetShape]:
    """A map with failures: tolerated, too many, or none allowed."""
    if not draws.failing:
        return {"type": "map", "input": given, "uses": draws.function("number")}, DatasetShape("objects", "int")
    stage: Stage = {"type": "map", "input": given, "uses": draws.function(draws.pick(_PICKY))}
    if draws.rarely():
        stage |= {"per": "partition", "uses": draws.function("picky_partition")}
    tolerated = draws.pick(["100%", 1000, "50%", 1, "0.5%", 0, None])
    if tolerated is not None:
        stage["toleratedFailures"] = tolerated
        if tolerated and not place.loops and draws.maybe():
            stage["failedItems"] = {"uri": f"failed/${{{{ run.id }}}}/{draws.name('f')}"}
    if draws.rarely():
        stage["retry"] = {"nonRetryableErrorTypes": ["PickyError"], "initialInterval": "10ms"}
    return stage, DatasetShape("objects", "int")


def _batch(draws: Draws, stage: Stage) -> None:
    if draws.rarely():
        stage["batch"] = draws.pick(
            [{"maxItems": 2}, {"maxItems": 1}, {"maxBytes": "20B"}, {"maxItems": 3, "maxBytes": "40B"}]
        )


# -- reduce --------------------------------------------------------------------------------------------------------


def reduce_stage(draws: Draws, place: DatasetScope) -> tuple[Stage, DatasetShape]:
    grouped = [name for name, shape in place.datasets.items() if shape.grouped]
    if grouped and draws.number(0, 2):
        return per_key_stage(draws, place, draws.pick(list(reversed(grouped))))
    given, _ = some_input(draws, place)
    per = draws.pick(["all", "all", "partition"])
    stage: Stage = {"type": "reduce", "input": given, "per": per}
    result = DatasetShape("objects", "any")
    if draws.maybe():
        _fold(draws, place, stage)
        return stage, result
    uses = draws.pick(["of_all", "of_partitions", "with", "measured"])
    if uses == "with" and place.broadcasts:
        stage |= {"uses": draws.function("of_all_with")}
        stage["with"] = {"value": f"${{{{ stages.{draws.pick(place.broadcasts)} }}}}"}
    elif uses == "measured" and per == "all":
        stage |= {"uses": draws.function("of_all_measured"), "metrics": {"size": draws.pick(["integer", "number"])}}
    elif uses == "measured":
        stage |= {"uses": draws.function("of_partition_measured"), "metrics": METRICS}
    else:
        stage["uses"] = draws.function("of_partitions" if uses == "of_partitions" else "of_all")
    return stage, result


def _fold(draws: Draws, place: DatasetScope, stage: Stage) -> None:
    """Add `combine` with settings that it allows."""
    combines = ["nest", "add", "append", *(["picky_add"] if draws.failing and draws.rarely() else [])]
    stage["combine"] = draws.function(draws.pick(combines))
    if stage["per"] == "all" and draws.maybe():
        stage["fanIn"] = draws.number(2, 3)
    if draws.maybe():
        stage["initial"] = draws.pick([0, None, [], "first"])
    finish = draws.pick(["", "finished", "finished_with", "finished_and_measured"])
    if finish == "finished_with":
        value = draws.pick([f"${{{{ stages.{name} }}}}" for name in place.broadcasts] or [3])
        stage |= {"finish": draws.function(finish), "with": {"value": value}}
    elif finish == "finished_and_measured":
        kind = "integer" if stage["per"] == "all" else "sum"
        stage |= {"finish": draws.function(finish), "metrics": {"size": kind}}
    elif finish:
        stage["finish"] = draws.function(finish)


def per_key_stage(draws: Draws, place: DatasetScope, given: str) -> tuple[Stage, DatasetShape]:
    """A reduce per key over a shuffle, or over a barrier after one."""
    shape = place.datasets[given]
    stage: Stage = {"type": "reduce", "input": given, "per": "key"}
    if shape.grouped == "one" and draws.maybe():
        _fold(draws, place, stage)
        return stage, DatasetShape("objects", "pair")
    uses = [
        "of_key",
        "of_key_measured",
        "first_of_key",
        *(["picky_of_key"] if draws.failing and draws.rarely() else []),
    ]
    name = draws.pick(uses)
    stage["uses"] = draws.function(name)
    if name == "of_key_measured":
        stage["metrics"] = METRICS
    if name == "of_key" and place.broadcasts and draws.maybe():
        stage |= {"uses": draws.function("of_key_with")}
        stage["with"] = {"value": f"${{{{ stages.{draws.pick(place.broadcasts)} }}}}"}
    return stage, DatasetShape("objects", "pair")


# -- broadcast, barrier --------------------------------------------------------------------------------------------


def broadcast_stage(draws: Draws, place: DatasetScope) -> tuple[Stage, DatasetShape]:
    given, shape = some_input(draws, place)
    return {"type": "broadcast", "input": given}, shape


def barrier_stage(draws: Draws, place: DatasetScope) -> tuple[Stage, DatasetShape]:
    """A barrier after a stage; the caller ensures that one exists."""
    names = [name for name in place.datasets if "." not in name]
    name = draws.pick(list(reversed(names)))
    return {"type": "barrier", "input": name}, place.datasets[name]


# -- settings of any stage ------------------------------------------------------------------------------------------


def add_output(draws: Draws, name: str, stage: Stage, shape: DatasetShape) -> None:
    """Add an output in a format that can hold the records."""
    formats = _FORMATS.get((shape.kind, shape.records), [])
    if not formats or draws.number(0, 2) < 2:
        return
    output = {"uri": f"out/${{{{ run.id }}}}/{name}", **draws.pick(formats)}
    stage["output"] = output


_FORMATS: dict[tuple[str, str], list[dict[str, Any]]] = {
    ("objects", "int"): [
        {"format": "jsonl"},
        {"format": "csv", "header": False},
        {"format": "parquet", "columns": {"n": "int64"}},
    ],
    ("objects", "str"): [{"format": "text"}, {"format": "jsonl"}, {"format": "csv", "columns": {"s": "string"}}],
    ("objects", "json"): [{"format": "jsonl"}],
    ("table", "row"): [{"format": "parquet"}, {"format": "csv", "delimiter": "\t"}, {"format": "parquet"}],
    ("array", "any"): [{"format": "npy"}, {"format": "fixed"}, {"format": "csv"}],
}
"""`json` and arrays may hold values that their format rejects: then the run must fail."""


def add_order(draws: Draws, place: DatasetScope, stage: Stage) -> None:
    """Add `needs` and `when`."""
    if place.siblings and draws.rarely():
        stage["needs"] = [draws.pick(place.siblings)]
    if place.numbers and draws.rarely():
        number = draws.pick(place.numbers)
        stage["when"] = draws.pick([f"has({number})", f"has({number}) && {number} > 2", f"{number} < 5", "1 > 2"])


def exported(shape: DatasetShape) -> DatasetShape:
    """The shape as a loop's state: later partitions may have any shape."""
    return DatasetShape(shape.kind, "any" if shape.kind == "objects" else shape.records, dynamic=True)
