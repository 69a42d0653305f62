"""The model of a workflow document, shared by YAML and the Python builder.

Every field is a key of the language under the same name in camelCase (`max_iterations` is `maxIterations`).
docs/semantics.md defines the meaning of a document; this module defines its keys and values. Fields typed `Count` take
a number or one `${{ }}` expression over `inputs` and `run`, known when the run is planned.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, JsonValue, Strict, StringConstraints, Tag

from .caching import CacheSetting
from .model_base import Arguments, AsWritten, Expression, Flag, FunctionRef, Identifier, Model, Number, Uri
from .object_model import Object, StageObjects
from .triggers import Format, Trigger
from .units import Duration, Size

API_VERSION = "treadle/v1"
WorkflowFile = Annotated[str, StringConstraints(pattern=r"\.(yaml|yml|json)$")]
Template = Annotated[str, StringConstraints(pattern=r"\$\{\{.*\}\}")]
"""Text with at least one `${{ expression }}`."""
Reference = Annotated[str, StringConstraints(pattern=r"^[a-z][A-Za-z0-9_]*(\.[A-Za-z][A-Za-z0-9_]*){0,2}$")]
"""A data edge: a stage id, `inputs.x`, `state.x`, or `LOOP.state.x`."""
ErrorType = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][\w.]*$")]
Scalar = bool | int | float | str | None
Percentage = Annotated[str, StringConstraints(pattern=r"^\d+(\.\d+)?%$")]


def _text_or(other: str) -> Discriminator:
    """Choose a union's branch by the value's type, for errors about one branch; tags (`<text>`) are never keys."""
    return Discriminator(lambda value: "<text>" if isinstance(value, str) else other)


Count = Annotated[
    Annotated[int, Field(ge=1, strict=True), Tag("<number>")] | Annotated[Template, Tag("<text>")],
    _text_or("<number>"),
]


class Source(Model):
    """Files behind a glob, cut into partitions of about `split` bytes where the format allows."""

    uri: Uri
    format: Literal["text", "jsonl", "csv", "parquet", "npy", "fixed"]
    split: Size = Field(default_factory=lambda: 64 * 2**20)
    record_bytes: Count | None = None
    """Length of a record; `fixed` only, and required there."""
    header: Flag = True
    """The first line of a CSV file names the columns."""
    delimiter: Annotated[str, StringConstraints(min_length=1, max_length=1)] = ","
    compression: Literal["auto", "none", "gzip"] = "auto"
    """`auto` decides by the name: `.gz` is gzip, and one split."""
    table: Flag = False
    """`text` only: lines as Arrow tables of one column, `line`."""


class Items(Model):
    """A literal list of records."""

    items: list[JsonValue]
    partitions: Count | None = None
    """Default: min(len(items), 256)."""


class Range(Model):
    """The integers 0 .. range-1."""

    range: Annotated[
        Annotated[int, Field(ge=0, strict=True), Tag("<number>")] | Annotated[Template, Tag("<text>")],
        _text_or("<number>"),
    ]
    partitions: Count | None = None
    """Default: min(range, 256)."""


class Offsets(Model):
    """Records of one partition of a Kafka topic."""

    connection: Identifier
    topic: str
    topic_id: str
    """UUID of the topic. A topic that was deleted and created again is not read."""
    partition: Annotated[int, Field(ge=0, strict=True)]
    start: Annotated[int, Field(ge=0, strict=True)]
    runs: Annotated[list[Annotated[int, Field(ge=1, strict=True)]], Field(min_length=1)]
    """Run lengths from `start`: the number of offsets that belong, then of offsets that do not, and so on in turn."""
    format: Format = "cloudevents"
    envelope: Flag = False
    size: Annotated[int, Field(ge=0, strict=True)] = 0
    """Bytes of the records, for the planner's partitions."""
    copied: str = ""
    """Name of a copy in the run's folder of the store, made before the run started; empty: read the topic."""


class EventRange(Model):
    """The value of `trigger.events` when the run's tasks read the events. For values of inputs, not for documents."""

    kafka: Offsets


def _input_tag(value: Any) -> str:
    if isinstance(value, str):
        return "<reference>"
    keys = value if isinstance(value, dict) else getattr(value, "model_fields_set", ())
    return "<items>" if "items" in keys else "<range>" if "range" in keys else "<source>"


StageInput = Annotated[
    Annotated[Reference, Tag("<reference>")]
    | Annotated[Source, Tag("<source>")]
    | Annotated[Items, Tag("<items>")]
    | Annotated[Range, Tag("<range>")],
    Discriminator(_input_tag),
]


def _value_tag(value: Any) -> str:
    is_range = isinstance(value, EventRange) or (isinstance(value, dict) and "kafka" in value)
    return "<events>" if is_range else _input_tag(value)


