"""The version that decides on a record, and the decision."""

from __future__ import annotations

from typing import Any

import pytest
from triggers.deployed import document, read

from treadle.dsl.normalise import normalise
from treadle.primitives.events import Record
from treadle.triggers.kafka.machine_events import KafkaPartition
from treadle.triggers.kafka.matching import Lineage, Unsettled, lineage
from treadle.triggers.registry.deployment import Deployment, Position

S3 = '{"Records": [%s]}'
PUT = '{"eventName": "ObjectCreated:Put", "s3": {"bucket": {"name": "b"}, "object": {"key": "%s", "size": %d}}}'
OBJECTS: dict[str, Any] = {
    "type": "object",
    "kafka": {"connection": "prod", "topics": ["a"]},
    "connection": None,
    "topics": None,
    "format": None,
}
TICKS: dict[str, Any] = {"type": "schedule", "cron": "0 2 * * *", "connection": None, "topics": None, "format": None}


def version(number: int, begins: dict[str, int] | None, *, removed: bool = False, **changes: Any) -> Deployment:
    """`begins`: topic -> offset in its partition 0."""
    about = {"type": "kafka", "connection": "prod", "topics": ["a"], "format": "json", **changes}
    about = {name.removesuffix("_"): value for name, value in about.items() if value is not None}
    spec = normalise(read(document({"live": about})))
    places = None if begins is None else tuple(Position(one, f"u{one}", 0, at) for one, at in begins.items())
    said = None if places is None else {"live": places}
    return Deployment("orders", number, 0.0, spec, {}, "", "/", begins=said, removed=removed)


def known(*history: Deployment) -> Lineage:
    found = lineage(history, "live")
    assert found is not None
    return found


def record(offset: int, topic: str = "a", **more: Any) -> Record:
    return Record(topic, f"u{topic}", 0, offset, **{"value": b"{}", **more})


def numbers(at: Lineage) -> list[int]:
    return [one.version for one in at.versions]


# -- the version ---------------------------------------------------------------------------------------------------


def test_the_newest_version_that_begins_at_or_before_a_record_decides() -> None:
    at = known(version(1, {"a": 5}), version(2, {"a": 10}), version(3, {"a": 10}), version(4, {"a": 20}))
    deciding = {offset: at.deciding(record(offset)).version for offset in (0, 5, 9, 10, 19, 20)}
    assert deciding == {0: 1, 5: 1, 9: 1, 10: 3, 19: 3, 20: 4}
    assert at.judge(record(9)).version == 1


def test_version_owns_partitions_that_it_does_not_name_from_the_first_record() -> None:
    at = known(version(1, {"a": 5}), version(2, {"a": 10}))
    later = Record("a", "ua", 1, 0, value=b"{}")
    again = Record("a", "made again", 0, 0, value=b"{}")
    assert [at.deciding(one).version for one in (later, again)] == [2, 2]


def test_a_topic_is_decided_on_by_versions_that_read_it() -> None:
    at = known(
        version(1, {"a": 5}), version(2, {"a": 10, "b": 7}, topics=["a", "b"]), version(3, {"b": 9}, topics=["b"])
    )
    assert [at.deciding(record(30)).version, at.deciding(record(0)).version] == [2, 1]
    assert [at.deciding(record(offset, "b")).version for offset in (0, 7, 8, 9)] == [2, 2, 2, 3]
    assert at.deciding(record(0, "never read")).version == 3
    begins = {topic: at.begin(KafkaPartition(topic, f"u{topic}", 0)) for topic in ("a", "b", "c")}
    assert begins == {"a": 5, "b": 7, "c": 0}
    assert at.begin(KafkaPartition("a", "ua", 1)) == 0


