"""Objects that hold many values."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ...shuffling.key_order import order
from ..definitions import merges, read, removes, shared


@shared
class List:
    """A list."""

    def __init__(self, items: Iterable[Any] = ()) -> None:
        self.items = list(items)

    @merges
    def append(self, item: Any) -> int:
        """Append an item; returns its index."""
        self.items.append(item)
        return len(self.items) - 1

    @merges
    def extend(self, items: Iterable[Any]) -> int:
        """Append several items; returns the length."""
        self.items.extend(items)
        return len(self.items)

    @read
    def get(self, index: int | slice) -> Any:
        """Return an item, or the items of a slice. Raises IndexError."""
        return self.items[index]

    def set(self, index: int | slice, item: Any) -> None:
        """Replace an item, or the items of a slice. Raises IndexError."""
        self.items[index] = item

    @removes
    def pop(self, index: int = -1) -> Any:
        """Remove and return an item. Raises IndexError."""
        return self.items.pop(index)

    @removes
    def remove(self, item: Any) -> None:
        """Remove the first equal item. Raises ValueError."""
        self.items.remove(item)

    @read
    def slice(self, start: int | None = None, stop: int | None = None) -> list[Any]:
        """Return the items from `start` to before `stop`; by default all."""
        return self.items[start:stop]

    @read
    def size(self) -> int:
        """Return the number of items."""
        return len(self.items)

    @removes
    def clear(self) -> None:
        """Remove all items."""
        self.items.clear()

    def _value(self) -> list[Any]:
        return self.items


@shared
class Set:
    """A set."""

    def __init__(self, items: Iterable[Any] = ()) -> None:
        self.items = set(items)

    @merges
    def add(self, item: Any) -> bool:
        """Add an item; returns whether it is new."""
        size = len(self.items)
        self.items.add(item)
        return len(self.items) > size

    @merges
    def update(self, items: Iterable[Any]) -> int:
        """Add several items; returns the number of new ones."""
        size = len(self.items)
        self.items.update(items)
        return len(self.items) - size

    @merges
    @removes
    def discard(self, item: Any) -> bool:
        """Remove an item; returns whether it was there."""
        size = len(self.items)
        self.items.discard(item)
        return len(self.items) < size

    @read
    def has(self, item: Any) -> bool:
        """Return whether the item is there."""
        return item in self.items

    @read
    def size(self) -> int:
        """Return the number of items."""
        return len(self.items)

    @read
    def all(self) -> set[Any]:
        """Return all items."""
        return self.items

    @removes
    def clear(self) -> None:
        """Remove all items."""
        self.items.clear()

    def _value(self) -> list[Any]:
        return sorted(self.items, key=order)


@shared
class Map:
    """A dict, whose values can be merged where they are."""

    def __init__(self, items: Mapping[Any, Any] | None = None) -> None:
        self.items = dict(items or {})

    @read
    def get(self, key: Any, default: Any = None) -> Any:
        """Return the value of a key."""
        return self.items.get(key, default)

    @merges
    def put(self, key: Any, value: Any) -> Any:
        """Set the value of a key; returns the earlier one, or None."""
        before = self.items.get(key)
        self.items[key] = value
        return before

    @merges
    def put_if_absent(self, key: Any, value: Any) -> Any:
        """Set the value of a key that has none; returns the value that it has now."""
        return self.items.setdefault(key, value)

    @merges
    def update(self, items: Mapping[Any, Any]) -> None:
        """Set the values of several keys."""
        self.items.update(items)

    @merges
    def merge(self, key: Any, value: Any, function: Callable[[Any, Any], Any]) -> Any:
        """Set the value to `function(earlier, value)`, or to `value` for a new key; returns it."""
        self.items[key] = function(self.items[key], value) if key in self.items else value
        return self.items[key]

    @merges
    def merge_all(self, items: Mapping[Any, Any], function: Callable[[Any, Any], Any]) -> None:
        """Do the same for several keys."""
        for key, value in items.items():
            self.merge(key, value, function)

    @removes
    def pop(self, key: Any, default: Any = None) -> Any:
        """Remove a key; returns its value."""
        return self.items.pop(key, default)

    @read
    def has(self, key: Any) -> bool:
        """Return whether the key is there."""
        return key in self.items

    @read
    def size(self) -> int:
        """Return the number of keys."""
        return len(self.items)

    @read
    def all(self) -> dict[Any, Any]:
        """Return the dict."""
        return self.items

    @read
    def top(self, count: int) -> list[tuple[Any, Any]]:
        """Return the `count` pairs with the largest values, the largest first."""
        return heapq.nlargest(count, self.items.items(), key=lambda pair: pair[1])

    @removes
    def clear(self) -> None:
        """Remove all keys."""
        self.items.clear()

    def _value(self) -> dict[Any, Any]:
        return self.items
