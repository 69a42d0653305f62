"""A trigger's first position in a topic, its change, and its record. Without a broker."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from triggers.deployed import document, read

from treadle.cli.trigger_try import _position  # private: a small unit of the command
from treadle.dsl.normalise import normalise
from treadle.orchestrator.environment.home import Home
from treadle.orchestrator.environment.kafka_connections import KafkaConnection
from treadle.orchestrator.environment.profile import Profile
from treadle.primitives import sealing
from treadle.primitives.errors import CorruptError, UsageError
from treadle.primitives.stores.store import Store
from treadle.triggers.kafka import confluent_cluster, offsets, topics
from treadle.triggers.kafka.machine_events import KafkaPartition
from treadle.triggers.kafka.matching import Lineage, lineage
from treadle.triggers.kafka.offsets import SAVE_EVERY, KafkaPositions, StoredMarks, group_of
from treadle.triggers.registry.deployment import Deployment, Position

KEY = b"k" * 32
A0, A1, B0 = KafkaPartition("a", "ua", 0), KafkaPartition("a", "ua", 1), KafkaPartition("b", "ub", 0)
FIRST, END = {A0: 3, A1: 0, B0: 5}, {A0: 10, A1: 20, B0: 30}
TICKS = {"type": "schedule", "cron": "0 2 * * *"}
_STORES = itertools.count()


class Cluster:
    """A cluster's answers about its topics, and the offsets committed to it."""

    def __init__(self) -> None:
        self.policies: dict[str, dict[str, str]] = {}
        self.at: dict[KafkaPartition, int] = {}
        self.committed: list[tuple[Mapping[str, Any], str, dict[KafkaPartition, int]]] = []
        self.occupied = False

    def partitions(self, wanted: Sequence[str]) -> dict[str, list[KafkaPartition]]:
        return {topic: [one for one in END if one.topic == topic] for topic in wanted if topic in ("a", "b")}

    def offsets(self, partitions: Sequence[KafkaPartition], end: bool) -> dict[KafkaPartition, int]:
        return {one: (END if end else FIRST)[one] for one in partitions}

    def offsets_at(self, partitions: Sequence[KafkaPartition], milliseconds: int) -> dict[KafkaPartition, int]:
        assert milliseconds == 1_768_000_000_123
        return {one: self.at[one] for one in partitions}

    def policy(self, topic: str) -> dict[str, str]:
        return self.policies.get(topic, {})

    def commit(self, settings: Mapping[str, Any], group: str, offsets: Mapping[KafkaPartition, int]) -> None:
        if self.occupied:
            raise UsageError("a service runs the trigger now")
        self.committed.append((settings, group, dict(offsets)))


