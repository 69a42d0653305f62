"""The settings of any trigger that reads Kafka topics."""

from __future__ import annotations

from msgspec import Struct

from treadle.dsl.triggers import EventBatch, KafkaTrigger, ObjectTrigger, TriggerBase


class ReaderSettings(Struct, frozen=True):
    """The location of records, and how they are read."""

    connection: str
    topics: tuple[str, ...]
    letters: str
    """The topic of its dead letters."""
    earliest: bool
    """A trigger deployed for the first time starts with the first existing record; otherwise with the next one."""
    batch: EventBatch | None
    max_active: int | None


def reading_of(trigger: TriggerBase | None) -> ReaderSettings | None:
    """The settings; None: the trigger reads no topic."""
    match trigger:
        case KafkaTrigger():
            connection, topics, start, batch = trigger.connection, trigger.topics, trigger.start_from, trigger.batch
        case ObjectTrigger(kafka=notifications) if notifications is not None:
            connection, topics, start, batch = notifications.connection, notifications.topics, "latest", None
        case _:
            return None
    letters = trigger.dead_letter.topic if trigger.dead_letter else f"{topics[0]}.dlt"
    return ReaderSettings(connection, tuple(topics), letters, start == "earliest", batch, trigger.max_active)
