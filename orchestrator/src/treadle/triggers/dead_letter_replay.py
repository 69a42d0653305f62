"""Replays dead letters of every kind: with the current version, under run ids of their own."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from treadle.dsl.triggers import KafkaTrigger
from treadle.primitives.errors import UsageError
from treadle.primitives.events.decode import Undecodable, event_time, point

from .event_mapping import Rules, Unfit
from .kafka.batch import EventsOf, KafkaBatch
from .kafka.dead_letters import KafkaDeadLetter
from .kafka.matching import Lineage, lineage
from .objects.seen_objects import RefusedObject
from .registry.deployment import Deployment
from .run_ids import event_run, label, replay_run
from .start_requests import RunStarted, Starter, StartOrder

MOST = 1000
"""Maximum replays of one letter."""


class StoredDeadLetter(Struct, frozen=True):
    """A dead letter, from a topic or from polled objects."""

    id: str
    """`orders.dlt/0/17` in a topic; `orders.files/<event id>` for polled objects."""
    trigger: str
    """`orders.live`"""
    version: int
    """Version of the deployment that refused it."""
    reason: str
    time: float
    """Time of the record or of the refusal, in seconds since the epoch; 0: not a valid date."""
    place: str
    """Location of the event."""
    kept: KafkaDeadLetter | RefusedObject


def of_topic(letter: KafkaDeadLetter) -> StoredDeadLetter:
    record = letter.record
    place = f"{record.topic}/{record.partition}/{record.offset}"
    return StoredDeadLetter(
        letter.id, letter.trigger, letter.version, letter.reason, point(record.time).timestamp(), place, letter
    )


def of_object(workflow: str, trigger: str, refused: RefusedObject) -> StoredDeadLetter:
    event, name = refused.event, label(workflow, trigger)
    place = str(event.data.get("uri", event.subject))
    return StoredDeadLetter(f"{name}/{event.id}", name, refused.version, refused.reason, refused.time, place, refused)


def orders(
    deployment: Deployment, name: str, letter: StoredDeadLetter, events: EventsOf, number: int = 1
) -> list[StartOrder]:
    """The starts of replay `number` of the letter; none: it is filtered out.

    Raises UsageError if the letter would be refused again, or does not contain its value.
    """
    if isinstance(letter.kept, RefusedObject):
        return _of_object(deployment, name, letter.kept, number)
    at = lineage([replace(deployment, begins={})], name)
    if at is None:
        raise UsageError(f"{deployment.name} has no trigger {name!r} that reads topics", "Deploy it, then replay.")
    return replay_orders(letter.kept, at, events, number)


def replay_orders(letter: KafkaDeadLetter, at: Lineage, events: EventsOf, number: int = 1) -> list[StartOrder]:
    """The starts for the letter's record now; none: the newest version filters it out.

    Replay `number` of a letter has one run, however often it is requested. Records of a batch are replayed one by one.
    `events` makes a copy instead of a range of the topic, because the record may have expired there. Raises UsageError
    with the reason for a record that would be refused again, or whose value was omitted.
    """
    rules, record = at.newest, letter.record
    if letter.omitted:
        where = f"{record.topic}, partition {record.partition}, offset {record.offset}"
        raise UsageError(f"{letter.id} does not hold the value, which was too large", f"It may still be at {where}.")
    try:
        matches = [match for event in rules.events(record) if (match := rules.match(event, record))]
        runs = [replace(match, run=replay_run(match.run, number)) for match in matches]
        batches = [KafkaBatch(rules.version, (one,), record.offset + 1) for one in runs]
        return [rules.order_for(one, lambda batch, trigger: events(batch, _copying(trigger))) for one in batches]
    except (Undecodable, Unfit) as error:
        raise UsageError(f"{letter.id} is a dead letter still: {error.message}", error.hint) from None


def _copying(trigger: KafkaTrigger) -> KafkaTrigger:
    return trigger if trigger.events == "inline" else trigger.model_copy(update={"events": "capture"})


def _of_object(deployment: Deployment, name: str, refused: RefusedObject, number: int) -> list[StartOrder]:
    event = refused.event
    rules, when = Rules(deployment, name), event_time(event)
    try:
        if not rules.matches(event, when):
            return []
        return [rules.order(replay_run(event_run(deployment.workflow, name, event), number), event, when)]
    except Unfit as error:
        raise UsageError(f"{event.id} is a dead letter still: {error.message}", error.hint) from None


async def replay(
    starter: Starter,
    deployment: Deployment,
    name: str,
    letter: StoredDeadLetter,
    events: EventsOf,
    *,
    again: bool = False,
) -> list[RunStarted]:
    """Start the next replay. Without `again` only the first one is started, so that a repeated request is harmless.

    Raises Unreachable, and UsageError for a letter that would be refused again.
    """
    done: list[RunStarted] = []
    for number in range(1, MOST + 1 if again else 2):
        done = [await starter.start(one) for one in orders(deployment, name, letter, events, number)]
        if not done or any(one.new for one in done):
            break
    return done
