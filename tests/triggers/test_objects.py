"""Each new object starts one run, for any number and origin of notifications."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.primitives.events import Event
from treadle.primitives.events.decode import Undecodable
from treadle.primitives.stores.input_files import list_files
from treadle.primitives.stores.store import ObjectInfo, Store
from treadle.triggers.objects.listing_diff import MARK, HandledObjects, event_of, first_look
from treadle.triggers.objects.notifications import decode_notification, uri_of

OBJECT = {"size": 863, "eTag": "a4c672349820", "sequencer": "174E66E2"}
AWS = {
    "Records": [
        {
            "eventVersion": "2.1",
            "eventSource": "aws:s3",
            "awsRegion": "eu-west-1",
            "eventTime": "2026-11-21T10:00:34.001Z",
            "eventName": "ObjectCreated:Put",
            "responseElements": {"x-amz-request-id": "C3D13FE58DE4C810"},
            "s3": {
                "bucket": {"name": "lake", "arn": "arn:aws:s3:::lake"},
                "object": {"key": "orders/dt%3D2026-11-21/my+file.jsonl", "versionId": "v7", **OBJECT},
            },
        }
    ]
}
MINIO = {
    "EventName": "s3:ObjectCreated:Put",
    "Key": "lake/orders%2Fa.jsonl",
    "Records": [
        {
            "eventVersion": "2.0",
            "eventSource": "minio:s3",
            "awsRegion": "",
            "eventTime": "2026-11-21T10:00:34.001Z",
            "eventName": "s3:ObjectCreated:Put",
            "s3": {"bucket": {"name": "lake"}, "object": {"key": "orders%2Fa.jsonl", **OBJECT}},
        }
    ],
}
EVENTBRIDGE = {
    "version": "0",
    "detail-type": "Object Created",
    "source": "aws.s3",
    "time": "2026-11-21T10:00:34Z",
    "region": "eu-west-1",
    "detail": {
        "bucket": {"name": "lake"},
        "object": {"key": "orders/a+b.jsonl", "size": 5, "etag": "e1", "version-id": "v1", "sequencer": "0062E99A88"},
        "reason": "PutObject",
    },
}
SEAWEED = {
    "key": "/buckets/lake/orders/a.jsonl",
    "event_type": "create",
    "message": {
        "new_entry": {
            "name": "a.jsonl",
            "attributes": {"file_size": 12, "mtime": 1763720000, "md5": "CY9rzUYh03PK3k6DJie09g=="},
        },
        "new_parent_path": "/buckets/lake/orders",
    },
}


def told(document: Any) -> list[Event]:
    return decode_notification(json.dumps(document).encode())


# -- notifications


@pytest.mark.parametrize(
    ("document", "kind", "source", "data"),
    [
        (
            AWS,
            "ObjectCreated:Put",
            "aws:s3.eu-west-1.lake",
            {"key": "orders/dt=2026-11-21/my file.jsonl", "size": 863, "eTag": "a4c672349820", "versionId": "v7"},
        ),
        (
            MINIO,
            "ObjectCreated:Put",
            "minio:s3..lake",
            {"key": "orders/a.jsonl", "size": 863, "eTag": "a4c672349820", "versionId": None},
        ),
        (
            EVENTBRIDGE,
            "ObjectCreated:Put",
            "aws:s3.eu-west-1.lake",
            {"key": "orders/a+b.jsonl", "size": 5, "eTag": "e1", "versionId": "v1"},
        ),
        (
            SEAWEED,
            "ObjectCreated:Put",
            "seaweedfs:s3..lake",
            {"key": "orders/a.jsonl", "size": 12, "eTag": "098f6bcd4621d373cade4e832627b4f6", "versionId": None},
        ),
    ],
    ids=["aws", "minio", "eventbridge", "seaweedfs"],
)
def test_every_store_s_words_become_the_same_event(document: Any, kind: str, source: str, data: dict[str, Any]) -> None:
    (event,) = told(document)
    assert (event.type, event.source, event.subject) == (f"com.amazonaws.s3.{kind}", source, data["key"])
    assert event.data == {"uri": f"s3://lake/{data['key']}", "bucket": "lake", **data}


def test_an_event_that_came_as_a_cloudevent_is_read_too() -> None:
    wrapped = {
        "specversion": "1.0",
        "id": "1",
        "source": "x",
        "type": "com.amazonaws.s3.ObjectCreated:Put",
        "data": AWS,
    }
    assert told(wrapped) == told(AWS)


def changed(**about: Any) -> dict[str, Any]:
    record = json.loads(json.dumps(AWS["Records"][0]))
    record["s3"]["object"] |= {key: value for key, value in about.items() if key in record["s3"]["object"]}
    return {"Records": [record | {key: value for key, value in about.items() if key in record}]}


def test_object_has_one_id_for_repeated_notifications() -> None:
    (first,), (again,) = told(AWS), told(changed(eventTime="2026-11-21T11:00:00Z", responseElements={}))
    assert first.id == again.id


@pytest.mark.parametrize("about", [{"sequencer": "2"}, {"versionId": "v8"}, {"key": "other"}])
def test_another_object_or_version_has_another_id(about: dict[str, Any]) -> None:
    assert told(changed(**about))[0].id != told(AWS)[0].id


@pytest.mark.parametrize(
    "document",
    [
        {"Service": "Amazon S3", "Event": "s3:TestEvent", "Bucket": "lake"},
        {"Records": []},
        changed(eventName="ObjectRemoved:Delete"),
        changed(eventName="s3:ObjectCreated:PutTagging"),
        changed(eventName="s3:ObjectAccessed:Get"),
        {**EVENTBRIDGE, "detail-type": "Object Deleted"},
        {**SEAWEED, "event_type": "delete", "message": {"old_entry": {}}},
        {**SEAWEED, "message": {"new_entry": {"name": "x"}, "new_parent_path": "/buckets/lake/.uploads/7"}},
        {**SEAWEED, "key": "/etc/x", "message": {"new_entry": {"name": "x"}}},
        {**SEAWEED, "message": {"new_entry": {"name": "x", "is_directory": True}}},
    ],
)
def test_notification_without_a_new_object_starts_no_run(document: Any) -> None:
    assert told(document) == []


@pytest.mark.parametrize(
    "document",
    [
        1,
        {},
        {"Records": [1]},
        {"Records": [{}]},
        {"Records": [{"eventName": "ObjectCreated:Put", "s3": {"bucket": {"name": "b"}, "object": {}}}]},
        changed(key=""),
        changed(key=7),
        changed(size="7"),
        changed(size=True),
        changed(eventTime="yesterday"),
        changed(eventTime=7),
        changed(versionId=["v7"]),
        {**EVENTBRIDGE, "detail": {}},
        {**SEAWEED, "message": {"new_entry": 7}},
    ],
)
def test_malformed_notification_is_undecodable(document: Any) -> None:
    with pytest.raises(Undecodable):
        told(document)


KEYS = (
    "Records eventName s3 bucket name object key detail detail-type message new_entry event_type attributes data "
    "specversion size"
)
WORDS = st.sampled_from(["", "ObjectCreated:Put", "create", "Object Created", "a"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS.split()), inner, max_size=5),
    max_leaves=12,
)


@given(JSON)
def test_any_json_is_read_or_undecodable(document: Any) -> None:
    try:
        events = told(document)
    except Undecodable:
        return
    assert all(event.data["key"] for event in events)


@pytest.mark.parametrize("value", [None, b"", b"\xff", b"[" * 100_000])
def test_bytes_outside_json_are_undecodable(value: bytes | None) -> None:
    with pytest.raises(Undecodable):
        decode_notification(value)


NAMES = ["plain.txt", "a*.txt", "[1].txt", "what?.txt", "100%25.txt", "a b#c.txt", "é.txt"]


@pytest.mark.parametrize("name", NAMES)
def test_the_uri_of_an_object_names_it_and_no_other(name: str, tmp_path: Path) -> None:
    for other in (*NAMES, "aa.txt", "1.txt", "whatx.txt"):
        (tmp_path / other).write_text(other)
    (found,) = list_files(uri_of("file", "", str(tmp_path / name)))
    assert found.uri == str(tmp_path / name)


# -- listings


def info(name: str, version: str = "1", modified: float = 0.0) -> ObjectInfo:
    return ObjectInfo(name, 1, version, modified)


@pytest.mark.parametrize(
    "later",
    [
        info("late", modified=-1000.0),
        info("same second", modified=5.0),
        info("a", version="2", modified=5.0),
        info("a", modified=6.0),
        info("a", version="2", modified=4.0),
    ],
    ids=["dated back", "equal date", "overwritten within a second", "same bytes again", "overwritten and dated back"],
)
def test_appearing_object_is_new_for_every_date(later: ObjectInfo) -> None:
    seen = first_look([info("a", modified=5.0)], deployed=10.0)
    there = [later] if later.name == "a" else [info("a", modified=5.0), later]
    assert seen.fresh(there) == [later]
    seen.handled(later)
    assert seen.fresh(there) == []


def test_removed_object_is_forgotten_and_new_when_it_returns() -> None:
    seen = first_look([info("a"), info("b")], deployed=10.0)
    seen.changed = False
    assert seen.fresh([info("b")]) == []
    assert (len(seen), seen.changed) == (1, True), "what is forgotten is to be saved, too"
    assert seen.fresh([info("a"), info("b")]) == [info("a")]


def test_a_folder_that_is_empty_for_a_while_has_nothing_new_when_all_is_back() -> None:
    """For example a share that was not mounted."""
    seen = first_look([info("a"), info("b")], deployed=10.0)
    assert seen.fresh([]) == []
    assert seen.fresh([info("a"), info("b")]) == []


def test_new_objects_come_oldest_first() -> None:
    listing = [info("a", modified=3.0), info("b", modified=1.0), info("c", modified=2.0), info("d", modified=1.0)]
    assert [one.name for one in HandledObjects().fresh(listing)] == ["b", "d", "c", "a"]


def test_start_from_decides_the_result_of_the_first_look() -> None:
    listing = [info("old", modified=5.0), info("new", modified=15.0)]
    assert first_look(listing, deployed=10.0).fresh(listing) == [listing[1]]
    assert first_look(listing, deployed=None).fresh(listing) == listing


OBJECTS = st.builds(info, st.sampled_from("abcd"), st.sampled_from("12"), st.sampled_from([1.0, 2.0, 3.0]))
LISTINGS = st.lists(st.lists(OBJECTS, unique_by=lambda one: one.name, max_size=4), max_size=8)


@given(LISTINGS, st.data())
def test_every_object_starts_at_least_once_and_a_saved_one_never_again(
    listings: list[list[ObjectInfo]], data: st.DataObject
) -> None:
    """Also with crashes that lose unsaved state. An object that returns unchanged is the same one."""
    seen, saved = first_look([], deployed=None), b""
    ever: set[ObjectInfo] = set()
    handled: set[ObjectInfo] = set()
    kept: set[ObjectInfo] = set()
    for listing in listings:
        there = set(listing)
        handled, kept = handled & there, kept & there
        fresh = seen.fresh(listing)
        assert there - ever <= set(fresh) <= there - handled
        for found in fresh[: data.draw(st.integers(0, len(fresh)))]:
            seen.handled(found)
            handled.add(found)
            ever.add(found)
        if data.draw(st.booleans()):
            saved, kept = seen.pack(), set(handled)
        elif data.draw(st.booleans()):
            seen, handled = HandledObjects.unpack(saved), set(kept)


@given(st.lists(OBJECTS))
def test_marks_survive_being_kept(objects: list[ObjectInfo]) -> None:
    seen = first_look(objects, deployed=None)
    for found in objects:
        seen.handled(found)
    assert HandledObjects.unpack(seen.pack()).fresh(objects) == []
    assert len(seen.pack()) == MARK * len(set(objects))


def test_marks_that_were_cut_off_are_refused() -> None:
    with pytest.raises(ValueError, match="cut off"):
        HandledObjects.unpack(bytes(MARK + 1))


def test_a_hundred_thousand_objects_are_small_and_one_more_is_found() -> None:
    listing = [info(f"dt=2026-11-21/part-{number:06}.jsonl", f"{number:x}", 1e9) for number in range(100_000)]
    seen = first_look(listing, deployed=2e9)
    assert len(seen.pack()) == 1_200_000
    assert seen.fresh([*listing, info("one more")]) == [info("one more")]


@pytest.mark.parametrize("folder", ["in", "in box", "100%25"])
def test_an_event_of_a_look_has_the_object_s_own_uri(folder: str, tmp_path: Path) -> None:
    store = Store.open(tmp_path.as_uri())
    store.put(f"{folder}/a.txt", b"x")
    (found,) = Store.open((tmp_path / folder).as_uri()).list()
    event = event_of((tmp_path / folder).as_uri(), found)
    assert list_files(event.data["uri"])[0].uri == event.data["key"] == str(tmp_path / folder / "a.txt")
    assert event_of("file:///", found).data["key"] == "/a.txt"
    assert event_of("s3://lake/in/", found).data["uri"] == "s3://lake/in/a.txt"
    assert event_of("s3://lake", found).data["uri"] == "s3://lake/a.txt"
    assert event_of("s3://lake/100%25/", found).data["key"] == "100%25/a.txt", "keys of stores are as they are"
