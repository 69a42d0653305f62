"""`triggers:` of a document: what turns events into runs. Part of the one model; see model.py for its conventions."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, JsonValue, StringConstraints, model_validator
from pydantic_core import PydanticCustomError

from .model_base import Arguments, Expression, Flag, Identifier, Model, Uri
from .units import Duration, Size

Text = Annotated[str, StringConstraints(min_length=1)]
Positive = Annotated[int, Field(ge=1, strict=True)]
Format = Literal["cloudevents", "json", "raw"]
INLINE_LIMIT = 64 * 2**10
"""Bytes of events that a run gets in its inputs: far below what Temporal takes, and quick to show."""


def _either(*keys: str) -> PydanticCustomError:
    """The error of a model that has none or several of these keys."""
    *most, last = [f"`{key}`" for key in keys]
    return PydanticCustomError(
        "one_of", "this needs {keys}, and only one of them", {"keys": f"{', '.join(most)} or {last}"}
    )


class EventBatch(Model):
    """Consecutive matching records of one partition that one run gets together."""

    max_events: Positive = 500
    max_wait: Duration = Field(default_factory=lambda: 10.0)
    max_bytes: Size = Field(default_factory=lambda: 8 * 2**20)


class DeadLetter(Model):
    """Where events go that can never start a run."""

    topic: Text


class TriggerBase(Model):
    """What all triggers have."""

    description: str | None = None
    with_: Arguments = Field(default_factory=dict, alias="with")
    """Inputs of the run; templates over `trigger` and `event`."""


class EventTrigger(TriggerBase):
    """What triggers have that see events one by one."""

    filter: Expression | None = None
    """Over `event` and `trigger`; false: the event is passed over."""
    schema_: dict[str, JsonValue] | None = Field(default=None, alias="schema")
    """JSON Schema (2020-12) of the event's `data`."""
    max_active: Positive | None = None
    """Runs of this trigger open at a time; None: no limit."""


class KafkaTrigger(EventTrigger):
    """Records of Kafka topics: exactly one run for each matching record, or batch of them."""

    type: Literal["kafka"]
    connection: Identifier
    """Named in the profile, never inline."""
    topics: Annotated[list[Text], Field(min_length=1)]
    format: Format = "cloudevents"
    envelope: Flag = False
    """`trigger.events` holds whole events; else their `data`."""
    batch: EventBatch | None = None
    start_from: Literal["earliest", "latest"] = "latest"
    """Where a trigger deployed for the first time begins."""
    events: Literal["auto", "inline", "range", "capture"] = "auto"
    """How runs get `trigger.events`: in their inputs, as offsets that tasks read, or as a file written first."""
    dedupe: Expression = "offset"
    """What makes two records one: nothing (`offset`), the CloudEvent's source and id (`event`), or an expression."""
    dead_letter: DeadLetter | None = None
    """None: `<first topic>.dlt`."""


class ScheduleTrigger(TriggerBase):
    """Times: one run for each tick, made by Temporal's own schedules."""

    type: Literal["schedule"]
    cron: list[Text] | Text | None = None
    interval: Duration | None = None
    offset: Duration | None = None
    """From the epoch, with `interval`."""
    timezone: str = "UTC"
    overlap: Literal["skip", "bufferOne", "bufferAll", "cancelOther", "terminateOther", "allowAll"] = "skip"
    catchup_window: Duration = Field(default_factory=lambda: 3600.0)
    """How late a missed tick may still start."""
    jitter: Duration | None = None

    @model_validator(mode="after")
    def _one_of(self) -> ScheduleTrigger:
        if (self.cron is None) == (self.interval is None):
            raise _either("cron", "interval")
        return self


class Poll(Model):
    """Looks at a prefix again and again."""

    uri: Uri
    every: Duration = Field(default_factory=lambda: 60.0)


class Notifications(Model):
    """S3-style notifications in Kafka topics."""

    connection: Identifier
    topics: Annotated[list[Text], Field(min_length=1)]


class ObjectTrigger(EventTrigger):
    """Objects that appear in a store: by notifications through Kafka or a webhook, or by looking."""

    type: Literal["object"]
    poll: Poll | None = None
    kafka: Notifications | None = None
    webhook: Secret | None = None
    start_from: Literal["earliest", "latest"] = "latest"
    """`poll`: whether objects that are there at the first look count."""
    dead_letter: DeadLetter | None = None

    @model_validator(mode="after")
    def _one_of(self) -> ObjectTrigger:
        if sum(one is not None for one in (self.poll, self.kafka, self.webhook)) != 1:
            raise _either("poll", "kafka", "webhook")
        return self


class Secret(Model):
    """What callers sign with."""

    secret: Identifier
    """Name of the secret; see `treadle doctor`."""


class WebhookTrigger(EventTrigger):
    """HTTP requests to `/hooks/<workflow>/<trigger>`: 202 once the run exists, durably."""

    type: Literal["webhook"]
    secret: Identifier | None = None
    """Name of the secret callers sign with; None: anybody who reaches the port may call."""
    scheme: Literal["standard", "github"] = "standard"
    """How a request is signed: Standard Webhooks, or GitHub's `X-Hub-Signature-256`."""
    format: Literal["cloudevents", "json"] = "json"
    dedupe: Expression = "id"
    """`id`: one that the signature covers; `body`: the same body twice is one event; `none`; or an expression."""
    max_body: Size = Field(default_factory=lambda: 2**20)


Trigger = Annotated[
    KafkaTrigger | ScheduleTrigger | ObjectTrigger | WebhookTrigger,
    Field(discriminator="type"),
]
ObjectTrigger.model_rebuild()
