"""Results of parsing, kept for the next use: validation and planning look at each expression 30 times."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")
MAX_CACHED = 1 << 20
"""Limit of characters of the texts in one cache."""


class ParseCache(Generic[T]):
    """A function of a text, with its latest results. The results are immutable."""

    def __init__(self, function: Callable[[str], T]) -> None:
        self._function = function
        self._results: dict[str, T] = {}
        self._size = 0

    def __call__(self, text: str) -> T:
        """Raises the errors of the function."""
        found = self._results.get(text)
        return self._add(text) if found is None else found

    def _add(self, text: str) -> T:
        result = self._function(text)
        self._size += len(text)
        if self._size > MAX_CACHED:
            self._results, self._size = {}, len(text)
        self._results[text] = result
        return result
