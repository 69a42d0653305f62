"""Names of lost blocks in a workflow history. A history holds few, so many names become a list in the store.

runs/<run>/lost/<digest>   the names of blocks of one segment, or of one task group of a wide segment

The name of a list replaces the names of its blocks and looks like one of them (`each/7.lost.<digest>`, where 7 is the
partition of its first block). So a lookup of the segment or task group of such a name is right for the whole list.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator

import msgspec

from ...plan.plan import Graph, Segment
from ...run_store.run_files import RunFiles
from ...scheduler.task_groups import partition_of, segment_of

FEW = 1000
"""Up to this many names are passed on unchanged."""
_SIGN = "lost"
"""Replaces the attempt number in the name of a list."""


def condense(files: RunFiles, graph: Graph, blocks: Collection[str]) -> set[str]:
    """The names themselves, or the names of lists that hold them. Blocking. Raises StoreError."""
    if len(blocks) <= FEW:
        return set(blocks)
    sizes = {node.id: node.group for node in graph.nodes if isinstance(node, Segment)}
    together: dict[tuple[str, int], list[str]] = defaultdict(list)
    for block in sorted(blocks):
        segment = segment_of(block)
        group = partition_of(block) // sizes[segment] if sizes.get(segment) else 0
        together[segment, group].append(block)
    return {_listed(files, segment, names) for (segment, _), names in together.items()}


def expand(files: RunFiles, names: Iterable[str]) -> tuple[str, ...]:
    """The block names that `condense` was given. Blocking. Raises CorruptError, StoreError."""
    return tuple(dict.fromkeys(block for name in names for block in _blocks(files, name)))


def _listed(files: RunFiles, segment: str, names: list[str]) -> str:
    payload = msgspec.msgpack.encode(names)
    digest = hashlib.sha256(payload).hexdigest()
    files.create_bytes(f"{_SIGN}/{digest}", payload)
    return f"{segment}/{partition_of(names[0])}.{_SIGN}.{digest}"


def _blocks(files: RunFiles, name: str) -> Iterator[str]:
    _, sign, digest = name.rsplit("/", 1)[1].split(".", 2)
    if sign == _SIGN:
        yield from msgspec.msgpack.decode(files.load_bytes(f"{_SIGN}/{digest}"), type=list[str])
    else:
        yield name
