"""The one model of a workflow document: what YAML loads into and what the Python builder makes.

Every field is a key of the language under the same name in camelCase (`max_iterations` is `maxIterations`).
What a document means is written in docs/semantics.md; this module only says what it may contain.
Fields typed `Count` take a number or one `${{ }}` expression over `inputs` and `run`, known when the run is planned.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, JsonValue, Strict, StringConstraints, Tag

from .caching import CacheSetting
from .model_base import Arguments, AsWritten, Expression, Flag, Identifier, Model, Number, Uri
from .triggers import Format, Trigger
from .units import Duration, Size

API_VERSION = "treadle/v1"
FunctionRef = Annotated[str, StringConstraints(pattern=r"^(captured:[0-9a-f]+|[A-Za-z_][\w.]*:[A-Za-z_][\w.]*)$")]
"""`module:qualname`, or `captured:<digest>` for a function taken by value into the bundle."""
WorkflowFile = Annotated[str, StringConstraints(pattern=r"\.(yaml|yml|json)$")]
Template = Annotated[str, StringConstraints(pattern=r"\$\{\{.*\}\}")]
"""Text with at least one `${{ expression }}`."""
Reference = Annotated[str, StringConstraints(pattern=r"^[a-z][A-Za-z0-9_]*(\.[A-Za-z][A-Za-z0-9_]*){0,2}$")]
"""A data edge: a stage id, `inputs.x`, `state.x`, or `LOOP.state.x`."""
ErrorType = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][\w.]*$")]
Scalar = bool | int | float | str | None
Percentage = Annotated[str, StringConstraints(pattern=r"^\d+(\.\d+)?%$")]


def _text_or(other: str) -> Discriminator:
    """Decides a union by what was written, so that an error speaks of one branch; tags (`<text>`) are never keys."""
    return Discriminator(lambda value: "<text>" if isinstance(value, str) else other)


Count = Annotated[
    Annotated[int, Field(ge=1, strict=True), Tag("<number>")] | Annotated[Template, Tag("<text>")],
    _text_or("<number>"),
]


# -- inputs of a stage ----------


class Source(Model):
    """Files behind a glob, cut into partitions of about `split` bytes where the format allows."""

    uri: Uri
    format: Literal["text", "jsonl", "csv", "parquet", "npy", "fixed"]
    split: Size = Field(default_factory=lambda: 64 * 2**20)
    record_bytes: Count | None = None
    """Length of a record; `fixed` only, and required there."""
    header: Flag = True
    """Whether the first line of a CSV file names the columns."""
    delimiter: Annotated[str, StringConstraints(min_length=1, max_length=1)] = ","
    compression: Literal["auto", "none", "gzip"] = "auto"
    """`auto` looks at the name: `.gz` is gzip, and one split."""
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
    """UUID: of a topic that was deleted and made again nothing is read."""
    partition: Annotated[int, Field(ge=0, strict=True)]
    start: Annotated[int, Field(ge=0, strict=True)]
    runs: Annotated[list[Annotated[int, Field(ge=1, strict=True)]], Field(min_length=1)]
    """From `start` on, taking turns: so many offsets that belong, so many that do not, ..."""
    format: Format = "cloudevents"
    envelope: Flag = False
    size: Annotated[int, Field(ge=0, strict=True)] = 0
    """Bytes of the records, for whoever cuts them."""
    copied: str = ""
    """Name of the copy, in the run's folder of the store, that was made before it started; empty: read the topic."""


class EventRange(Model):
    """What `trigger.events` is when a run reads its events by itself. A value of inputs; documents cannot have it."""

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
"""What a run may be given for an input of type `dataset`."""


# -- settings ----------


class Retry(Model):
    """How often and when a failed attempt is made again (Temporal's RetryPolicy, word for word)."""

    maximum_attempts: Annotated[int, Field(ge=1, strict=True)] = 3
    initial_interval: Duration = Field(default_factory=lambda: 0.2)
    backoff_coefficient: AsWritten[Annotated[float, Field(ge=1, strict=True)]] = 2.0
    maximum_interval: Duration = Field(default_factory=lambda: 30.0)
    non_retryable_error_types: list[ErrorType] = []
    """Names of exception classes (`SchemaError`, or `module.SchemaError`) that fail at once."""


class Memory(Model):
    """Bytes an attempt may allocate; doubled from `start` up to `max` for the task that ran out of it."""

    start: Size
    max: Size | None = None


class Batch(Model):
    """Re-cuts the input: a partition of this map has at most so many records or encoded bytes."""

    max_items: Count | None = None
    max_bytes: Size | None = None


class Output(Model):
    """Where the stage's partitions are written, one part each, with `_manifest.json` last."""

    uri: Uri
    format: Literal["text", "jsonl", "csv", "parquet", "npy", "fixed"]
    columns: dict[str, Literal["string", "int64", "float64", "boolean", "binary", "timestamp", "date"]] | None = None
    """Names and types, in order: required for Parquet from objects, allowed for CSV (names only matter)."""
    header: Flag = True
    delimiter: Annotated[str, StringConstraints(min_length=1, max_length=1)] = ","
    if_exists: Literal["fail", "replace"] = "fail"