def test_a_lineage_ends_where_the_trigger_was_not_the_same() -> None:
    first, second = version(1, {}), version(2, {})
    assert numbers(known(first, second)) == [2, 1]
    assert numbers(known(first, version(2, {}, removed=True), version(3, {}))) == [3]
    assert numbers(known(version(1, {}, connection="other"), second)) == [2]
    assert numbers(known(version(1, {}, **OBJECTS), second)) == [2], "objects that are told of in a topic"
    third = version(3, {}, batch={"maxEvents": 2, "maxWait": "1s"})
    assert known(first, second, third).born == 1
    batches = [known(first, second, third).batching(number) for number in (1, 2, 3)]
    assert [one.max_events if one else None for one in batches] == [None, None, 2]
    assert known(first, second).newest.version == 2
    assert known(first, second).version(1).version == 1
    assert lineage([first, version(2, {}, removed=True)], "live") is None
    assert lineage([first], "another") is None
    assert lineage([version(1, {}, **TICKS)], "live") is None
    looked_for = {**OBJECTS, "kafka": None, "poll": {"uri": "s3://b/in"}}
    assert lineage([version(1, {}, **looked_for)], "live") is None
    assert numbers(known(version(1, {}, **looked_for), version(2, {}, **OBJECTS))) == [2]


def test_letters_go_where_the_trigger_says_or_beside_its_first_topic() -> None:
    for about in ({}, OBJECTS):
        mine = known(version(1, {}, **about, deadLetter={"topic": "mine"}))
        assert (mine.newest.reading.letters, known(version(1, {}, **about)).newest.reading.letters) == ("mine", "a.dlt")


def test_records_are_not_judged_while_the_begin_of_a_version_is_unknown() -> None:
    with pytest.raises(Unsettled, match="orders@2"):
        lineage([version(1, {}), version(2, None)], "live")
    assert numbers(known(version(1, None), version(2, {}, removed=True), version(3, {}))) == [3]


# -- the decision on a record --------------------------------------------------------------------------------------


@pytest.mark.parametrize("time", [1.7e12, 1.7e15, 2.0**63 / 1000, -1e12])
def test_a_record_whose_timestamp_no_calendar_has_is_a_dead_letter(time: float) -> None:
    judged = known(version(1, {})).judge(record(0, time=time))
    assert "beyond the calendar" in judged.reason
    assert judged.matches == ()


@pytest.mark.parametrize("time", [0.0, -0.001, 1.7e9])
def test_any_other_timestamp_starts_a_run(time: float) -> None:
    judged = known(version(1, {})).judge(record(7, time=time))
    assert ([one.run for one in judged.matches], judged.reason) == (["orders.live.ua.0.7"], "")


def test_matching_objects_start_runs_and_the_others_are_reported() -> None:
    at = known(version(1, {}, **OBJECTS, filter="10 / event.data.size > 1"))
    puts = ",".join(PUT % (key, size) for key, size in (("one", 5), ("two", 0), ("big", 10), ("three", 0), ("four", 1)))
    judged = at.judge(record(0, value=(S3 % puts).encode()))
    assert [one.event.data["key"] for one in judged.matches] == ["one", "four"]
    assert len({one.run for one in judged.matches}) == 2
    assert judged.reason.count("division by zero") == 2


@pytest.mark.parametrize(("dedupe", "same"), [("offset", False), ("event", True), ("event.data.id", True)])
def test_events_are_identified_by_the_trigger_settings(dedupe: str, same: bool) -> None:
    event = b'{"specversion": "1.0", "id": "%d", "source": "s", "type": "t", "data": {"id": %d}}'
    at = known(version(1, {}, format="cloudevents", dedupe=dedupe))
    judged = [at.judge(record(offset, value=event % (one, one))) for offset, one in enumerate((1, 1, 2))]
    runs = [one.matches[0].run for one in judged]
    assert (runs[0] == runs[1]) is same
    assert runs[2] not in runs[:2]


@pytest.mark.parametrize("time", ["yesterday", "2026-13-01T00:00:00Z", "0001-01-01T00:00:00+23:59"])
def test_an_object_of_a_time_that_is_none_is_a_dead_letter(time: str) -> None:
    at = known(version(1, {}, **OBJECTS))
    put = PUT.replace('"s3"', f'"eventTime": "{time}", "s3"') % ("one", 5)
    judged = at.judge(record(0, value=(S3 % put).encode()))
    assert judged.matches == ()
    assert "is not RFC 3339" in judged.reason
