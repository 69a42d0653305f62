"""Determines which version of a trigger decides on a record, its decision, and the run it starts.

All of this depends only on the record and the registry, so that a redelivered record meets the same filter. The start
offsets of a new version are measured when the version is visible to every process. A process that holds a record and
reads the registry **after that** therefore knows every version that could decide on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from msgspec import Struct

from treadle.dsl.templates import template_paths
from treadle.dsl.triggers import EventBatch, KafkaTrigger, ObjectTrigger
from treadle.primitives.errors import UsageError
from treadle.primitives.events import Event, Record
from treadle.primitives.events.decode import Undecodable, decode, event_time
from treadle.primitives.events.records import as_item

from ..event_mapping import Rules, Unfit
from ..objects.notifications import decode_notification
from ..registry.deployment import Deployment
from ..run_ids import event_run, hashed_run, record_run
from ..start_requests import StartOrder
from .batch import EventsOf, KafkaBatch, Match
from .machine_events import Judged, KafkaPartition
from .reader_settings import ReaderSettings, reading_of

EVENTS = ("trigger", "events")


class Version(Rules):
    """A version of a trigger that reads topics."""

    trigger: KafkaTrigger | ObjectTrigger

    def __init__(self, deployment: Deployment, name: str, reading: ReaderSettings) -> None:
        super().__init__(deployment, name)
        self.reading = reading
        """Its settings for reading topics."""
        begins = (deployment.begins or {}).get(name, ())
        self.begins = {(one.topic_id, one.partition): one.offset for one in begins}
        """(topic UUID, partition) -> the first offset on which it decides. A missing partition was created later and
        starts at 0."""

    def events(self, record: Record) -> Sequence[Event]:
        """The events in a record; several only if it reports several objects. Raises Undecodable."""
        _check_time(record)
        if isinstance(self.trigger, ObjectTrigger):
            return decode_notification(record.value)
        return (decode(record, self.trigger.format, self.trigger.connection),)

    def match(self, event: Event, record: Record) -> Match | None:
        """None: the event is filtered out. Raises Unfit."""
        when = event_time(event, record)
        return Match(record, event, self._run(event, record, when)) if self.matches(event, when) else None

    def order_for(self, batch: KafkaBatch, events: EventsOf) -> StartOrder:
        """The start of a batch, with inputs from `with`. `events` is called only when `with` mentions `trigger.events`.

        The batch's time is that of its first event. Its end is in the memo, for owners that cut differently. Raises
        Unfit, and the errors of `events`.
        """
        first = batch.matched[0]
        when, mentioned = event_time(first.event, first.record), template_paths(dict(self.trigger.with_))
        value = self._events(batch, events) if EVENTS in mentioned else None
        if self.reading.batch is None:
            return self.order(batch.run, first.event, when, value)
        return self.order(batch.run, None, when, value, end=batch.end, count=len(batch.matched))

    def _events(self, batch: KafkaBatch, events: EventsOf) -> Any:
        if isinstance(self.trigger, KafkaTrigger):
            return events(batch, self.trigger)
        return [as_item(one.event, False) for one in batch.matched]  # objects are passed by reference

    def _run(self, event: Event, record: Record, when: datetime) -> str:
        if isinstance(self.trigger, ObjectTrigger):
            return event_run(self.workflow, self.name, event)
        match self.trigger.dedupe:
            case "offset":
                return record_run(self.workflow, self.name, record)
            case "event":
                return event_run(self.workflow, self.name, event)
            case expression:
                return hashed_run(self.workflow, self.name, self.dedupe(expression, event, when))


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
        """The version that added it. A trigger that is removed and added again counts as a different one."""
        return self.versions[-1].version

    def version(self, number: int) -> Version:
        """The version of that number."""
        return next(one for one in self.versions if one.version == number)

    def batching(self, number: int) -> EventBatch | None:
        """The `batch` setting of a version."""
        return self.version(number).reading.batch

    def begin(self, partition: KafkaPartition) -> int:
        """The start offset of a partition without a known position: that of the first version that reads the topic."""
        return self._first(partition.topic).begins.get((partition.topic_id, partition.number), 0)

    def deciding(self, record: Record) -> Version:
        """The newest version that begins at or before the record; the first version for records before all versions."""
        place = (record.topic_id, record.partition)
        for version in self.versions:
            if record.topic in version.reading.topics and version.begins.get(place, 0) <= record.offset:
                return version
        return self._first(record.topic)

    def _first(self, topic: str) -> Version:
        return next((one for one in reversed(self.versions) if topic in one.reading.topics), self.versions[0])

    def judge(self, record: Record) -> Judged:
        """Decide on a record."""
        rules = self.deciding(record)
        matches: list[Match] = []
        reasons: list[str] = []
        try:
            events = rules.events(record)
        except Undecodable as error:
            return Judged(record, rules.version, reason=error.message)
        for event in events:
            try:
                if match := rules.match(event, record):
                    matches.append(match)
            except Unfit as error:
                reasons.append(error.message)
        return Judged(record, rules.version, tuple(matches), "; ".join(reasons))


def _check_time(record: Record) -> None:
    """A timestamp in microseconds would be tens of thousands of years in the future. Raises Undecodable."""
    try:
        datetime.fromtimestamp(record.time, UTC)
    except (ValueError, OverflowError, OSError):
        text = f"the record's timestamp, {record.time * 1000:.0f} ms after 1970, is beyond the calendar"
        raise Undecodable(text) from None


class Unsettled(UsageError):
    """A version was deployed whose start offsets are not measured yet. Decisions wait."""


def lineage(history: Sequence[Deployment], name: str) -> Lineage | None:
    """The lineage of a trigger from a workflow's versions, oldest first; None: the newest version has no such trigger
    that reads topics.

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
        versions.append(Version(deployment, name, reading))
    return Lineage(history[-1].workflow, name, tuple(versions)) if versions else None


def _place(trigger: KafkaTrigger | ObjectTrigger, reading: ReaderSettings) -> tuple[str, str]:
    """The properties that a version must share with the previous one to be its successor."""
    return trigger.type, reading.connection