class FailedItems(Model):
    """Where records that finally failed are listed, as JSON lines in input order."""

    uri: Uri


class Settings(Model):
    """What `defaults` may set for every stage and each working stage for itself."""

    retry: Retry | None = None
    timeout: Duration | None = None
    """Of one attempt."""
    deadline: Duration | None = None
    """Of the whole stage, retries included."""
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
    """What survives the loss of a host: every finished task, or every finished segment. Without: nothing, and what is
    lost is made again."""
    backups: Flag | None = None
    """Whether a partition that takes far longer than the others may run a second time beside itself, in a slot that is
    free; the first to finish counts. Default: true; never with `idempotent: false`."""
    cache: CacheSetting | None = None
    """Keep what the stage gives, for later runs of the same code over the same inputs."""


class StageBase(Model):
    description: str | None = None
    needs: list[Reference] = []
    """Stages that must be over first; order only, no data."""
    when: Expression | None = None
    """False: the stage is skipped."""


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
    """The result is an iterable of records; None: read from the function's return annotation."""
    whole: Flag = False
    """`per: partition` over text: the partition as one `str`."""
    with_: Arguments = Field(default_factory=dict, alias="with")
    batch: Batch | None = None
    metrics: dict[Identifier, Literal["sum", "min", "max"]] = {}
    tolerated_failures: Tolerance | None = None
    failed_items: FailedItems | None = None
    gang: Annotated[int, Field(ge=1, strict=True)] | None = None
    """So many partitions, neither more nor fewer, run together and may talk to each other (primitives.channels)."""


class RangePartitioner(Model):
    """Contiguous key ranges; boundaries are given, come from a broadcast, or are sampled."""

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
    """Brings records with equal keys (hash) or near keys (range) into one partition."""

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
    """Makes a whole dataset one read-only value."""

    type: Literal["broadcast"]
    input: StageInput
    limit: Size = Field(default_factory=lambda: 256 * 2**20)
    """Encoded bytes; more fails the stage."""


class ReduceStage(WorkBase):
    """Folds values per key, per partition, or all of them."""

    type: Literal["reduce"]
    input: StageInput
    per: Literal["key", "partition", "all"]
    uses: FunctionRef | None = None
    combine: FunctionRef | None = None
    initial: JsonValue = None
    """Folded in once, as the leftmost operand at the root. `initial: null` counts when it is written."""
    finish: FunctionRef | None = None
    fan_in: Count | None = None
    """Default 16; `per: all` with `combine` only."""
    with_: Arguments = Field(default_factory=dict, alias="with")
    metrics: dict[Identifier, Literal["integer", "number", "string", "boolean", "sum", "min", "max"]] = {}

    @property
    def has_initial(self) -> bool:
        return "initial" in self.model_fields_set


class BarrierStage(StageBase):
    """Lets nothing through until its input is committed, or `quorum` of it."""

    type: Literal["barrier"]
    input: Reference
    quorum: Percentage = "100%"


class LoopStage(StageBase):
    """Repeats inner stages; `state` is carried from one iteration to the next."""

    type: Literal["loop"]
    state: dict[Identifier, JsonValue]
    """A dataset reference (bare string), a JSON scalar, or a template giving a scalar."""
    max_iterations: Count
    until: Expression | None = None
    """Judged after the body; true ends the loop. None: all `maxIterations`."""
    on_exhausted: Literal["fail", "succeed"] = "fail"
    stages: dict[Identifier, Stage]
    next: dict[Identifier, JsonValue] = {}


class WorkflowStage(StageBase):
    """Runs another workflow as a child of the run, and waits for its end."""

    type: Literal["workflow"]
    uses: Annotated[Annotated[WorkflowFile, Tag("<text>")] | Annotated[Spec, Tag("<document>")], _text_or("<document>")]
    """Its file, as seen from this one; or the document itself, which is how a run keeps it."""
    with_: Arguments = Field(default_factory=dict, alias="with")
    """Values for its inputs; null counts as not given."""


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
    """A workflow: what the user wrote, and, normalised, what is pinned into every run."""

    api_version: Literal["treadle/v1"]
    kind: Literal["Workflow"] = "Workflow"
    name: Identifier
    description: str | None = None
    labels: dict[str, str] = {}
    inputs: dict[Identifier, Input] = {}
    secrets: list[Identifier] = []
    seed: Annotated[int, Strict()] = 0
    """Feeds `context.rng` and sampling."""
    defaults: Settings = Settings()
    triggers: dict[Identifier, Trigger] = {}
    stages: dict[Identifier, Stage] = Field(min_length=1)
    outputs: dict[Identifier, JsonValue] = {}


LoopStage.model_rebuild()
WorkflowStage.model_rebuild()
Spec.model_rebuild()
