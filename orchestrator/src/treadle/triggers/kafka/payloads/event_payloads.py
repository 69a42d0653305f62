"""The value of `trigger.events` for one batch."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import msgspec

from treadle.dsl.triggers import KafkaTrigger
from treadle.executors.runtime.event_source import pack
from treadle.orchestrator.run_store.child_runs import copy_name
from treadle.orchestrator.run_store.run_files import RunFiles
from treadle.primitives import sealing
from treadle.primitives.events.offset_ranges import runs_of
from treadle.primitives.events.records import as_item
from treadle.primitives.result import is_storable
from treadle.primitives.stores.store import Store

from ..batch import KafkaBatch
from .transfer_choice import INLINE_BYTES, Topic, Way, choose

AskTopic = Callable[[str], Topic | None]
"""Topic name -> its known retention. Called for every batch that is not small."""
_REMEMBERED = 60.0
"""Seconds for which an answer is cached."""


class Payloads:
    """The payloads of one connection's triggers. Thread-safe."""

    def __init__(self, store: Store, key: bytes, ask: AskTopic, now: Callable[[], float] = time.time) -> None:
        """`key` is the deployment's."""
        self._store, self._key, self._ask, self._now = store, key, ask, now
        self._topics: dict[str, tuple[float, Topic | None]] = {}

    def value(self, batch: KafkaBatch, trigger: KafkaTrigger) -> Any:
        """The value for an input of type `dataset`: a list of items, or a range of events. It writes the copy if one is
        needed.

        Items are the events' data, or with `envelope` the events as expressions see them. Raises StoreError, and
        UsageError for a batch that cannot be passed in the way its trigger requires.
        """
        items = [as_item(one.event, trigger.envelope) for one in batch.matched]
        way = self._way(batch, trigger, items)
        if way == "inline":
            return items
        return range_of(batch, trigger, self._copy(batch) if way == "capture" else "")

    def _way(self, batch: KafkaBatch, trigger: KafkaTrigger, items: list[Any]) -> Way:
        size = inline_size(items)
        age = self._now() - min(one.record.time for one in batch.matched)
        matters = trigger.events == "auto" and (size is None or size > INLINE_BYTES)
        return choose(trigger.events, size, age, self._topic(batch.first.topic) if matters else None)

    def _copy(self, batch: KafkaBatch) -> str:
        """Write the records into the run's folder; return the name of the copy.

        The name is derived from the records. Two owners of a partition may cut different batches for one run; neither
        then reads the other's copy.
        """
        packed = pack(one.record for one in batch.matched)
        name = copy_name(packed)
        RunFiles(self._store, batch.run, sealing.run_key(self._key, batch.run)).create_bytes(name, packed)
        return name

    def _topic(self, topic: str) -> Topic | None:
        asked, known = self._topics.get(topic, (-_REMEMBERED, None))
        if self._now() >= asked + _REMEMBERED:
            known = self._ask(topic)
            self._topics[topic] = (self._now(), known)
        return known


def range_of(batch: KafkaBatch, trigger: KafkaTrigger, copied: str = "") -> dict[str, Any]:
    """The location of the events; `copied` is the name of their copy, if there is one."""
    first = batch.first
    start, runs = runs_of(one.record.offset for one in batch.matched)
    where = {"topic": first.topic, "topicId": first.topic_id, "partition": first.partition}
    about = {"format": trigger.format, "envelope": trigger.envelope, "copied": copied}
    held = {"start": start, "runs": list(runs), "size": batch.size}
    return {"kafka": {"connection": trigger.connection, **where, **held, **about}}


def inline_size(items: list[Any]) -> int | None:
    """Bytes of the items as JSON; None: inputs do not accept them."""
    return len(msgspec.json.encode(items)) if is_plain(items) else None


def is_plain(value: Any) -> bool:
    """Whether inputs accept the value: it has no bytes, and no number of more than 64 bits."""
    match value:
        case dict():
            return all(map(is_plain, value.values()))
        case list():
            return all(map(is_plain, value))
    return not isinstance(value, bytes) and is_storable(value)
