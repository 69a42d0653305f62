"""What a generator of workflows must know of a dataset to read it in ways that are legal."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Literal

from treadle.primitives.encoding.references import Kind

Records = Literal["int", "str", "pair", "row", "json", "any"]
"""`pair` is (a key, a value), `row` has the columns `k` and `v`, `json` is what JSON can say, `any` is unknown."""


@dataclass(frozen=True)
class Shape:
    """A dataset as far as the document and the functions tell."""

    kind: Kind = "objects"
    records: Records = "any"
    grouped: Literal["", "one", "several"] = ""
    """Its partitions are those of a shuffle of one input or of several."""
    dynamic: bool = False
    """How many partitions it has is known only when it exists: a shuffle with others must say how many it makes."""

    @property
    def keyed(self) -> bool:
        return self.kind == "objects" and self.records == "pair"

    @property
    def columns(self) -> bool:
        return self.records == "row"


@dataclass
class Place:
    """What can be named from somewhere in the document: the top, or the body of a loop."""

    loops: tuple[str, ...] = ()
    datasets: dict[str, Shape] = field(default_factory=dict)
    """Reference -> shape."""
    broadcasts: list[str] = field(default_factory=list)
    cuts: list[tuple[str, int]] = field(default_factory=list)
    """Broadcasts of boundaries, and how many."""
    numbers: list[str] = field(default_factory=list)
    values: list[str] = field(default_factory=list)
    """Of reduces over everything, as paths."""
    """Expressions that give a number, or null."""
    siblings: list[str] = field(default_factory=list)
    """Stages that `needs` may name."""

    def inside(self, loop: str) -> Place:
        """The same seen from a loop's body."""
        return replace(deepcopy(self), loops=(*self.loops, loop))

    def with_kind(self, kind: Kind) -> Iterator[tuple[str, Shape]]:
        return ((name, shape) for name, shape in self.datasets.items() if shape.kind == kind)