DatasetValue = Annotated[
    Annotated[Source, Tag("<source>")]
    | Annotated[Items, Tag("<items>")]
    | Annotated[Range, Tag("<range>")]
    | Annotated[EventRange, Tag("<events>")],
    Discriminator(_value_tag),
]
"""A value for an input of type `dataset`."""


class Retry(Model):
    """How often and when a failed attempt is repeated (Temporal's RetryPolicy, word for word)."""

    maximum_attempts: Annotated[int, Field(ge=1, strict=True)] = 3
    initial_interval: Duration = Field(default_factory=lambda: 0.2)
    backoff_coefficient: AsWritten[Annotated[float, Field(ge=1, strict=True)]] = 2.0
    maximum_interval: Duration = Field(default_factory=lambda: 30.0)
    non_retryable_error_types: list[ErrorType] = []
    """Names of exception classes (`SchemaError`, or `module.SchemaError`) that are not retried."""


class Memory(Model):
    """Bytes an attempt may allocate. A task that ran out of memory gets twice as much, from `start` up to `max`."""

    start: Size
    max: Size | None = None


class Batch(Model):
    """Cuts the input again: a partition of this map has at most this many records or encoded bytes."""

    max_items: Count | None = None
    max_bytes: Size | None = None


class Output(Model):
    """The destination of the stage's partitions: one part each, then `_manifest.json`."""

    uri: Uri
    format: Literal["text", "jsonl", "csv", "parquet", "npy", "fixed"]
    columns: dict[str, Literal["string", "int64", "float64", "boolean", "binary", "timestamp", "date"]] | None = None
    """Names and types, in order: required for Parquet from objects; for CSV only the names are used."""
    header: Flag = True
    delimiter: Annotated[str, StringConstraints(min_length=1, max_length=1)] = ","
    if_exists: Literal["fail", "replace"] = "fail"


class FailedItems(Model):
    """The file that lists finally failed records, as JSON lines in input order."""

    uri: Uri


class Settings(Model):
    """Settings of `defaults`, for every stage, and of a single working stage."""

    retry: Retry | None = None
    timeout: Duration | None = None
    """Limit for one attempt."""
    deadline: Duration | None = None
    """Limit for a stage with all its retries."""
    max_concurrency: Count | None = None
    memory: (
        Annotated[
            Annotated[Memory, Tag("<memory>")] | Annotated[Size, Tag("<size>")],
            Discriminator(lambda value: "<memory>" if isinstance(value, (dict, Memory)) else "<size>"),
        ]
        | None
    ) = None
    executor: Identifier | None = None
    exchange: Literal["auto", "storage", "direct"] | None = None
    durability: Literal["task", "segment"] | None = None
    """The data that survives the loss of a host: every finished task (`task`), or every finished segment (`segment`).
    Default: neither; lost data is computed again.
    """
    backups: Flag | None = None
    """Run a partition that takes far longer than the others a second time in a free slot; the first to finish counts.
    Default: true; never with `idempotent: false`.
    """
    cache: CacheSetting | None = None
    """Keep the stage's results, for later runs of the same code over the same inputs."""


class StageBase(Model):
    description: str | None = None
    needs: list[Reference] = []
    """Stages that must end first; sets the order only, passes no data."""
    when: Expression | None = None
    """When false, the stage is skipped."""


class WorkBase(StageBase, Settings):
    """A stage that runs user functions or moves data."""

    output: Output | None = None
    idempotent: Flag = True


# -- stages ----------

Tolerance = Annotated[
    Annotated[int, Field(ge=0, strict=True), Tag("<number>")] | Annotated[Percentage, Tag("<text>")],
    _text_or("<number>"),
]


class MapStage(WorkBase):
    """Calls `uses` for every record, or once for every partition."""

    type: Literal["map"]
    input: StageInput
    uses: FunctionRef
    per: Literal["record", "partition"] = "record"
    flat: Flag | None = None
    """The result is an iterable of records; default: from the function's return annotation."""
    whole: Flag = False
    """With `per: partition` over text: pass the partition as one `str`."""
    with_: Arguments = Field(default_factory=dict, alias="with")
    batch: Batch | None = None
    metrics: dict[Identifier, Literal["sum", "min", "max"]] = {}
    tolerated_failures: Tolerance | None = None
    failed_items: FailedItems | None = None
    gang: Annotated[int, Field(ge=1, strict=True)] | None = None
    """Exactly this many partitions run together, and may use channels (primitives.channels)."""
    objects: StageObjects = []
    """The shared objects that the function reads and merges into: names, or `{name: read}`."""


class RangePartitioner(Model):
    """Contiguous key ranges, with boundaries from a list, from a broadcast, or from a sample."""

    type: Literal["range"]
    boundaries: (
        Annotated[
            Annotated[list[JsonValue], Tag("<list>")] | Annotated[Reference, Tag("<text>")],
            _text_or("<list>"),
        ]
        | None
    ) = None


class HashPartitioner(Model):
    type: Literal["hash"] = "hash"


