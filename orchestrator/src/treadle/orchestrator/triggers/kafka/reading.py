"""What a trigger that reads Kafka topics wants of them, whatever its type."""

from __future__ import annotations

from msgspec import Struct

from treadle.dsl.triggers import EventBatch, KafkaTrigger, ObjectTrigger, TriggerBase


class Reading(Struct, frozen=True):
    """Where records are, and how they are taken."""

    connection: str
    topics: tuple[str, ...]
    letters: str
    """The topic of its dead letters."""
    earliest: bool = False
    """A trigger that is deployed for the first time begins with the first record there is, else with the next one."""
    batch: EventBatch | None = None
    max_active: int | None = None


def reading_of(trigger: TriggerBase | None) -> Reading | None:
    """None: it reads no topic."""
    match trigger:
        case KafkaTrigger():
            earliest = trigger.start_from == "earliest"
            found = Reading(trigger.connection, tuple(trigger.topics), "", earliest, trigger.batch, trigger.max_active)
        case ObjectTrigger(kafka=notifications) if notifications is not None:
            about = (notifications.connection, tuple(notifications.topics))
            found = Reading(*about, "", max_active=trigger.max_active)
        case _:
            return None
    letters = trigger.dead_letter.topic if trigger.dead_letter else f"{found.topics[0]}.dlt"
    return Reading(found.connection, found.topics, letters, found.earliest, found.batch, found.max_active)
