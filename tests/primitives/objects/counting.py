"""Threads that count with a shared counter while keepers are killed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from eventually import eventually

from treadle.primitives.objects import Handle


@contextmanager
def counting(hits: Handle[Any], threads: int) -> Iterator[Callable[[], None]]:
    """Yield a function that waits until they have counted on. At the end, each answer was a different number: no call
    was lost or counted twice.
    """
    over, answers = threading.Event(), [list[int]() for _ in range(threads)]

    def work(mine: list[int]) -> None:
        while not over.is_set():
            mine.append(hits.increment())

    def count_on() -> None:
        before = sum(map(len, answers))
        eventually(lambda: sum(map(len, answers)) > before + 4)

    running = [threading.Thread(target=work, args=(mine,)) for mine in answers]
    for thread in running:
        thread.start()
    try:
        yield count_on
    finally:
        over.set()
        for thread in running:
            thread.join()
    assert sorted(one for mine in answers for one in mine) == list(range(1, hits.get() + 1))
