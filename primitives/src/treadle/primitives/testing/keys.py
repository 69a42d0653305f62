"""Hypothesis strategies for keys and for arrays of keys. Needs `hypothesis`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, cast
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from ..shuffling.keys import Key

_EDGES = [0, 1, -1, 2**53, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1, 2**64, 2**64 + 1, -(2**63), -(2**63) - 1, 2**1030]


def numbers() -> st.SearchStrategy[Key]:
    """Numbers, often at the edges where integers and doubles differ."""
    edges = st.sampled_from(_EDGES)
    doubles = st.sampled_from([float(edge) for edge in _EDGES[:-1]] + [-0.0, float("nan"), float("inf"), 0.5])
    return st.one_of(st.booleans(), st.integers(), edges, st.floats(), doubles)


def moments() -> st.SearchStrategy[Key]:
    """Dates, naive and aware datetimes; the zones have daylight saving time."""
    zones = st.sampled_from([UTC, ZoneInfo("Europe/Berlin"), ZoneInfo("America/New_York")])
    aware = st.datetimes(
        min_value=datetime(2, 1, 1), max_value=datetime(9998, 12, 31), timezones=zones, allow_imaginary=True
    )
    repeated = st.builds(
        datetime, st.just(2025), st.just(10), st.just(26), st.just(2), tzinfo=zones, fold=st.integers(0, 1)
    )
    return st.one_of(st.dates(), st.datetimes(), aware, repeated)


def simple_keys() -> st.SearchStrategy[Key]:
    """Every class of key but tuples, with few enough values that equal ones occur."""
    texts = st.one_of(st.text(max_size=3), st.text(), st.sampled_from(["\ud800", "a\0", "\U00010000", "\uffff"]))
    return st.one_of(st.none(), numbers(), texts, st.binary(), moments(), st.uuids())


def keys() -> st.SearchStrategy[Key]:
    """Any key, tuples of tuples too."""
    nested = st.recursive(simple_keys(), lambda inner: st.lists(inner, max_size=3).map(tuple), max_leaves=6)
    return cast("st.SearchStrategy[Key]", nested)


_NUMPY_TYPES = [
    *("?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", ">i4", ">u8", ">f8"),
    *("S3", "U3", ">U2", "V3", "M8[Y]", "M8[M]", "M8[W]", "M8[D]", "M8[h]", "M8[m]", "M8[s]", "M8[ms]", "M8[us]"),
    *("M8[ns]", "M8[7s]", ">M8[D]"),
]


def _elements(dtype: np.dtype[Any]) -> st.SearchStrategy[Any] | None:
    if dtype.kind == "f":
        special = [0.0, -0.0, 1.0, -1.0, 3.5, float("nan"), float("inf")]
        wide = [2.0**53, 2.0**63, 2.0**64, -(2.0**63), -(2.0**70)] if dtype.itemsize == 8 else []
        return hnp.from_dtype(dtype) | st.sampled_from(special + wide)
    if dtype.kind == "V":
        return st.binary(min_size=dtype.itemsize, max_size=dtype.itemsize)
    if dtype.kind != "M":
        return None
    unit, count = np.datetime_data(dtype)
    dates = st.datetimes(datetime(1700, 1, 1), datetime(2200, 1, 1)) | st.none()
    return dates.map(lambda moment: np.datetime64(moment, "us").astype("M8[ms]").astype(f"M8[{count}{unit}]"))


def numpy_arrays() -> st.SearchStrategy[Any]:
    """One-dimensional arrays of every dtype whose elements can be keys, structures too."""
    plain = st.sampled_from([np.dtype(name) for name in _NUMPY_TYPES]).flatmap(
        lambda dtype: hnp.arrays(dtype, st.integers(0, 12), elements=_elements(dtype))
    )
    record = np.dtype([("a", "i2"), ("b", "S2"), ("c", "f4")])
    texts = st.lists(st.text(st.characters(codec="utf-8")), max_size=8)
    variable = texts.map(lambda found: np.array(found, dtype=np.dtypes.StringDType()))
    return st.one_of(plain, variable, hnp.arrays(record, st.integers(0, 8)))


def _arrow(kind: Any, values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.lists(st.none() | values, max_size=12).map(lambda found: pa.array(found, type=kind))


def arrow_arrays() -> st.SearchStrategy[Any]:
    """Arrow arrays with nulls of every type whose elements can be keys; sliced, chunked and dictionaries too."""
    texts = st.text(st.characters(codec="utf-8"), max_size=3)
    short = st.datetimes(datetime(1700, 1, 1), datetime(2200, 1, 1)).map(lambda m: m.replace(microsecond=0))
    pairs = st.fixed_dictionaries({"a": st.none() | st.integers(-2, 2), "b": st.none() | texts})
    flat = st.one_of(
        _arrow(pa.bool_(), st.booleans()),
        *(_arrow(kind, st.integers(-100, 100)) for kind in (pa.int8(), pa.int64())),
        _arrow(pa.uint64(), st.integers(0, 2**64 - 1)),
        _arrow(pa.float32(), st.floats(width=32)),
        _arrow(pa.float64(), st.floats()),
        *(_arrow(kind, texts) for kind in (pa.string(), pa.large_string(), pa.string_view())),
        *(_arrow(kind, st.binary(max_size=3)) for kind in (pa.binary(), pa.binary_view())),
        _arrow(pa.binary(2), st.binary(min_size=2, max_size=2)),
        *(_arrow(kind, st.dates()) for kind in (pa.date32(), pa.date64())),
        *(_arrow(pa.timestamp(unit), short) for unit in ("s", "ms", "us", "ns")),
        _arrow(pa.timestamp("us", tz="Europe/Berlin"), short),
        _arrow(pa.null(), st.none()),
        _arrow(pa.struct([("a", pa.int64()), ("b", pa.string())]), pairs),
    )
    plain_strings = _arrow(pa.string(), texts)
    return st.one_of(
        flat,
        flat.map(lambda array: array.slice(1)),
        flat.map(lambda array: pa.chunked_array([array, array.slice(2)])),
        plain_strings.map(lambda array: array.dictionary_encode()),
        plain_strings.map(lambda array: array.dictionary_encode(null_encoding="encode")),
    )
