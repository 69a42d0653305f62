"""The names visible at a place of the document: finished stages, states of loops, roots of expressions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from .data import ReferenceDataset


@dataclass
class FinishedStage:
    """The result of a stage that was not skipped."""

    dataset: ReferenceDataset = field(default_factory=lambda: ReferenceDataset([]))
    metrics: dict[str, Any] = field(default_factory=dict)
    uri: str | None = None
    """URI of its output."""
    broadcast: Any = None
    scalars: dict[str, Any] = field(default_factory=dict)
    """Final state of a loop."""
    states: dict[str, ReferenceDataset] = field(default_factory=dict)
    outputs: dict[str, Any] = field(default_factory=dict)
    """Outputs of a sub-workflow."""
    value: Any = None
    """The record of a reduce with `per: all`, if an expression reads it."""

    def env(self) -> dict[str, Any]:
        """Return the stage's names in expressions."""
        output = None if self.uri is None else {"uri": self.uri}
        return {
            "metrics": self.metrics,
            "output": output,
            "state": self.scalars,
            "outputs": self.outputs,
            "value": self.value,
        }


@dataclass
class Frame:
    """The whole document, or one iteration of a loop."""

    loops: tuple[str, ...] = ()
    """Ids of the loops around, outermost first."""
    prefix: str = ""
    """Iteration path, such as `lloyd[3].`."""
    outer: Frame | None = None
    scalars: dict[str, Any] = field(default_factory=dict)
    states: dict[str, ReferenceDataset] = field(default_factory=dict)
    done: dict[str, FinishedStage | None] = field(default_factory=dict)
    """None: skipped."""

    def at(self, loops: tuple[str, ...]) -> Frame:
        """Return this frame, or the enclosing one, whose loops are exactly these."""
        frame = self
        while frame.loops != loops:
            assert frame.outer is not None
            frame = frame.outer
        return frame

    def all_scalars(self) -> dict[str, Any]:
        """Return the state of all enclosing loops; for equal names that of the inner loop."""
        return {**(self.outer.all_scalars() if self.outer else {}), **self.scalars}


class LazyStages(Mapping[str, Any]):
    """The root `stages` of expressions: reading a stage runs it. A skipped stage is null."""

    def __init__(self, find: Callable[[str], FinishedStage | None], names: list[str]) -> None:
        self._find, self._names = find, names

    def __getitem__(self, name: str) -> Any:
        if name not in self._names:
            raise KeyError(name)
        done = self._find(name)
        return None if done is None else done.env()

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)
