"""`triggers:` of a document, which turn events into runs. Part of the model; see model.py for its conventions."""

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
"""Bytes of events that are passed in the inputs of a run: far below Temporal's limit, and quick to display."""


def _either(*keys: str) -> PydanticCustomError:
    """Return the error for a model with none or several of these keys."""
    *most, last = [f"`{key}`" for key in keys]
    return PydanticCustomError(
        "one_of", "this needs {keys}, and only one of them", {"keys": f"{', '.join(most)} or {last}"}
    )


class EventBatch(Model):
    """Consecutive matching records of one partition, for one run."""

    max_events: Positive = 500
    max_wait: Duration = Field(default_factory=lambda: 10.0)
    max_bytes: Size = Field(default_factory=lambda: 8 * 2**20)


class DeadLetter(Model):
    """The topic for events that can never start a run."""

    topic: Text


class TriggerBase(Model):
    """Common keys of all triggers."""

    description: str | None = None
    with_: Arguments = Field(default_factory=dict, alias="with")
    """Inputs of the run; templates over `trigger` and `event`."""


class EventTrigger(TriggerBase):
    """Common keys of triggers that receive single events."""

    filter: Expression | None = None
    """An expression over `event` and `trigger`; when false, the event is ignored."""
    schema_: dict[str, JsonValue] | None = Field(default=None, alias="schema")
    """JSON Schema (2020-12) of the event's `data`."""
    max_active: Positive | None = None
    """Limit of open runs of this trigger; default: no limit."""


class KafkaTrigger(EventTrigger):
    """Records of Kafka topics: exactly one run for each matching record, or batch of records."""

    type: Literal["kafka"]
    connection: Identifier
    """Name of a connection in the profile, never inline."""
    topics: Annotated[list[Text], Field(min_length=1)]
    format: Format = "cloudevents"
    envelope: Flag = False
    """`trigger.events` holds whole events instead of their `data`."""
    batch: EventBatch | None = None
    start_from: Literal["earliest", "latest"] = "latest"
    """First offset of a trigger that is deployed for the first time."""
    events: Literal["auto", "inline", "range", "capture"] = "auto"
    """How runs get `trigger.events`: in their inputs, as offsets that tasks read, or as a file written first."""
    dedupe: Expression = "offset"
    """When two records count as one: never (`offset`), with equal CloudEvent source and id (`event`), or with an equal
    value of an expression.
    """
    dead_letter: DeadLetter | None = None
    """Default: `<first topic>.dlt`."""


class ScheduleTrigger(TriggerBase):
    """Times: one run for each tick, started by Temporal's schedules."""

    type: Literal["schedule"]
    cron: list[Text] | Text | None = None
    interval: Duration | None = None
    offset: Duration | None = None
    """Offset from the epoch, with `interval`."""
    timezone: str = "UTC"
    overlap: Literal["skip", "bufferOne", "bufferAll", "cancelOther", "terminateOther", "allowAll"] = "skip"
    catchup_window: Duration = Field(default_factory=lambda: 3600.0)
    """How late a missed tick may still start a run."""
    jitter: Duration | None = None

    @model_validator(mode="after")
    def _one_of(self) -> ScheduleTrigger:
        if (self.cron is None) == (self.interval is None):
            raise _either("cron", "interval")
        return self


class Poll(Model):
    """Lists a prefix at intervals."""

    uri: Uri
    every: Duration = Field(default_factory=lambda: 60.0)


class Notifications(Model):
    """S3-style notifications in Kafka topics."""

    connection: Identifier
    topics: Annotated[list[Text], Field(min_length=1)]


class ObjectTrigger(EventTrigger):
    """New objects in a store, found by notifications through Kafka or a webhook, or by polling."""

    type: Literal["object"]
    poll: Poll | None = None
    kafka: Notifications | None = None
    webhook: Secret | None = None
    start_from: Literal["earliest", "latest"] = "latest"
    """With `poll`: whether objects of the first listing start runs."""
    dead_letter: DeadLetter | None = None

    @model_validator(mode="after")
    def _one_of(self) -> ObjectTrigger:
        if sum(one is not None for one in (self.poll, self.kafka, self.webhook)) != 1:
            raise _either("poll", "kafka", "webhook")
        return self


class Secret(Model):
    """The secret that callers sign with."""

    secret: Identifier
    """Name of the secret; see `treadle doctor`."""


class WebhookTrigger(EventTrigger):
    """HTTP requests to `/hooks/<workflow>/<trigger>`: the answer is 202 once the run exists durably."""

    type: Literal["webhook"]
    secret: Identifier | None = None
    """Name of the secret that callers sign with; default: every caller that reaches the port is accepted."""
    scheme: Literal["standard", "github"] = "standard"
    """Signature scheme: Standard Webhooks, or GitHub's `X-Hub-Signature-256`."""
    format: Literal["cloudevents", "json"] = "json"
    dedupe: Expression = "id"
    """When two requests count as one: with an equal id that the signature covers (`id`), with an equal body (`body`),
    never (`none`), or with an equal value of an expression.
    """
    max_body: Size = Field(default_factory=lambda: 2**20)


Trigger = Annotated[
    KafkaTrigger | ScheduleTrigger | ObjectTrigger | WebhookTrigger,
    Field(discriminator="type"),
]
ObjectTrigger.model_rebuild()
