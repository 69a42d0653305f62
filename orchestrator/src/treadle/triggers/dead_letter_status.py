"""What became of dead letters: a letter that was replayed or dropped is not listed again.

deployments/letters/<workflow>.<trigger>/<digest>   an Outcome, sealed under the deployment key

The letter itself stays where it is, since a topic forgets by age only. Marks are objects beside the registry and not
records of a topic: they need no other right of the cluster, serve letters of polled objects as well, and two people
who mark one letter write one object.
"""

from __future__ import annotations

import hashlib
from typing import Literal

import msgspec
from msgspec import Struct

from treadle.primitives import sealing
from treadle.primitives.encoding.decoding import known
from treadle.primitives.stores.store import Store

from .dead_letter_replay import Letter
from .kafka.dead_letters import DeadLetter


class Outcome(Struct, frozen=True):
    """What a person had done with a letter."""

    did: Literal["replayed", "dropped"]
    time: float
    """Seconds since the epoch."""
    runs: tuple[str, ...] = ()
    """That the replay asked for; none: the filter passed it over."""


class Outcomes:
    """Of the letters of one trigger (`<workflow>.<trigger>`). Every method raises StoreError."""

    def __init__(self, store: Store, key: bytes, trigger: str) -> None:
        self._objects = sealing.SealedStore(store, sealing.purpose_key(key, b"treadle dead letters"))
        self._folder = f"deployments/letters/{trigger}"
        self._names = {info.name for info in store.list(f"{self._folder}/")}

    def find(self, letter: Letter) -> Outcome | None:
        """None: it waits to be replayed or dropped."""
        name = self._name(letter)
        return msgspec.json.decode(self._objects.get(name), type=known(Outcome)) if name in self._names else None

    def mark(self, letter: Letter, outcome: Outcome) -> None:
        """What happened last counts."""
        self._objects.put(self._name(letter), msgspec.json.encode(outcome))

    def _name(self, letter: Letter) -> str:
        return f"{self._folder}/{hashlib.sha256(identity(letter).encode()).hexdigest()[:32]}"


def identity(letter: Letter) -> str:
    """Of the letter, and of no later one in its place: a topic that is made again has another UUID, an object that is
    refused again another time."""
    kept = letter.kept
    if isinstance(kept, DeadLetter):
        return f"{kept.topic_id}/{kept.partition}/{kept.offset}"
    return f"{letter.id}/{letter.time!r}"
