"""Which version of a trigger decides on a record, and what it says.

Both are functions of the record and the registry alone, so that a record that is delivered again meets the same
filter. A new version begins at offsets that are measured when everybody can see it; who holds a record and looks at
the registry **after that** therefore knows every version that could decide on it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from msgspec import Struct

from treadle.dsl.triggers import EventBatch, KafkaTrigger, ObjectTrigger
from treadle.primitives.errors import UsageError

from ..events import Event, Record, Undecodable, decode, event_time
from ..identity import event_run, hashed_run, record_run
from ..mapping import Rules, Unfit
from ..objects.notifications import decode_notification
from ..registry.deployment import Deployment
from .happenings import Judged, Match, Partition
from .reading import Reading, reading_of


class Version(Struct, frozen=True):
    """One version of the trigger, which reads topics."""

    number: int
    trigger: KafkaTrigger | ObjectTrigger
    rules: Rules
    begins: Mapping[tuple[str, int], int]
    """(topic UUID, partition) -> from where on it decides; a partition that is not named came later: from 0 on."""
    reading: Reading
    """What it wants of its topics."""


class Lineage(Struct, frozen=True):
    """The versions of a trigger since it was last added, newest first."""

    workflow: str
    name: str
    versions: tuple[Version, ...]

    @property
    def newest(self) -> Version:
        return self.versions[0]

    @property
    def born(self) -> int:
        """The version that added it: a trigger that is removed and added again is another one."""
        return self.versions[-1].number

    def version(self, number: int) -> Version:
        """The version of that number."""
        return next(one for one in self.versions if one.number == number)

    def batching(self, number: int) -> EventBatch | None:
        """`batch` of a version."""
        return self.version(number).reading.batch

    def begin(self, partition: Partition) -> int:
        """Where somebody begins who knows no position: where the first version does that reads the topic."""
        return self._first(partition.topic).begins.get((partition.topic_id, partition.number), 0)

    def deciding(self, record: Record) -> Version:
        """The newest version that begins at or before the record; what lies before all of them is the first one's."""
        place = (record.topic_id, record.partition)
        for version in self.versions:
            if record.topic in version.reading.topics and version.begins.get(place, 0) <= record.offset:
                return version
        return self._first(record.topic)

    def _first(self, topic: str) -> Version:
        return next((one for one in reversed(self.versions) if topic in one.reading.topics), self.versions[0])

    def judge(self, record: Record) -> Judged:
        """What becomes of a record."""
        version = self.deciding(record)
        matches: list[Match] = []
        reasons: list[str] = []
        try:
            events = events_of(version, record)
        except Undecodable as error:
            return Judged(record, version.number, reason=error.message)
        for event in events:
            try:
                matches += self.matches(version, event, record)
            except Unfit as error:
                reasons.append(error.message)
        return Judged(record, version.number, tuple(matches), "; ".join(reasons))

    def matches(self, version: Version, event: Event, record: Record) -> list[Match]:
        """What a version makes of an event: a match, or nothing. Raises Unfit."""
        if not version.rules.matches(event, event_time(event, record)):
            return []
        return [Match(event, self._run(version, event, record))]

    def _run(self, version: Version, event: Event, record: Record) -> str:
        if isinstance(version.trigger, ObjectTrigger):
            return event_run(self.workflow, self.name, event)
        match version.trigger.dedupe:
            case "offset":
                return record_run(self.workflow, self.name, record)
            case "event":
                return event_run(self.workflow, self.name, event)
            case expression:
                value = version.rules.dedupe(expression, event, event_time(event, record))
                return hashed_run(self.workflow, self.name, value)


def events_of(version: Version, record: Record) -> Sequence[Event]:
    """The events in a record: several only where it tells of several objects. Raises Undecodable."""
    trigger = version.trigger
    _check_time(record)
    if isinstance(trigger, ObjectTrigger):
        return decode_notification(record.value)
    return (decode(record, trigger.format, trigger.connection),)


def _check_time(record: Record) -> None:
    """A producer that stamps in microseconds is tens of thousands of years ahead. Raises Undecodable."""
    try:
        datetime.fromtimestamp(record.time, UTC)
    except (ValueError, OverflowError, OSError):
        text = f"the record's timestamp, {record.time * 1000:.0f} ms after 1970, is beyond the calendar"
        raise Undecodable(text) from None


class Unsettled(UsageError):
    """A version was deployed, and nobody has measured yet from where on it decides. Judging waits."""


def lineage(history: Sequence[Deployment], name: str) -> Lineage | None:
    """What a workflow's versions, oldest first, say of a trigger; None: the newest has none that reads topics.

    Raises Unsettled.
    """
    versions: list[Version] = []
    for deployment in reversed(history):
        trigger = None if deployment.removed else deployment.spec.triggers.get(name)
        reading = reading_of(trigger)
        if not isinstance(trigger, KafkaTrigger | ObjectTrigger) or reading is None:
            break
        if versions and _place(versions[-1].trigger, versions[-1].reading) != _place(trigger, reading):
            break
        if deployment.begins is None:
            text = f"{deployment.name}: it is not known yet from where on it decides"
            raise Unsettled(text, f"Deploy it again, or start the service: treadle triggers ({name})")
        begins = {(one.topic_id, one.partition): one.offset for one in deployment.begins.get(name, ())}
        versions.append(Version(deployment.version, trigger, Rules(name, trigger), begins, reading))
    return Lineage(history[-1].workflow, name, tuple(versions)) if versions else None


def _place(trigger: KafkaTrigger | ObjectTrigger, reading: Reading) -> tuple[str, str]:
    """What a version must have in common with the one before it to be its successor."""
    return trigger.type, reading.connection
