"""Objects that hold one value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..definitions import merges, read, shared


@shared
class Reference:
    """Any value that can be pickled."""

    def __init__(self, value: Any = None) -> None:
        self.value = value

    @read
    def get(self) -> Any:
        """Return the value."""
        return self.value

    @merges
    def set(self, value: Any) -> None:
        """Replace the value."""
        self.value = value

    def exchange(self, value: Any) -> Any:
        """Replace the value; returns the earlier one."""
        before, self.value = self.value, value
        return before

    def compare_and_set(self, expected: Any, value: Any) -> bool:
        """Replace the value if it equals `expected`; returns whether it did."""
        equal = bool(self.value == expected)
        if equal:
            self.value = value
        return equal

    @merges
    def update(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Replace the value by `function(value, *arguments)`, and return it. The function must be deterministic."""
        self.value = function(self.value, *arguments)
        return self.value

    def _value(self) -> Any:
        return self.value


@shared
class Number(Reference):
    """An int, a float, or anything that can be added."""

    def __init__(self, value: Any = 0) -> None:
        super().__init__(value)

    @merges
    def add(self, amount: Any = 1) -> Any:
        """Add to the value; returns the sum."""
        self.value += amount
        return self.value

    def get_and_add(self, amount: Any = 1) -> Any:
        """Add to the value; returns the earlier one."""
        before = self.value
        self.value = before + amount
        return before


@shared
class Counter:
    """A whole number that is counted up and down."""

    def __init__(self, value: int = 0) -> None:
        self.value = value

    @merges
    def increment(self, amount: int = 1) -> int:
        """Add to the value; returns the sum."""
        self.value += amount
        return self.value

    @merges
    def decrement(self, amount: int = 1) -> int:
        """Subtract from the value; returns the difference."""
        self.value -= amount
        return self.value

    @read
    def get(self) -> int:
        """Return the value."""
        return self.value

    def reset(self) -> int:
        """Set the value to 0; returns the earlier one."""
        before, self.value = self.value, 0
        return before

    def _value(self) -> int:
        return self.value


@shared
class Boolean(Reference):
    """True or false."""

    def __init__(self, value: bool = False) -> None:
        super().__init__(value)

    def toggle(self) -> bool:
        """Negate the value, and return it."""
        self.value = not self.value
        return bool(self.value)
