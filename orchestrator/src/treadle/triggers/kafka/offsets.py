"""Offsets of triggers in their topics: the start of a version, the completed offsets, and how to change them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import msgspec

from treadle.orchestrator.environment.home import Home
from treadle.orchestrator.environment.kafka_connections import kafka_settings
from treadle.orchestrator.environment.profile import Profile
from treadle.primitives import sealing
from treadle.primitives.errors import MissingError, UsageError
from treadle.primitives.stores.store import Store

from ..registry.deployment import Deployment, Position
from ..run_ids import label
from .machine_events import KafkaPartition
from .matching import Lineage
from .reader_settings import ReaderSettings, reading_of

if TYPE_CHECKING:
    from .topics import Topics

Target: TypeAlias = int | datetime | Literal["earliest", "latest"]
"""An offset, the first record at or after a time, or an end."""
SAVE_EVERY = 30.0
"""Seconds."""


class KafkaPositions:
    """Offsets of triggers in the topics of an environment's clusters."""

    def __init__(self, home: Home, profile: Profile) -> None:
        self._home, self._profile = home, profile

    def settings(self, connection: str) -> dict[str, Any]:
        """librdkafka's settings for a connection of the profile. Raises UsageError."""
        return dict(kafka_settings(self._profile.kafka, connection, self._home.secret))

    def begins(self, deployment: Deployment, before: Deployment | None) -> dict[str, tuple[Position, ...]]:
        """The offsets at which a new version begins to decide, by trigger; measured now. Triggers that read no topic
        are omitted.

        For a trigger that `before` does not have, `startFrom` determines them. Otherwise they are the end of the older
        version's range, and no run may have been decided for them yet. Raises BrokerUnreachable, and UsageError for
        missing topics and for batches of compacted topics.
        """
        found: dict[str, tuple[Position, ...]] = {}
        for name, trigger in sorted(deployment.spec.triggers.items()):
            if reading := reading_of(trigger):
                older = reading_of(before.spec.triggers.get(name)) if before else None
                known = older.topics if older and older.connection == reading.connection else ()
                found[name] = tuple(self._begins(label(deployment.workflow, name), reading, known))
        return found

    def check_rights(self, deployment: Deployment, name: str, key: bytes) -> None:
        """Raises UsageError when the user of the connection lacks rights that the trigger needs, as far as the cluster
        reports them, and BrokerUnreachable."""
        from .acls import HINT, lacking
        from .confluent_cluster import translated

        reading = reading_of(deployment.spec.triggers[name])
        if reading is None:
            return
        group = group_of(key, deployment.workflow, name, deployment.version)
        with translated():
            problems = list(
                lacking(self.settings(reading.connection), self._topics(reading.connection), reading, group)
            )
        if problems:
            whose = f"{label(deployment.workflow, name)}, connection {reading.connection}"
            raise UsageError(f"{whose}: {'; '.join(problems)}", HINT)

    def size(self, connection: str) -> tuple[int, int]:
        """The number of brokers and topics of a cluster. Raises BrokerUnreachable, UsageError."""
        from .confluent_cluster import translated

        with translated():
            return self._topics(connection).size()

    def _topics(self, connection: str) -> Topics:
        from .connectivity import Connectivity
        from .topics import Topics

        return Topics(self.settings(connection), Connectivity(connection))

    def seek(self, at: Lineage, group: str, marks: StoredMarks, to: Target) -> tuple[Position, ...]:
        """Move the group of a trigger that is not running to another position, in every partition of its topics.

        The position is an offset, or the first record at or after a time. Moving backwards is harmless: existing runs
        are not started again. But a batch that is entered in its middle starts its remaining part once more. Returns
        the new positions. Raises UsageError while a service runs the trigger and for missing topics, BrokerUnreachable.
        """
        from .confluent_cluster import commit_as_nobody, translated

        reading = at.newest.reading
        settings = self.settings(reading.connection)
        with translated():
            topics = self._topics(reading.connection)
            found = _all_of(topics, reading, label(at.workflow, at.name))
            wanted = _offsets(topics, [one for some in found.values() for one in some], to)
            commit_as_nobody(settings, group, wanted)
        for partition, offset in wanted.items():
            marks.save(partition, offset, now=True)
        return tuple(Position(one.topic, one.topic_id, one.number, offset) for one, offset in wanted.items())

    def _begins(self, whose: str, reading: ReaderSettings, known: Sequence[str]) -> list[Position]:
        from .confluent_cluster import translated

        with translated():
            topics = self._topics(reading.connection)
            found = _all_of(topics, reading, whose)
            for topic in reading.topics:
                if reading.batch and "compact" in topics.policy(topic).get("cleanup.policy", ""):
                    text = (
                        f"{whose}: {topic!r} is compacted, and a batch is known by its first record, which may vanish"
                    )
                    raise UsageError(text, "Leave `batch` out.")
            places = [topics.offsets(some, end=topic in known or not reading.earliest) for topic, some in found.items()]
        return [
            Position(one.topic, one.topic_id, one.number, offset) for some in places for one, offset in some.items()
        ]


