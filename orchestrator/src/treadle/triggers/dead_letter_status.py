"""The outcomes of dead letters: a replayed or dropped letter is not listed again.

    deployments/letters/<workflow>.<trigger>/<digest>   a LetterOutcome, sealed under the deployment key

The letter itself stays in its place, because a topic deletes records by age only. Outcomes are objects in the store,
not records of a topic. They need no further rights in the cluster and also serve letters of polled objects. If two
users mark the same letter, they write the same object.
"""

from __future__ import annotations

import hashlib
from typing import Literal

import msgspec
from msgspec import Struct

from treadle.primitives import sealing
from treadle.primitives.encoding.decoding import known
from treadle.primitives.stores.store import Store

from .dead_letter_replay import StoredDeadLetter
from .kafka.dead_letters import KafkaDeadLetter


class LetterOutcome(Struct, frozen=True):
    """The user's decision about a letter."""

    did: Literal["replayed", "dropped"]
    time: float
    """Seconds since the epoch."""
    runs: tuple[str, ...] = ()
    """The runs requested by the replay; none: the letter was filtered out."""


class Outcomes:
    """The outcomes of one trigger's letters (`<workflow>.<trigger>`). Every method raises StoreError."""

    def __init__(self, store: Store, key: bytes, trigger: str) -> None:
        self._objects = sealing.SealedStore(store, sealing.purpose_key(key, b"treadle dead letters"))
        self._folder = f"deployments/letters/{trigger}"
        self._names = {info.name for info in store.list(f"{self._folder}/")}

    def find(self, letter: StoredDeadLetter) -> LetterOutcome | None:
        """None: the letter waits to be replayed or dropped."""
        name = self._name(letter)
        return msgspec.json.decode(self._objects.get(name), type=known(LetterOutcome)) if name in self._names else None

    def mark(self, letter: StoredDeadLetter, outcome: LetterOutcome) -> None:
        """Record the outcome; the last one counts."""
        self._objects.put(self._name(letter), msgspec.json.encode(outcome))

    def _name(self, letter: StoredDeadLetter) -> str:
        return f"{self._folder}/{hashlib.sha256(identity(letter).encode()).hexdigest()[:32]}"


def identity(letter: StoredDeadLetter) -> str:
    """Identifies the letter, and no later one in its place. A topic created again has another UUID; an object refused
    again has another time."""
    kept = letter.kept
    if isinstance(kept, KafkaDeadLetter):
        return f"{kept.topic_id}/{kept.partition}/{kept.offset}"
    return f"{letter.id}/{letter.time!r}"
