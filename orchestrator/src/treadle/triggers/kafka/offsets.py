"""Where triggers stand in their topics: where a version begins, what is done, and how to change that."""

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
from .machine_events import Partition
from .matching import Lineage
from .reader_settings import Reading, reading_of

if TYPE_CHECKING:
    from .topics import Topics

Target: TypeAlias = int | datetime | Literal["earliest", "latest"]
"""An offset, the first record of a time, or an end."""
SAVE_EVERY = 30.0
"""Seconds."""


class KafkaPositions:
    """Where triggers stand in the topics of an environment's clusters."""

    def __init__(self, home: Home, profile: Profile) -> None:
        self._home, self._profile = home, profile

    def settings(self, connection: str) -> dict[str, Any]:
        """What librdkafka needs for a connection of the profile. Raises UsageError."""
        return dict(kafka_settings(self._profile.kafka, connection, self._home.secret))

    def begins(self, deployment: Deployment, before: Deployment | None) -> dict[str, tuple[Position, ...]]:
        """From which offsets on a new version decides, by trigger; measured now. One that reads no topic is left out.

        For a trigger that `before` does not have, `startFrom` says it. Else it is where the older version's part ends,
        which must be an offset that no run was decided for yet. Raises BrokerUnreachable, and UsageError for topics
        that are not there, and for batches of compacted ones.
        """
        found: dict[str, tuple[Position, ...]] = {}
        for name, trigger in sorted(deployment.spec.triggers.items()):
            if reading := reading_of(trigger):
                older = reading_of(before.spec.triggers.get(name)) if before else None
                known = older.topics if older and older.connection == reading.connection else ()
                found[name] = tuple(self._begins(label(deployment.workflow, name), reading, known))
        return found

    def check_rights(self, deployment: Deployment, name: str, key: bytes) -> None:
        """Raises UsageError when the user of the connection may not do what a trigger that reads topics needs, as far
        as the cluster tells it, and BrokerUnreachable."""
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
        """How many brokers and topics a cluster has. Raises BrokerUnreachable, UsageError."""
        from .confluent_cluster import translated

        with translated():
            return self._topics(connection).size()

    def _topics(self, connection: str) -> Topics:
        from .connectivity import Connectivity
        from .topics import Topics

        return Topics(self.settings(connection), Connectivity(connection))

    def seek(self, at: Lineage, group: str, marks: StoredMarks, to: Target) -> tuple[Position, ...]:
        """Let the group of a trigger that nobody runs read on from somewhere else, in every partition of its topics.

        To an offset, or to the first record of a time. Backwards is harmless: runs that are there are not started
        again; but a batch that is entered in its middle starts the rest of it once more. Returns where it stands now.
        Raises UsageError while a service runs the trigger and for topics that are not there, BrokerUnreachable.
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

    def _begins(self, whose: str, reading: Reading, known: Sequence[str]) -> list[Position]:
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


def _all_of(topics: Topics, reading: Reading, whose: str) -> dict[str, list[Partition]]:
    """Topic -> its partitions. Raises UsageError for one that is not there."""
    found = topics.partitions(reading.topics)
    for topic in reading.topics:
        if topic not in found:
            text = f"{whose}: the topic {topic!r} does not exist in {reading.connection!r}"
            raise UsageError(text, "Make it first, or mend its name.")
    return found


def _offsets(topics: Topics, places: Sequence[Partition], to: Target) -> dict[Partition, int]:
    """Within what is there."""
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
    """The consumer group of a trigger: of one deployment key, so that two installations do not share the records of
    a cluster; and of one life, so that a trigger that was removed and added again begins where it says."""
    installation = sealing.hkdf(key, salt=b"treadle consumer groups", info=b"").hex()[:8]
    return f"treadle.{installation}.{label(workflow, trigger)}.{born}"


class StoredMarks:
    """Our own memory of what is done in each partition, sealed, for offsets that Kafka has forgotten.

    deployments/marks/<group>/<topic UUID>/<partition>

    Two owners may write in turn: each offset is one below which all is done, and starting earlier is harmless.
    """

    def __init__(self, store: Store, key: bytes, group: str) -> None:
        self._objects = sealing.SealedStore(store, sealing.purpose_key(key, b"treadle trigger marks"))
        self._group = group
        self._saved: dict[Partition, float] = {}
        self._late: dict[Partition, int] = {}

    def load(self, partition: Partition) -> int | None:
        """Raises StoreError."""
        try:
            return msgspec.msgpack.decode(self._objects.get(self._name(partition)), type=int)
        except MissingError:
            return None

    def save(self, partition: Partition, offset: int, *, now: bool = False) -> None:
        """Every half minute, or `now`; what is left out meanwhile is saved by `leave`. Raises StoreError."""
        clock = time.monotonic()
        if not now and clock < self._saved.get(partition, -SAVE_EVERY) + SAVE_EVERY:
            self._late[partition] = offset
            return
        self._objects.put(self._name(partition), msgspec.msgpack.encode(offset))
        self._saved[partition] = clock
        self._late.pop(partition, None)

    def leave(self, partitions: Iterable[Partition]) -> None:
        """Save what is left out: nobody may read these for longer than Kafka remembers. Raises StoreError."""
        for partition in partitions:
            if (offset := self._late.get(partition)) is not None:
                self.save(partition, offset, now=True)

    def _name(self, partition: Partition) -> str:
        return f"deployments/marks/{self._group}/{partition.topic_id}/{partition.number}"