class ShuffleStage(WorkBase):
    """Brings records with equal keys (hash) or adjacent keys (range) into one partition."""

    type: Literal["shuffle"]
    input: Annotated[
        Annotated[StageInput, Tag("<one>")] | Annotated[list[StageInput], Field(min_length=1), Tag("<several>")],
        Discriminator(lambda value: "<several>" if isinstance(value, (list, tuple)) else "<one>"),
    ]
    by: Annotated[
        Annotated[Literal["key"], Tag("<key>")]
        | Annotated[FunctionRef, Tag("<text>")]
        | Annotated[list[str], Field(min_length=1), Tag("<list>")],
        Discriminator(lambda value: "<key>" if value == "key" else "<text>" if isinstance(value, str) else "<list>"),
    ]
    """`key`: `record[0]`; a function of the record; or column names of a table."""
    partitions: Count | None = None
    partitioner: Annotated[HashPartitioner | RangePartitioner, Field(discriminator="type")] = HashPartitioner()
    sort: Flag = False
    combine: FunctionRef | None = None


class BroadcastStage(WorkBase):
    """Turns a whole dataset into one read-only value."""

    type: Literal["broadcast"]
    input: StageInput
    limit: Size = Field(default_factory=lambda: 256 * 2**20)
    """Limit of encoded bytes; a larger value fails the stage."""


class ReduceStage(WorkBase):
    """Folds values per key, per partition, or all of them."""

    type: Literal["reduce"]
    input: StageInput
    per: Literal["key", "partition", "all"]
    uses: FunctionRef | None = None
    combine: FunctionRef | None = None
    initial: JsonValue = None
    """Folded in once, as the leftmost operand at the root. An explicit `initial: null` counts."""
    finish: FunctionRef | None = None
    fan_in: Count | None = None
    """Default 16; `per: all` with `combine` only."""
    with_: Arguments = Field(default_factory=dict, alias="with")
    metrics: dict[Identifier, Literal["integer", "number", "string", "boolean", "sum", "min", "max"]] = {}
    objects: StageObjects = []
    """The shared objects that `uses` or `finish` reads and merges into: names, or `{name: read}`."""

    @property
    def has_initial(self) -> bool:
        return "initial" in self.model_fields_set


class BarrierStage(StageBase):
    """Passes its input on once all of it is committed, or the share `quorum`."""

    type: Literal["barrier"]
    input: Reference
    quorum: Percentage = "100%"


class LoopStage(StageBase):
    """Repeats inner stages; `state` is carried from one iteration to the next."""

    type: Literal["loop"]
    state: dict[Identifier, JsonValue]
    """Initial state: a dataset reference (bare string), a JSON scalar, or a template for a scalar."""
    max_iterations: Count
    until: Expression | None = None
    """Evaluated after the body; true ends the loop. Default: all `maxIterations`."""
    on_exhausted: Literal["fail", "succeed"] = "fail"
    stages: dict[Identifier, Stage]
    next: dict[Identifier, JsonValue] = {}


class WorkflowStage(StageBase):
    """Runs another workflow as a child of the run, and waits for its end."""

    type: Literal["workflow"]
    uses: Annotated[Annotated[WorkflowFile, Tag("<text>")] | Annotated[Spec, Tag("<document>")], _text_or("<document>")]
    """The path of its file, relative to this one; or the document itself, the form that a run stores."""
    with_: Arguments = Field(default_factory=dict, alias="with")
    """Values for its inputs; null counts as absent."""


Stage = Annotated[
    MapStage | ShuffleStage | BroadcastStage | ReduceStage | BarrierStage | LoopStage | WorkflowStage,
    Field(discriminator="type"),
]
WorkStage = MapStage | ShuffleStage | BroadcastStage | ReduceStage


# -- the document ----------


class Input(Model):
    """A value given when a run is submitted."""

    type: Literal["string", "boolean", "integer", "number", "uri", "list", "dataset"]
    description: str | None = None
    required: Flag = False
    default: JsonValue = None
    minimum: Number | None = None
    maximum: Number | None = None
    enum: list[Scalar] | None = None


class Spec(Model):
    """A workflow as the user wrote it or, normalised, as every run stores it."""

    api_version: Literal["treadle/v1"]
    kind: Literal["Workflow"] = "Workflow"
    name: Identifier
    description: str | None = None
    labels: dict[str, str] = {}
    inputs: dict[Identifier, Input] = {}
    secrets: list[Identifier] = []
    seed: Annotated[int, Strict()] = 0
    """Seed of `context.rng` and of sampling."""
    objects: dict[Identifier, Object] = {}
    """Shared objects of the run."""
    defaults: Settings = Settings()
    triggers: dict[Identifier, Trigger] = {}
    stages: dict[Identifier, Stage] = Field(min_length=1)
    outputs: dict[Identifier, JsonValue] = {}


LoopStage.model_rebuild()
WorkflowStage.model_rebuild()
Spec.model_rebuild()
