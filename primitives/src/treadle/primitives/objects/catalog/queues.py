"""Queues. An item goes to one caller; a caller that dies with the answer on its way loses the item."""

from __future__ import annotations

import heapq
from collections import deque
from typing import Any

from ..definitions import read, removes, shared, when


@shared
class Queue:
    """First in, first out. `bound`: items above which `put` waits; 0: no bound."""

    def __init__(self, bound: int = 0) -> None:
        self.bound, self.items = bound, deque[Any]()
        self.closed = False

    @when(lambda self, *_: self.closed or not self.bound or len(self.items) < self.bound)
    def put(self, item: Any) -> None:
        """Add an item. Raises RuntimeError when the queue is closed."""
        if self.closed:
            raise RuntimeError("the queue is closed")
        self.items.append(item)

    @removes
    @when(lambda self: self.items or self.closed)
    def get(self) -> Any:
        """Remove and return the first item. Raises EOFError when the queue is closed and empty."""
        if not self.items:
            raise EOFError("the queue is closed and empty")
        return self.items.popleft()

    @removes
    @when(lambda self, *_: self.items or self.closed)
    def get_many(self, most: int) -> list[Any]:
        """Remove and return 1 to `most` items; none when the queue is closed and empty."""
        return [self.items.popleft() for _ in range(min(most, len(self.items)))]

    def close(self) -> None:
        """Accept no more items."""
        self.closed = True

    @read
    def size(self) -> int:
        """Return the number of items."""
        return len(self.items)


@shared
class PriorityQueue:
    """The lowest priority first; of equal ones, the first in. `bound`: items above which `put` waits; 0: no bound."""

    def __init__(self, bound: int = 0) -> None:
        self.bound, self.count = bound, 0
        self.items: list[tuple[Any, int, Any]] = []

    @when(lambda self, *_, **__: not self.bound or len(self.items) < self.bound)
    def put(self, item: Any, priority: Any = 0) -> None:
        """Add an item."""
        self.count += 1
        heapq.heappush(self.items, (priority, self.count, item))

    @removes
    @when(lambda self: self.items)
    def get(self) -> Any:
        """Remove and return the item with the lowest priority."""
        return heapq.heappop(self.items)[2]

    @read
    def size(self) -> int:
        """Return the number of items."""
        return len(self.items)
