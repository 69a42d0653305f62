"""Generates inputs of stages: literal records, ranges, and files of every format in tiny splits."""

from __future__ import annotations

import gzip
import io
import json
from typing import Any

from hypothesis import strategies as st

from .dataset_shapes import DatasetShape, Records
from .generator import Draws

_LINES = st.lists(st.text(st.sampled_from("ab é,\t0"), max_size=6), max_size=8)
_NUMBERS = st.lists(st.integers(-3, 12), max_size=12)
_KEYS = st.one_of(st.none(), st.integers(-1, 3), st.sampled_from(["a", "b", ""]), st.booleans(), st.just(1.0))


def any_input(draws: Draws) -> tuple[Any, DatasetShape]:
    """A value for `input`, and its shape."""
    kind = draws.pick(["items", "range", "text", "jsonl", "csv", "parquet", "npy", "fixed", "given"])
    match kind:
        case "items":
            return _items(draws)
        case "range":
            return _range(draws)
        case "given":
            return _given(draws)
    return _files(draws, kind)


def text_files(draws: Draws) -> dict[str, Any]:
    """Input for `whole: true`."""
    source, _ = _files(draws, "text")
    return source


def _items(draws: Draws) -> tuple[Any, DatasetShape]:
    records, what = _records(draws)
    source: dict[str, Any] = {"items": records}
    _partitions(draws, source)
    return source, DatasetShape("objects", what)


def _records(draws: Draws) -> tuple[list[Any], Records]:
    what: Records = draws.pick(["int", "pair", "row", "json"])
    if what == "int":
        return draws.any(_NUMBERS), what
    if what == "pair":
        return draws.any(st.lists(st.tuples(_KEYS, st.integers(0, 9)).map(list), max_size=10)), what
    if what == "row":
        rows = st.fixed_dictionaries({"k": _KEYS, "v": st.integers(0, 9)})
        return draws.any(st.lists(rows, max_size=8)), what
    simple = st.one_of(st.none(), st.booleans(), st.integers(-9, 9), st.text("ab", max_size=2), st.floats(-2, 2))
    return draws.any(st.lists(st.one_of(simple, st.lists(simple, max_size=2)), max_size=8)), what


def _range(draws: Draws) -> tuple[Any, DatasetShape]:
    count: Any = draws.number(0, 24)
    if "n" in draws.inputs and draws.maybe():
        count = "${{ inputs.n * 3 }}"
    source = {"range": count}
    _partitions(draws, source)
    return source, DatasetShape("objects", "int")


def _partitions(draws: Draws, source: dict[str, Any]) -> None:
    """A number of partitions, often higher than the number of records."""
    if draws.maybe():
        source["partitions"] = draws.number(1, 6)


def _given(draws: Draws) -> tuple[Any, DatasetShape]:
    """A dataset or a list among the workflow's inputs."""
    if draws.maybe():
        name = draws.declare(draws.name("list"), {"type": "list", "required": True}, draws.any(_NUMBERS))
        return f"inputs.{name}", DatasetShape("objects", "int")
    source, shape = _files(draws, draws.pick(["text", "parquet", "npy"]))
    name = draws.declare(draws.name("dataset"), {"type": "dataset", "required": True}, source)
    return f"inputs.{name}", shape


# -- files ---------------------------------------------------------------------------------------------------------


def _files(draws: Draws, format: str) -> tuple[dict[str, Any], DatasetShape]:
    folder = draws.name(format)
    source: dict[str, Any] = {"uri": f"{folder}/*", "format": format}
    write, shape = _WRITERS[format]
    if format == "fixed":
        source["recordBytes"] = 3
    if format == "csv":
        _csv_options(draws, source)
        shape = shape if source.get("header", True) else DatasetShape("objects", "json")
    for index in range(draws.number(1, 3)):
        content = write(draws, source)
        packed = format in ("text", "jsonl", "csv") and draws.rarely()
        name = f"{folder}/{index}.{format}" + (".gz" if packed else "")
        draws.files[name] = gzip.compress(content, mtime=0) if packed else content
    if draws.maybe():
        source["split"] = draws.pick(["40B", "24B", "9B", "1B", "200B"])
    return source, shape


def _text(draws: Draws, _: dict[str, Any]) -> bytes:
    ending = draws.pick(["\n", "\r\n"])
    text = ending.join(draws.any(_LINES))
    return (text + (ending if draws.maybe() else "")).encode()


def _jsonl(draws: Draws, _: dict[str, Any]) -> bytes:
    rows = st.fixed_dictionaries({"k": _KEYS, "v": st.integers(0, 9)})
    lines = list(map(json.dumps, draws.any(st.lists(rows, max_size=8))))
    _spoil(draws, lines)
    return "".join(f"{line}\n" for line in lines).encode()


def _spoil(draws: Draws, lines: list[str]) -> None:
    """Rarely insert a line that cannot be parsed, and a blank one."""
    if draws.failing and draws.rarely():
        lines.insert(draws.number(0, len(lines)), draws.pick(["{", "NaN", '"' + "x" * 9]))
        lines.insert(draws.number(0, len(lines)), draws.pick(["", " "]))


def _csv_options(draws: Draws, source: dict[str, Any]) -> None:
    if draws.rarely():
        source["header"] = False
    if draws.rarely():
        source["delimiter"] = ";"


def _csv(draws: Draws, source: dict[str, Any]) -> bytes:
    field = st.sampled_from(["a", "b", "1", "", '"x\ny"', "é"])
    delimiter = source.get("delimiter", ",")
    rows = [delimiter.join(row) for row in draws.any(st.lists(st.tuples(field, field), max_size=6))]
    if source.get("header", True):
        _spoil(draws, rows)
    head = [f"k{delimiter}v"] if source.get("header", True) else []
    return "".join(f"{row}\n" for row in [*head, *rows]).encode()


def _parquet(draws: Draws, _: dict[str, Any]) -> bytes:
    import pyarrow
    from pyarrow import parquet

    keys = draws.any(st.lists(st.one_of(st.none(), st.integers(-1, 3)), max_size=9))
    values = range(len(keys))
    table = pyarrow.table({"k": pyarrow.array(keys, pyarrow.int64()), "v": pyarrow.array(values, pyarrow.int64())})
    buffer = io.BytesIO()
    parquet.write_table(table, buffer, row_group_size=draws.number(1, 4))
    return buffer.getvalue()


def _npy(draws: Draws, _: dict[str, Any]) -> bytes:
    import numpy

    floats = st.one_of(st.integers(-2, 3).map(float), st.just(float("nan")), st.just(-0.0))
    array = numpy.array(draws.any(st.lists(floats, max_size=12)), dtype=numpy.float64)
    buffer = io.BytesIO()
    numpy.save(buffer, array)
    return buffer.getvalue()


def _fixed(draws: Draws, _: dict[str, Any]) -> bytes:
    return b"".join(draws.any(st.lists(st.binary(min_size=3, max_size=3), max_size=10)))


_WRITERS = {
    "text": (_text, DatasetShape("objects", "str")),
    "jsonl": (_jsonl, DatasetShape("objects", "row")),
    "csv": (_csv, DatasetShape("objects", "row")),
    "parquet": (_parquet, DatasetShape("table", "row")),
    "npy": (_npy, DatasetShape("array", "any")),
    "fixed": (_fixed, DatasetShape("array", "any")),
}
