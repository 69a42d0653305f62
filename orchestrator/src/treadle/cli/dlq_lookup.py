"""Finds dead letters of every kind, and their outcomes. An error of one cluster does not hide letters of another."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from treadle.primitives.errors import MissingError, TreadleError

from .common.environment import Environment, need
from .trigger import found

if TYPE_CHECKING:
    from treadle.triggers.dead_letter_replay import StoredDeadLetter
    from treadle.triggers.dead_letter_status import LetterOutcome, Outcomes
    from treadle.triggers.registry.deployment import Deployment


class Letters:
    """The dead letters of an environment."""

    def __init__(self, env: Environment) -> None:
        need("confluent_kafka")
        self._env = env
        self._outcomes: dict[str, Outcomes] = {}
        self.problems: dict[str, TreadleError] = {}
        """Connection or trigger -> the error of reading its letters."""

    def of(self, target: str | None, reason: str | None) -> Iterator[StoredDeadLetter]:
        """The letters of one deployed trigger, or of all, whose reason contains a text. Raises NoSuchDeployment."""
        if target:
            places = [found(self._env, target)]
        else:
            places = [(one, name) for one in self._env.registry.deployments() for name in one.spec.triggers]
        seen: set[str] = set()
        for deployment, name in places:
            for letter in self._tolerant(deployment, name):
                if letter.id not in seen and (reason is None or reason in letter.reason):
                    seen.add(letter.id)
                    yield letter

    def named(self, ids: Sequence[str]) -> list[StoredDeadLetter]:
        """The letters with these ids, in their order; every topic is read once. Raises MissingError."""
        known = {one.id: one for one in self.of(None, None) if one.id in ids}
        for id in ids:
            if id not in known:
                self.complete()
                raise MissingError(f"there is no dead letter {id}", "See: treadle dlq list")
        return [known[id] for id in ids]

    def complete(self) -> None:
        """Raises the first error of reading letters."""
        for problem in self.problems.values():
            raise problem

    def outcome(self, letter: StoredDeadLetter) -> LetterOutcome | None:
        """The outcome of the letter; None: it waits."""
        return self._of(letter.trigger).find(letter)

    def mark(self, letter: StoredDeadLetter, did: str, runs: Sequence[str] = ()) -> None:
        """Record that the letter was `replayed` or `dropped`."""
        from treadle.triggers.dead_letter_status import LetterOutcome

        outcome = LetterOutcome("replayed" if did == "replayed" else "dropped", time.time(), tuple(runs))
        self._of(letter.trigger).mark(letter, outcome)

    def _of(self, trigger: str) -> Outcomes:
        from treadle.triggers.dead_letter_status import Outcomes

        if trigger not in self._outcomes:
            self._outcomes[trigger] = Outcomes(self._env.store, self._env.key, trigger)
        return self._outcomes[trigger]

    def _tolerant(self, deployment: Deployment, name: str) -> Iterator[StoredDeadLetter]:
        from treadle.triggers.kafka.reader_settings import reading_of

        reading = reading_of(deployment.spec.triggers[name])
        place = reading.connection if reading else f"{deployment.workflow}.{name}"
        if place in self.problems:
            return
        try:
            yield from self._of_trigger(deployment, name)
        except TreadleError as error:
            self.problems[place] = error

    def _of_trigger(self, deployment: Deployment, name: str) -> Iterator[StoredDeadLetter]:
        from treadle.triggers.kafka.reader_settings import reading_of

        trigger, target = deployment.spec.triggers[name], f"{deployment.workflow}.{name}"
        if reading := reading_of(trigger):
            from treadle.triggers.dead_letter_replay import of_topic
            from treadle.triggers.kafka.connectivity import Connectivity
            from treadle.triggers.kafka.dead_letters import read_letters
            from treadle.triggers.kafka.offsets import KafkaPositions

            settings = KafkaPositions(self._env.home, self._env.profile).settings(reading.connection)
            told = Connectivity(reading.connection)
            yield from map(of_topic, read_letters(settings, reading.letters, target, told))
        elif trigger.type == "object":
            from treadle.triggers.dead_letter_replay import of_object
            from treadle.triggers.objects.seen_objects import ObjectRecords

            for refused in ObjectRecords(self._env.store, self._env.key, deployment.workflow, name).refused():
                yield of_object(deployment.workflow, name, refused)