@pytest.fixture
def kafka(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    found = Cluster()
    monkeypatch.setattr(topics, "Topics", lambda *_: found)
    monkeypatch.setattr(confluent_cluster, "commit_as_nobody", found.commit)
    return found


@pytest.fixture
def places(tmp_path: Any) -> KafkaPositions:
    home = Home(tmp_path)
    (home.secrets / "password").touch(0o600)
    (home.secrets / "password").write_text("hidden")
    about = {"bootstrap.servers": "x:1", "secrets": {"sasl.password": "password"}}
    connections = {name: KafkaConnection.model_validate(about) for name in ("prod", "other")}
    return KafkaPositions(home, Profile(kafka=connections))


def trigger(**changes: Any) -> dict[str, Any]:
    return {"type": "kafka", "connection": "prod", "topics": ["a", "b"], "format": "json", **changes}


def deployment(about: Mapping[str, Any], name: str = "live", **others: Any) -> Deployment:
    spec = normalise(read(document({name: about, **others})))
    return Deployment("orders", 1, 0.0, spec, {}, "", "/", begins={})


def begins(places: KafkaPositions, before: Deployment | None = None, **changes: Any) -> dict[str, int]:
    """`topic/partition` -> offset."""
    found = places.begins(deployment(trigger(**changes)), before)["live"]
    assert {one.topic_id for one in found if one.topic == "a"} <= {"ua"}
    return {f"{one.topic}/{one.partition}": one.offset for one in found}


# -- the begin of a version ----------------------------------------------------------------------------------------


@pytest.mark.usefixtures("kafka")
def test_a_new_trigger_begins_with_the_next_record_or_with_the_first_there_is(places: KafkaPositions) -> None:
    assert begins(places) == {"a/0": 10, "a/1": 20, "b/0": 30}
    assert begins(places, startFrom="earliest") == {"a/0": 3, "a/1": 0, "b/0": 5}
    assert begins(places, deployment(trigger(), "other"), startFrom="earliest")["a/0"] == 3


@pytest.mark.usefixtures("kafka")
def test_another_version_begins_where_the_older_one_ends_but_for_topics_that_are_new(places: KafkaPositions) -> None:
    older = deployment(trigger(topics=["a"], startFrom="earliest"))
    assert begins(places, older, startFrom="earliest") == {"a/0": 10, "a/1": 20, "b/0": 5}
    moved = deployment(trigger(connection="other"))
    assert begins(places, moved, startFrom="earliest") == {"a/0": 3, "a/1": 0, "b/0": 5}, "another cluster's topics"
    ticking = deployment(TICKS)
    assert begins(places, ticking, startFrom="earliest")["a/0"] == 3


@pytest.mark.usefixtures("kafka")
def test_each_trigger_that_reads_topics_begins_there_and_others_nowhere(places: KafkaPositions) -> None:
    several = deployment(trigger(topics=["b"]), nightly=TICKS, other=trigger(topics=["b"], startFrom="earliest"))
    ends = {"live": (Position("b", "ub", 0, 30),), "other": (Position("b", "ub", 0, 5),)}
    assert places.begins(several, None) == ends


@pytest.mark.usefixtures("kafka")
def test_a_topic_that_is_not_there_is_refused_by_name(places: KafkaPositions) -> None:
    with pytest.raises(UsageError, match=r"orders\.live: the topic 'c' does not exist in 'prod'"):
        begins(places, topics=["a", "c"])


def test_batches_of_a_compacted_topic_are_refused(places: KafkaPositions, kafka: Cluster) -> None:
    batch = {"maxEvents": 2, "maxWait": "1s"}
    kafka.policies = {"a": {"cleanup.policy": "delete"}, "b": {"cleanup.policy": "compact,delete"}}
    assert begins(places, topics=["a"], batch=batch) == {"a/0": 10, "a/1": 20}
    assert begins(places, topics=["b"]) == {"b/0": 30}
    with pytest.raises(UsageError, match=r"orders\.live: 'b' is compacted"):
        begins(places, batch=batch)


def test_connection_has_the_settings_and_secrets_of_the_profile(places: KafkaPositions) -> None:
    assert places.settings("prod") == {"bootstrap.servers": "x:1", "sasl.password": "hidden"}
    with pytest.raises(UsageError, match="no Kafka connection 'nowhere'"):
        places.settings("nowhere")


# -- changes -------------------------------------------------------------------------------------------------------


def marks(store: Store | None = None, group: str = "g", key: bytes = KEY) -> StoredMarks:
    return StoredMarks(store or Store.open(f"memory://marks-{next(_STORES)}"), key, group)


def newest(**changes: Any) -> Lineage:
    found = lineage([deployment(trigger(**changes))], "live")
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("to", "wanted"),
    [
        ("latest", END),
        ("earliest", FIRST),
        (0, FIRST),
        (4, {A0: 4, A1: 4, B0: 5}),
        (20, {A0: 10, A1: 20, B0: 20}),
        (100, END),
        (datetime.fromtimestamp(1_768_000_000.123, UTC), {A0: 0, A1: 20, B0: 7}),
    ],
)
def test_trigger_seeks_within_the_existing_records(
    places: KafkaPositions, kafka: Cluster, to: Any, wanted: dict[KafkaPartition, int]
) -> None:
    kafka.at = {A0: 0, A1: -1, B0: 7}
    kept = marks()
    for partition in END:
        kept.save(partition, 1)
    found = places.seek(newest(), "g", kept, to)
    assert kafka.committed == [(places.settings("prod"), "g", wanted)]
    assert {one: kept.load(one) for one in END} == wanted, "our own memory follows at once"
    assert set(found) == {Position(one.topic, one.topic_id, one.number, at) for one, at in wanted.items()}


