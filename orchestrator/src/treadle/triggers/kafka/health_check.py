"""Checks every few seconds whether a cluster still serves a trigger, without blocking."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

from confluent_kafka import KafkaException
from msgspec import Struct

from treadle.primitives.errors import TreadleError

from .acls import lacks_topic
from .topics import ANSWER, HOPELESS, Topics

EVERY = 5.0
"""Seconds between two checks; one second after a check that found a problem."""


class _Look(Struct):
    begun: float
    topics: dict[str, Future[Any]]

    def done(self) -> bool:
        return all(one.done() for one in self.topics.values())


class HealthCheck:
    """Used by one thread; no method blocks."""

    def __init__(self, topics: Topics, names: Sequence[str], clock: Callable[[], float]) -> None:
        self._topics, self._names, self._clock = topics, names, clock
        self._look: _Look | None = None
        self._next = 0.0
        self.trouble: TreadleError | None = None
        """Why no records can arrive; None: the last check found no problem."""

    def tick(self) -> bool:
        """Process answers, and start a check when it is due. Returns whether a check has just ended."""
        now = self._clock()
        if self._look is None:
            if now >= self._next:
                self._look = _Look(now, self._topics.ask(self._names))
            return False
        return self._hear(self._look, now)

    def _hear(self, look: _Look, now: float) -> bool:
        waited = now - look.begun
        self._topics.poll()
        over = look.done() or waited > 2 * ANSWER
        if over:
            self._look, self.trouble = None, self._judge(look)
            self._next = now + (1.0 if self.trouble else EVERY)
        elif waited > HOPELESS and self._topics.connectivity.down:
            self.trouble = self._topics.connectivity.reason()
        return over

    def _judge(self, look: _Look) -> TreadleError | None:
        try:
            problems = [
                problem
                for topic, asked in look.topics.items()
                for problem in lacks_topic(topic, lambda asked=asked: self._topics.answer(asked, 0.0))  # type: ignore[misc]
            ]
        except KafkaException as error:
            return TreadleError(f"Kafka refuses: {error.args[0].str()}")
        except TreadleError as error:
            return error
        return TreadleError("; ".join(problems), "The trigger goes on once that is mended.") if problems else None
