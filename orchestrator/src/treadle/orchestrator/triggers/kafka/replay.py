"""Dead letters that get another try, by the newest version of their trigger."""

from __future__ import annotations

from treadle.dsl.triggers import KafkaTrigger
from treadle.primitives.errors import UsageError

from ..events import Undecodable
from ..identity import replay_run
from ..mapping import Unfit
from ..starting import StartOrder
from .batch import Batch, EventsOf, Matched
from .deadletters import DeadLetter
from .happenings import Match
from .judge import Lineage, events_of
from .orders import order_for


def replay_orders(letter: DeadLetter, at: Lineage, events: EventsOf, number: int = 1) -> list[StartOrder]:
    """The starts that the letter's record asks for now; none: the newest version passes it over.

    Replay `number` of a letter has one run, however often it is asked for. Records of a batch are replayed one by one.
    `events` makes a copy where a range of the topic would not do, since the record may have expired there. Raises
    UsageError with the reason for a record that is a dead letter still, or whose value was omitted.
    """
    if letter.omitted:
        where = f"{letter.record.topic}, partition {letter.record.partition}, offset {letter.record.offset}"
        raise UsageError(f"{letter.id} does not hold the value, which was too large", f"It may still be at {where}.")
    try:
        found = events_of(at.newest, letter.record)
        matches = [match for event in found for match in at.matches(at.newest, event, letter.record)]
        return [_order(at, letter, match, number, events) for match in matches]
    except (Undecodable, Unfit) as error:
        raise UsageError(f"{letter.id} is a dead letter still: {error.message}", error.hint) from None


def _order(at: Lineage, letter: DeadLetter, match: Match, number: int, events: EventsOf) -> StartOrder:
    run, one = replay_run(match.run, number), (Matched(letter.record, match.event),)
    batch = Batch(run, at.workflow, at.newest.number, at.name, one, letter.record.offset + 1)
    return order_for(batch, at.newest, lambda batch, trigger: events(batch, _copying(trigger)))


def _copying(trigger: KafkaTrigger) -> KafkaTrigger:
    return trigger if trigger.events == "inline" else trigger.model_copy(update={"events": "capture"})