def test_a_trigger_that_is_served_stays_where_it_is(places: KafkaPositions, kafka: Cluster) -> None:
    kafka.occupied = True
    kept = marks()
    kept.save(A0, 7)
    with pytest.raises(UsageError, match="a service runs the trigger now"):
        places.seek(newest(), "g", kept, "earliest")
    assert kept.load(A0) == 7


def test_a_trigger_with_a_topic_that_is_not_there_stays_where_it_is(places: KafkaPositions, kafka: Cluster) -> None:
    with pytest.raises(UsageError, match=r"orders\.live: the topic 'c' does not exist in 'prod'"):
        places.seek(newest(topics=["a", "c"]), "g", marks(), "earliest")
    assert kafka.committed == []


# -- recorded positions --------------------------------------------------------------------------------------------


def test_a_mark_is_saved_at_once_and_then_every_half_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(offsets, "time", SimpleNamespace(monotonic=lambda: now))
    store = Store.open(f"memory://marks-{next(_STORES)}")
    kept = marks(store)
    assert kept.load(A0) is None
    kept.save(A0, 5)
    assert kept.load(A0) == 5, "also on a machine that has just begun to count"
    kept.save(A1, 6)
    now = SAVE_EVERY - 0.1
    kept.save(A0, 7)
    assert (kept.load(A0), kept.load(A1)) == (5, 6)
    now = SAVE_EVERY
    kept.save(A0, 8)
    assert kept.load(A0) == 8
    now += 1.0
    kept.save(A0, 2, now=True)
    assert marks(store).load(A0) == 2
    now += SAVE_EVERY - 1.0
    kept.save(A0, 9)
    assert kept.load(A0) == 2, "half a minute since the last one"


def test_delayed_positions_are_saved_when_a_partition_is_left() -> None:
    kept = marks()
    for partition in (A0, A1, B0):
        kept.save(partition, 1)
        kept.save(partition, 2)
    kept.save(A1, 3, now=True)
    kept.leave([A0, A1])
    assert [kept.load(partition) for partition in (A0, A1, B0)] == [2, 3, 1]


def test_marks_are_of_one_group_one_life_of_a_topic_and_one_partition() -> None:
    store = Store.open(f"memory://marks-{next(_STORES)}")
    marks(store).save(A0, 5)
    assert marks(store).load(A0) == 5
    others = (A1, KafkaPartition("a", "another life", 0))
    assert [marks(store).load(one) for one in others] == [None, None]
    assert marks(store, "h").load(A0) is None
    assert marks(store).load(KafkaPartition("renamed", "ua", 0)) == 5, "a topic is its UUID"
    with pytest.raises(CorruptError):
        marks(store, key=b"x" * 32).load(A0)


def test_marks_that_were_saved_before_are_read_for_ever() -> None:
    store = Store.open(f"memory://marks-{next(_STORES)}")
    sealed = sealing.SealedStore(store, sealing.purpose_key(KEY, b"treadle trigger marks"))
    sealed.put("deployments/marks/g/ua/1", b"\x07")
    assert marks(store).load(A1) == 7


def test_a_group_is_of_one_installation_one_trigger_and_one_life_for_ever() -> None:
    assert group_of(bytes(32), "orders", "live", 3) == "treadle.f5a538bd.orders.live.3"
    found = {group_of(*about) for about in ((KEY, "o", "t", 1), (bytes(32), "o", "t", 1), (KEY, "o", "t", 2))}
    assert len(found | {group_of(KEY, "o", "u", 1)}) == 4


@pytest.mark.parametrize("text", ["soon", "-1", "٣", "0001-01-01T00:00+14:00", "9999-12-31T23:59:59-14:00"])
def test_a_position_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is no position"):
        _position(text)
