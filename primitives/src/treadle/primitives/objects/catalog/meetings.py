"""Objects at which callers wait for each other."""

from __future__ import annotations

from typing import Any

from ..definitions import current, read, shared, then, when


@shared
class CyclicBarrier:
    """Waits until `parties` callers have arrived, again and again."""

    def __init__(self, parties: int) -> None:
        self.parties, self.generation = parties, 0
        self.arrived: list[int] = []
        """Sessions that wait."""

    def wait(self) -> Any:
        """Arrive, and wait for the other parties; returns how often the barrier was passed before.

        A caller that gives up has not arrived: the others go on waiting.
        """
        self.arrived.append(current().session)
        generation = self.generation
        if len(self.arrived) == self.parties:
            self.generation, self.arrived = generation + 1, []
        return then("_pass", generation)

    @when(lambda self, generation: self.generation > generation)
    def _pass(self, generation: int) -> int:
        return generation

    @read
    def waiting(self) -> int:
        """Return the number of callers that have arrived."""
        return len(self.arrived)

    def _withdrawn(self, session: int) -> None:
        self.arrived.remove(session)


@shared
class Latch:
    """Opens after `count` calls of `count_down`, for ever."""

    def __init__(self, count: int) -> None:
        self.count = count

    def count_down(self, amount: int = 1) -> int:
        """Count; returns the rest."""
        self.count = max(0, self.count - amount)
        return self.count

    @when(lambda self: self.count == 0)
    def wait(self) -> None:
        """Wait until the latch is open."""

    @read
    def rest(self) -> int:
        """Return how many calls are missing."""
        return self.count


@shared
class StaleClock:
    """Keeps workers within `staleness` iterations of the slowest one (stale synchronous parallel, NIPS 2013).

    With 0 it is a barrier in each iteration.
    """

    def __init__(self, workers: int, staleness: int = 0) -> None:
        self.iterations, self.staleness = [0] * workers, staleness

    def reach(self, worker: int, iteration: int) -> Any:
        """Worker 0, 1, ... has finished this many iterations; waits until no other one is further behind than allowed.

        A worker that runs again repeats calls without effect.
        """
        self.iterations[worker] = max(self.iterations[worker], iteration)
        return then("_pass", iteration)

    @when(lambda self, iteration: iteration - min(self.iterations) <= self.staleness)
    def _pass(self, iteration: int) -> None:
        """The slowest worker is near enough."""

    @read
    def slowest(self) -> int:
        """Return the iterations that all workers have finished."""
        return min(self.iterations)


@shared
class Flag:
    """A flag to wait for."""

    def __init__(self) -> None:
        self.flag = False

    def set(self) -> None:
        """Set the flag."""
        self.flag = True

    def clear(self) -> None:
        """Clear the flag."""
        self.flag = False

    @read
    def is_set(self) -> bool:
        """Return the flag."""
        return self.flag

    @when(lambda self: self.flag)
    def wait(self) -> None:
        """Wait until the flag is set."""


@shared
class Promise:
    """A value, or an error, that is set once."""

    def __init__(self) -> None:
        self.is_done, self.value, self.error = False, None, None

    def set_result(self, value: Any) -> bool:
        """Set the value, unless the future is done; returns whether it was set."""
        return self._set(value, None)

    def set_exception(self, error: Any) -> bool:
        """Set the error that `result` raises, unless the future is done; returns whether it was set."""
        return self._set(None, error)

    @when(lambda self: self.is_done)
    def result(self) -> Any:
        """Wait for the value."""
        if self.error is not None:
            raise self.error
        return self.value

    @read
    def done(self) -> bool:
        """Return whether the value or the error is set."""
        return self.is_done

    def _set(self, value: Any, error: Any) -> bool:
        if self.is_done:
            return False
        self.is_done, self.value, self.error = True, value, error
        return True
