"""Properties of a dataset, from which a generator of workflows chooses legal ways to read it."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Literal

from treadle.primitives.encoding.references import Kind

Records = Literal["int", "str", "pair", "row", "json", "any"]
"""`pair`: (a key, a value); `row`: columns `k` and `v`; `json`: JSON values; `any`: unknown."""


@dataclass(frozen=True)
class DatasetShape:
    """The properties of a dataset that follow from the document and the functions."""

    kind: Kind = "objects"
    records: Records = "any"
    grouped: Literal["", "one", "several"] = ""
    """Its partitions come from a shuffle of one input or of several."""
    dynamic: bool = False
    """Its number of partitions is known only once it exists. A shuffle of it with others must declare its own
    number."""

    @property
    def keyed(self) -> bool:
        return self.kind == "objects" and self.records == "pair"

    @property
    def columns(self) -> bool:
        return self.records == "row"


@dataclass
class DatasetScope:
    """The names that are visible at a place in the document: the top level, or the body of a loop."""

    loops: tuple[str, ...] = ()
    datasets: dict[str, DatasetShape] = field(default_factory=dict)
    """Reference -> shape."""
    broadcasts: list[str] = field(default_factory=list)
    cuts: list[tuple[str, int]] = field(default_factory=list)
    """Broadcasts of boundaries, and their number of boundaries."""
    numbers: list[str] = field(default_factory=list)
    """Expressions whose value is a number or null."""
    values: list[str] = field(default_factory=list)
    """Paths of the values of reduces over all records."""
    siblings: list[str] = field(default_factory=list)
    """Stages that `needs` may name."""

    def inside(self, loop: str) -> DatasetScope:
        """The same names as seen from a loop's body."""
        return replace(deepcopy(self), loops=(*self.loops, loop))

    def with_kind(self, kind: Kind) -> Iterator[tuple[str, DatasetShape]]:
        return ((name, shape) for name, shape in self.datasets.items() if shape.kind == kind)
