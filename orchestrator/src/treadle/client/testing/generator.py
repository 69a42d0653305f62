"""The draws that all parts of the generator share, and the data they collect."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

T = TypeVar("T")


class Draws:
    """One document that is being generated."""

    def __init__(self, draw: DrawFn, module: str, failing: bool) -> None:
        self.draw: DrawFn = draw
        self.failing = failing
        self._module = module
        self._numbers: dict[str, int] = {}
        self.inputs: dict[str, Any] = {}
        """Declarations."""
        self.given: dict[str, Any] = {}
        """Values for the run."""
        self.files: dict[str, bytes] = {}

    def any(self, strategy: SearchStrategy[T]) -> T:
        return self.draw(strategy)

    def pick(self, choices: Sequence[T]) -> T:
        """Pick a choice; the first is the simplest."""
        return self.draw(st.sampled_from(choices))

    def maybe(self) -> bool:
        return self.draw(st.booleans())

    def rarely(self) -> bool:
        """True once in six times."""
        return self.draw(st.integers(0, 5)) == 5

    def number(self, least: int, most: int) -> int:
        return self.draw(st.integers(least, most))

    def name(self, prefix: str) -> str:
        """A name that is unique in the document."""
        self._numbers[prefix] = self._numbers.get(prefix, 0) + 1
        return f"{prefix}{self._numbers[prefix]}"

    def function(self, name: str) -> str:
        return f"{self._module}:{name}"

    def declare(self, name: str, declaration: dict[str, Any], value: Any = None) -> str:
        """Declare an input of the workflow, with its value if there is one."""
        self.inputs[name] = declaration
        if value is not None:
            self.given[name] = value
        return name