def _all_of(topics: Topics, reading: ReaderSettings, whose: str) -> dict[str, list[KafkaPartition]]:
    """Topic -> its partitions. Raises UsageError for a missing topic."""
    found = topics.partitions(reading.topics)
    for topic in reading.topics:
        if topic not in found:
            text = f"{whose}: the topic {topic!r} does not exist in {reading.connection!r}"
            raise UsageError(text, "Make it first, or mend its name.")
    return found


def _offsets(topics: Topics, places: Sequence[KafkaPartition], to: Target) -> dict[KafkaPartition, int]:
    """The offsets for a target, limited to existing records."""
    ends, begins = topics.offsets(places, end=True), topics.offsets(places, end=False)
    match to:
        case "latest":
            return ends
        case "earliest":
            return begins
        case datetime():
            there = topics.offsets_at(places, int(to.timestamp() * 1000))
            return {one: offset if offset >= 0 else ends[one] for one, offset in there.items()}
    return {one: min(max(to, begins[one]), ends[one]) for one in places}


def group_of(key: bytes, workflow: str, trigger: str, born: int) -> str:
    """The consumer group of a trigger. It contains a digest of the deployment key, so that two installations do not
    share the records of a cluster. It also contains the version that added the trigger, so that a trigger that is
    removed and added again starts at its own position."""
    installation = sealing.hkdf(key, salt=b"treadle consumer groups", info=b"").hex()[:8]
    return f"treadle.{installation}.{label(workflow, trigger)}.{born}"


class StoredMarks:
    """Our own sealed record of completed offsets in each partition, for offsets that Kafka has forgotten.

        deployments/marks/<group>/<topic UUID>/<partition>

    Two owners may write in turn: below each written offset everything is done, and starting earlier is harmless.
    """

    def __init__(self, store: Store, key: bytes, group: str) -> None:
        self._objects = sealing.SealedStore(store, sealing.purpose_key(key, b"treadle trigger marks"))
        self._group = group
        self._saved: dict[KafkaPartition, float] = {}
        self._late: dict[KafkaPartition, int] = {}

    def load(self, partition: KafkaPartition) -> int | None:
        """Raises StoreError."""
        try:
            return msgspec.msgpack.decode(self._objects.get(self._name(partition)), type=int)
        except MissingError:
            return None

    def save(self, partition: KafkaPartition, offset: int, *, now: bool = False) -> None:
        """Save every half minute, or `now`; `leave` saves skipped offsets. Raises StoreError."""
        clock = time.monotonic()
        if not now and clock < self._saved.get(partition, -SAVE_EVERY) + SAVE_EVERY:
            self._late[partition] = offset
            return
        self._objects.put(self._name(partition), msgspec.msgpack.encode(offset))
        self._saved[partition] = clock
        self._late.pop(partition, None)

    def leave(self, partitions: Iterable[KafkaPartition]) -> None:
        """Save skipped offsets, because these partitions may stay unread for longer than Kafka remembers them. Raises
        StoreError."""
        for partition in partitions:
            if (offset := self._late.get(partition)) is not None:
                self.save(partition, offset, now=True)

    def _name(self, partition: KafkaPartition) -> str:
        return f"deployments/marks/{self._group}/{partition.topic_id}/{partition.number}"
