"""Parses notifications of object stores about new objects into CloudEvents. Pure.

These messages are accepted:

- S3's event messages (2.x: https://docs.aws.amazon.com/AmazonS3/latest/userguide/notification-content-structure.html),
  also as MinIO and Ceph write them
- S3's events of EventBridge (https://docs.aws.amazon.com/AmazonS3/latest/userguide/ev-events.html)
- webhook messages of SeaweedFS's filer (weed/notification/webhook of its sources)

Types and sources follow the CloudEvents adapter for S3
(https://github.com/cloudevents/spec/blob/main/cloudevents/adapters/aws-s3.md). Ids do not, because a store may report
one object twice: they are a hash of bucket, key, version or ETag, and sequencer. `data` describes the object in the
same way for every store: `uri`, `bucket`, `key`, `size`, `eTag`, `versionId`. As a source of a stage, `uri` names
exactly this object: wildcard characters in its name are escaped.
"""

from __future__ import annotations

import base64
import binascii
import glob
import hashlib
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote, unquote_plus

import msgspec

from treadle.primitives.events import Event
from treadle.primitives.events.decode import Undecodable, event_time, parse_json

TYPE = "com.amazonaws.s3."
_NO_NEW_OBJECT = ("PutTagging", "DeleteTagging", "PutRetention", "PutLegalHold", "PutAcl")
"""MinIO's names for changes of an object's metadata, which it lists under ObjectCreated."""
_SEAWEED_BUCKETS = "/buckets/"


def decode_notification(value: bytes | None) -> list[Event]:
    """The new objects in a message; none for deletions and a store's test message. Raises Undecodable."""
    if value is None:
        raise Undecodable("the message has no value (a tombstone)")
    return new_objects(parse_json(value))


def new_objects(document: Any) -> list[Event]:
    """The events of a parsed message. Raises Undecodable for an unknown form."""
    if isinstance(document, Mapping) and "specversion" in document:
        document = document.get("data")
    try:
        match document:
            case {"Records": list(records)}:
                return [event for record in records for event in _of_s3(record)]
            case {"Event": "s3:TestEvent"}:
                return []
            case {"detail-type": str(kind), "detail": Mapping() as detail}:
                return list(_of_eventbridge(document, kind, detail))
            case {"key": str(path), "event_type": str(kind), "message": Mapping() as message}:
                return list(_of_seaweed(path, kind, message))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise Undecodable(f"the notification is not complete: {type(error).__name__}: {error}") from None
    raise Undecodable("it is no notification of an object store: neither S3's Records nor another known form")


def object_event(
    kind: str, source: str, bucket: str, key: str, *, sequencer: str, time: str | None, scheme: str = "s3", **known: Any
) -> Event:
    """The event of a new object. `known`: `size`, `eTag`, `versionId`, if they are known.

    Raises ValueError for an invalid object name, Undecodable for an invalid time.
    """
    size, tag, version = known.get("size"), known.get("eTag"), known.get("versionId")
    if not key or not all(isinstance(one, str) for one in (bucket, key)):
        raise ValueError("it names no object")
    if size is not None and (isinstance(size, bool) or not isinstance(size, int)):
        raise ValueError("size is no whole number")
    identity = msgspec.json.encode([bucket, key, version or tag or "", sequencer])
    data = {
        "uri": uri_of(scheme, bucket, key),
        "bucket": bucket,
        "key": key,
        "size": size,
        "eTag": tag or None,
        "versionId": version or None,
    }
    about: dict[str, Any] = {"subject": key, "time": time, "datacontenttype": "application/json", "data": data}
    event = Event(hashlib.sha256(identity).hexdigest()[:40], source, kind, **about)
    event_time(event)
    return event


def uri_of(scheme: str, bucket: str, key: str) -> str:
    """The URI of exactly this object, for a source; the key of a local file is its absolute path."""
    escaped = glob.escape(key)
    return f"file://{quote(escaped)}" if scheme == "file" else f"{scheme}://{bucket}/{escaped}"


def _of_s3(record: Any) -> Iterator[Event]:
    name = str(record["eventName"]).removeprefix("s3:")
    kind, _, how = name.partition(":")
    if kind != "ObjectCreated" or how in _NO_NEW_OBJECT:
        return
    bucket, found = record["s3"]["bucket"]["name"], record["s3"]["object"]
    source = f"{record.get('eventSource') or 'aws:s3'}.{record.get('awsRegion') or ''}.{bucket}"
    yield object_event(
        TYPE + name,
        source,
        bucket,
        unquote_plus(found["key"]),
        sequencer=str(found.get("sequencer") or ""),
        time=_text(record.get("eventTime")),
        size=found.get("size"),
        eTag=_tag(found.get("eTag") or found.get("etag")),
        versionId=_text(found.get("versionId")),
    )


def _of_eventbridge(document: Mapping[str, Any], kind: str, detail: Mapping[str, Any]) -> Iterator[Event]:
    """EventBridge does not encode keys."""
    if kind != "Object Created":
        return
    bucket, found = detail["bucket"]["name"], detail["object"]
    how = {"PutObject": "Put", "CopyObject": "Copy", "POST Object": "Post"}
    reason = str(detail.get("reason") or "")
    yield object_event(
        f"{TYPE}ObjectCreated:{how.get(reason, reason or 'Put')}",
        f"aws:s3.{document.get('region') or ''}.{bucket}",
        bucket,
        found["key"],
        sequencer=str(found.get("sequencer") or ""),
        time=_text(document.get("time")),
        size=found.get("size"),
        eTag=_tag(found.get("etag")),
        versionId=_text(found.get("version-id")),
    )


def _of_seaweed(path: str, kind: str, message: Mapping[str, Any]) -> Iterator[Event]:
    entry = message.get("new_entry")
    if kind not in ("create", "update", "rename") or not entry or entry.get("is_directory"):
        return
    if parent := message.get("new_parent_path"):
        path = f"{parent.rstrip('/')}/{entry['name']}"
    bucket, _, key = path.removeprefix(_SEAWEED_BUCKETS).partition("/")
    if not path.startswith(_SEAWEED_BUCKETS) or not key or key.startswith(".uploads/"):
        return  # the filer's own files, and parts of unfinished uploads
    about = entry.get("attributes") or {}
    stamp = f"{about.get('mtime', 0)}.{about.get('mtime_ns', 0)}"
    md5 = _hex(about.get("md5"))
    name = "Put" if kind != "rename" else "Copy"
    source = f"seaweedfs:s3..{bucket}"
    size = about.get("file_size")
    yield object_event(
        f"{TYPE}ObjectCreated:{name}", source, bucket, key, sequencer=stamp, time=None, size=size, eTag=md5
    )


def _text(value: Any) -> str | None:
    if value is not None and not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value or None


def _tag(value: Any) -> str | None:
    """The tag without the quotes of HTTP."""
    text = _text(value)
    return text.strip('"') if text else None


def _hex(value: Any) -> str | None:
    try:
        return base64.b64decode(value, validate=True).hex() if value else None
    except (binascii.Error, TypeError):
        return None
