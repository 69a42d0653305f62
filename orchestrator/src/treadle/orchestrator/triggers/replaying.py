"""Dead letters get another try: judged by the version that counts now, under an id of their own (`....r1`)."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct
from msgspec.structs import replace

from treadle.primitives.errors import UsageError
from treadle.primitives.events.records import as_item

from .events import Event, Record, event_time
from .identity import event_run, label, replay_run
from .kafka.batch import Batch, Matched
from .kafka.deadletters import DeadLetter
from .kafka.judge import lineage
from .kafka.orders import order_for
from .mapping import Rules, Unfit
from .objects.records import Refused
from .registry.deployment import Deployment
from .starting import Started, Starter, StartOrder

MOST = 1000
"""Replays of one letter."""


class Letter(Struct, frozen=True):
    """A dead letter, wherever it is kept. The keys are stable."""

    id: str
    """`orders.dlt/0/17` in a topic; `orders.files/<event id>` of objects that were looked for."""
    trigger: str
    """`orders.live`"""
    version: int
    """Of the deployment that refused it."""
    reason: str
    time: float
    """Of the record, or of the refusal; in seconds since the epoch."""
    place: str
    """Where the event was."""
    record: Record | None = None
    event: Event | None = None
    omitted: bool = False
    """The topic of dead letters did not take the value, for its size."""


def of_topic(letter: DeadLetter) -> Letter:
    record = letter.record
    place = f"{record.topic}/{record.partition}/{record.offset}"
    about = (letter.trigger, letter.version, letter.reason, record.time, place)
    return Letter(letter.id, *about, record=record, omitted=letter.omitted)


def of_object(workflow: str, trigger: str, refused: Refused) -> Letter:
    event = refused.event
    about = (label(workflow, trigger), refused.version, refused.reason, refused.time)
    return Letter(f"{about[0]}/{event.id}", *about, str(event.data.get("uri", event.subject)), event=event)


def orders(deployment: Deployment, name: str, letter: Letter) -> list[StartOrder]:
    """What the letter starts now, under the ids of its events; empty: the filter passes it over.

    Raises UsageError for a letter that is still dead, or whose value is not in it.
    """
    if letter.omitted:
        hint = f"It is in its topic, as long as that keeps it: {letter.place}"
        raise UsageError(f"{letter.id} has no value: it was too large for the topic of dead letters", hint)
    if letter.event is not None:
        return _of_object(deployment, name, letter.event, letter)
    assert letter.record is not None
    at = lineage([replace(deployment, begins={})], name)
    if at is None:
        raise UsageError(f"{deployment.name} has no trigger {name!r} that reads topics", "Deploy it, then replay.")
    judged = at.judge(letter.record)
    if judged.reason:
        raise UsageError(f"{letter.id} is still refused: {judged.reason}", "Mend the trigger, deploy, then replay.")
    return [
        order_for(
            Batch(one.run, at.workflow, deployment.version, name, (Matched(letter.record, one.event),), 0),
            at.newest,
            lambda batch, trigger: [as_item(each.event, trigger.envelope) for each in batch.matched],
        )
        for one in judged.matches
    ]


def _of_object(deployment: Deployment, name: str, event: Event, letter: Letter) -> list[StartOrder]:
    trigger = deployment.spec.triggers.get(name)
    if trigger is None:
        raise UsageError(f"{deployment.name} has no trigger {name!r}", "Deploy it, then replay.")
    rules, when = Rules(name, trigger), event_time(event)
    try:
        if not rules.matches(event, when):
            return []
        run = event_run(deployment.workflow, name, event)
        return [StartOrder(run, deployment.workflow, deployment.version, name, rules.inputs(event, when))]
    except Unfit as error:
        text = f"{letter.id} is still refused: {error.message}"
        raise UsageError(text, "Mend the trigger, deploy, then replay.") from None


async def replay(starter: Starter, order: StartOrder, *, again: bool = False) -> Started:
    """Start the next replay; without `again` only the first, so that asking twice is harmless.

    Raises Unreachable, and UsageError for inputs that the workflow does not take.
    """
    started = Started(order.run, False)
    for number in _numbers(again):
        started = await starter.start(replace(order, run=replay_run(order.run, number), memo={}))
        if started.new:
            break
    return started


def _numbers(again: bool) -> Iterator[int]:
    yield from range(1, MOST + 1 if again else 2)
