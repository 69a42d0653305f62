"""The two levels of a wide shuffle: bundles of consecutive targets, and the merge of bundles from several sources.

P sources scattered to C targets give P x C parts, each too small to justify an index entry and a read of its own. With
two levels a source writes G bundles. One task reads the bundles of one group from a run of sources and writes a part
for each target of the group. The total is P x G + R x C parts for R runs (the merge of Exoshuffle, arXiv 2203.05072,
and the multi-stage shuffle of Starling, arXiv 1911.11727).

A bundle stores the number of records of each target. The second level therefore only cuts and joins: it needs no key,
calls no user function, and cannot change the targets chosen by the first level.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from itertools import accumulate, chain
from pickle import PickleBuffer
from typing import Any

from treadle.primitives.encoding import codec
from treadle.primitives.encoding.references import Kind
from treadle.primitives.errors import UsageError

Bundle = tuple[Kind, list[int], Any]
"""(kind, records of each target, the records of all targets in order as an encoded part)."""


def bundle(kind: Kind, parts: Sequence[Any]) -> Bundle:
    """The parts of consecutive targets. Raises DataError for records that cannot be encoded."""
    counts = [codec.rows(kind, part) for part in parts]
    whole = list(chain.from_iterable(parts)) if kind == "objects" else _joined(kind, parts)
    return kind, counts, PickleBuffer(b"".join(codec.encode(kind, whole)))


def merge(bundles: Sequence[Bundle]) -> tuple[Kind, list[Any]]:
    """For each target its records from every source, in the order of the bundles, as a reader of one level joins them.

    Raises UsageError when non-empty bundles differ in kind, DataError when their dtypes or schemas differ.
    """
    kind = kind_of(bundles)
    sources = [(counts, codec.decode(data)) for its, counts, data in bundles if its == kind]
    if kind == "objects":
        return kind, _merge_objects(sources)
    columns = zip(*(by_target(kind, counts, value) for counts, value in sources), strict=True)
    return kind, [_joined(kind, pieces) for pieces in columns]


def kind_of(bundles: Sequence[Bundle]) -> Kind:
    """The kind of the non-empty bundles. Raises UsageError when they differ."""
    return one_kind({kind for kind, counts, _ in bundles if any(counts)} or {bundles[0][0]})


def one_kind(kinds: Set[Kind]) -> Kind:
    """The common kind of partitions that are joined; `objects` for none. Raises UsageError when they differ."""
    if len(kinds) > 1:
        raise UsageError(
            f"partitions of different kinds meet: {', '.join(sorted(kinds))}",
            "Return the same kind (records, table or array) from every partition of the stage before.",
        )
    return next(iter(kinds), "objects")


def _merge_objects(sources: Sequence[tuple[list[int], list[Any]]]) -> list[list[Any]]:
    parts: list[list[Any]] = [[] for _ in sources[0][0]]
    for counts, records in sources:
        start = 0
        for part, count in zip(parts, counts, strict=True):
            if count:
                part += records[start : start + count]
                start += count
    return parts


def by_target(kind: Kind, counts: list[int], value: Any) -> list[Any]:
    """The content of a bundle for each of its targets."""
    stops = zip(accumulate(counts), counts, strict=True)
    if kind == "table":
        return [value.slice(stop - count, count) for stop, count in stops]
    return [value[stop - count : stop] for stop, count in stops]


def _joined(kind: Kind, pieces: Sequence[Any]) -> Any:
    """Join into one chunk: many small chunks in a part would cost as much as many small parts in a block.

    Dictionary columns keep their chunks, because the Parquet output of such a column shows how it is cut.
    """
    whole = codec.concat(kind, pieces)
    plain = kind == "table" and not any(map(_has_dictionary, whole.schema.types))
    return whole.combine_chunks() if plain else whole


def _has_dictionary(arrow_type: Any) -> bool:
    import pyarrow

    nested = (arrow_type.field(index).type for index in range(arrow_type.num_fields))
    return pyarrow.types.is_dictionary(arrow_type) or any(map(_has_dictionary, nested))
