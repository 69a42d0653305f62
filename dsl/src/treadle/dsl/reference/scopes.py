"""What a place in the document sees: stages already done, states of loops, the names of expressions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from .data import Dataset


@dataclass
class Done:
    """A stage that is over and was not skipped."""

    dataset: Dataset = field(default_factory=lambda: Dataset([]))
    metrics: dict[str, Any] = field(default_factory=dict)
    uri: str | None = None
    """Of its output."""
    broadcast: Any = None
    scalars: dict[str, Any] = field(default_factory=dict)
    """A loop's state after it."""
    states: dict[str, Dataset] = field(default_factory=dict)
    outputs: dict[str, Any] = field(default_factory=dict)
    """Of a workflow that ran as a child."""
    value: Any = None
    """Of a reduce with `per: all` that an expression asks for it."""

    def env(self) -> dict[str, Any]:
        """What expressions see."""
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
    states: dict[str, Dataset] = field(default_factory=dict)
    done: dict[str, Done | None] = field(default_factory=dict)
    """None: skipped."""

    def at(self, loops: tuple[str, ...]) -> Frame:
        """This frame or the one around it that stands inside exactly these loops."""
        frame = self
        while frame.loops != loops:
            assert frame.outer is not None
            frame = frame.outer
        return frame

    def all_scalars(self) -> dict[str, Any]:
        """The state of every loop around; of two with one name the inner one."""
        return {**(self.outer.all_scalars() if self.outer else {}), **self.scalars}


class LazyStages(Mapping[str, Any]):
    """The root `stages` of expressions: a stage runs when it is asked for. A skipped one is null."""

    def __init__(self, find: Callable[[str], Done | None], names: list[str]) -> None:
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
