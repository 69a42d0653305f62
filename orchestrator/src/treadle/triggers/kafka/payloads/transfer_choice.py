"""Chooses how events are passed to the run that they start. Pure."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from treadle.primitives.errors import UsageError

INLINE_BYTES = 64 * 2**10
"""Maximum bytes of events in a run's inputs, unless the trigger requires more. Inputs are read again with every view of
the run."""
NEEDED = 86_400.0
"""Seconds for which records must remain, so that a run that waits or is resumed can read them."""

Way = Literal["inline", "range", "capture"]


class Topic(Struct, frozen=True):
    """How long a topic keeps its records."""

    seconds: float | None
    """None: forever."""
    bytes: int | None = None
    """Maximum bytes of a partition; None: no limit."""
    compacted: bool = False
    """A record is deleted when a newer one with its key arrives."""


def choose(asked: Literal["auto"] | Way, size: int | None, age: float, topic: Topic | None) -> Way:
    """The way of passing a batch; a range only if the topic still has the records when the run reads them.

    `size` is the length of its items as JSON, None when inputs do not accept them; `age` is that of its oldest record,
    in seconds; `topic` None: its retention is unknown. Raises UsageError for events that cannot be inline.
    """
    if asked == "inline" and size is None:
        text = "events with bytes or with whole numbers of more than 64 bits cannot be inline"
        raise UsageError(text, "Write `events: range` or `events: capture`.")
    if asked != "auto":
        return asked
    if size is not None and size <= INLINE_BYTES:
        return "inline"
    if topic is None or topic.compacted or topic.bytes is not None:
        return "capture"
    return "range" if topic.seconds is None or topic.seconds - age >= NEEDED else "capture"
