"""Finds new objects in a listing. Pure: no store, no clock.

Times cannot identify them. A multipart upload is dated when it **began**, copies and synced clocks date objects back,
and many objects share a second. So every handled object is remembered, as 12 bytes of a hash of its name, version
(ETag) and date. All other objects of a listing are new: late ones, those with equal dates, and overwritten ones. A
complete listing also shows deleted objects, which are then forgotten: 100,000 objects need 1.2 MB.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from urllib.parse import unquote, urlsplit

from treadle.primitives.errors import UsageError
from treadle.primitives.events import Event
from treadle.primitives.events.decode import rfc3339
from treadle.primitives.stores.store import ObjectInfo

from .notifications import object_event

TYPE = "dev.treadle.object.created.v1"
"""A listing cannot distinguish a copy from an upload."""
MARK = 12
"""Bytes; two of a million objects share a mark with a probability of 1 in 10^17."""


def mark(found: ObjectInfo) -> bytes:
    """The mark by which an object is remembered."""
    text = f"{found.name}\0{found.version}\0{found.modified!r}"
    return hashlib.blake2b(text.encode("utf-8", "surrogateescape"), digest_size=MARK).digest()


class HandledObjects:
    """The marks of the handled objects."""

    def __init__(self, marks: Iterable[bytes] = ()) -> None:
        self._marks = set(marks)
        self.changed = False
        """Since it was created or saved."""

    def __len__(self) -> int:
        return len(self._marks)

    def fresh(self, listing: Iterable[ObjectInfo]) -> list[ObjectInfo]:
        """The objects that were not handled, oldest first. The listing is complete, so marks of missing objects are
        dropped.

        An empty listing drops nothing: a folder looks empty while its share is not mounted.
        """
        there: set[bytes] = set()
        new: list[ObjectInfo] = []
        for found in listing:
            one = mark(found)
            there.add(one)
            if one not in self._marks:
                new.append(found)
        if there and (gone := self._marks - there):
            self._marks -= gone
            self.changed = True
        return sorted(new, key=lambda found: (found.modified, found.name))

    def handled(self, found: ObjectInfo) -> None:
        """The object has started its run, or never will."""
        self._marks.add(mark(found))
        self.changed = True

    def pack(self) -> bytes:
        return b"".join(sorted(self._marks))

    @staticmethod
    def unpack(data: bytes) -> HandledObjects:
        """Raises ValueError for data that `pack` did not make."""
        if len(data) % MARK:
            raise ValueError("the marks are cut off")
        return HandledObjects(data[start : start + MARK] for start in range(0, len(data), MARK))


def first_look(listing: Iterable[ObjectInfo], deployed: float | None) -> HandledObjects:
    """The objects that count as handled at the first listing: those older than the deployment; None: none of them."""
    seen = HandledObjects(mark(found) for found in listing if deployed is not None and found.modified <= deployed)
    seen.changed = True
    return seen


def check_utf8(found: ObjectInfo) -> None:
    """Raises UsageError for a file that no URI can name."""
    try:
        found.name.encode()
    except UnicodeEncodeError:
        raise UsageError("its name is not UTF-8", "Rename the file.") from None


def event_of(uri: str, found: ObjectInfo) -> Event:
    """The event of an object below the prefix `uri`. Bytes of its name that are not UTF-8 are escaped for display."""
    parts = urlsplit(uri)
    local = parts.scheme == "file"
    folder = unquote(parts.path) if local else parts.path
    key = f"{folder.rstrip('/')}/{found.name.encode(errors='backslashreplace').decode()}"
    when = rfc3339(found.modified)
    about = {"size": found.size, "eTag": found.version.strip('"'), "versionId": None}
    if not local:
        key = key.lstrip("/")
    return object_event(
        TYPE, uri, parts.netloc, key, sequencer=repr(found.modified), time=when, scheme=parts.scheme, **about
    )
