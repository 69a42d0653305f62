"""What a task runs: the typed payload between the planner and the task runtime.

A segment is one `Program`, the same for all its partitions: a chain of operations and a tail. A `Partition` names the
input of one run of that chain. Payloads hold references and small values only; they are JSON or MessagePack by
msgspec, never pickle.
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

from treadle.primitives.blocks import Durability
from treadle.primitives.channels.gang import Gang
from treadle.primitives.encoding.references import BlockRef, Kind, Slice
from treadle.primitives.errors import FailureClass
from treadle.primitives.events.records import Format
from treadle.primitives.formats import FileSplit, WriteOptions

from .failure_text import error_text

# -- arguments ----------


class Value(Struct, frozen=True, tag="value"):
    """A JSON value, given to each partition as a fresh copy."""

    value: Any


class Broadcast(Struct, frozen=True, tag="broadcast"):
    """The value of a broadcast stage: the single record of the block."""

    slice: Slice


class Secret(Struct, frozen=True, tag="secret"):
    """A secret by name; the runtime resolves it and redacts it from everything that leaves the task."""

    name: str


Arg = Value | Broadcast | Secret


class Call(Struct, frozen=True):
    """A user function and its keyword arguments."""

    function: str
    """`module:qualname`, or `captured:<digest>`."""
    args: dict[str, Arg] = {}


class By(Struct, frozen=True):
    """How a record's key is found: exactly one of the three is set; `first` is `by: key`."""

    first: bool = False
    function: str = ""
    columns: tuple[str, ...] = ()


# -- where a partition comes from ----------


class ItemSplit(Struct, frozen=True, tag="items"):
    items: tuple[Any, ...]


class RangeSplit(Struct, frozen=True, tag="range"):
    start: int
    stop: int


class EventSplit(Struct, frozen=True, tag="events"):
    """Records of one partition of a Kafka topic, as the events in them or, without `envelope`, as their data."""

    connection: str
    topic: str
    topic_id: str
    partition: int
    start: int
    runs: tuple[int, ...]
    """See treadle.primitives.events.offset_ranges."""
    format: Format
    envelope: bool = False
    copied: str = ""
    """Name of a copy of the records, and maybe others, in the run's folder of the store; empty: read the topic."""


def connection_secret(connection: str) -> str:
    """Name of the secret that is a Kafka connection: a JSON object of librdkafka's settings."""
    return f"kafka.{connection}"


class BlockInput(Struct, frozen=True, tag="blocks"):
    """Slices to concatenate, for each input of a shuffle (one input everywhere else), in source-partition order."""

    inputs: tuple[tuple[Slice, ...], ...]
    pieces: bool = False
    """The slices of an input are pieces of one partition, as a shuffle leaves them, and no partitions themselves."""


PartitionInput = FileSplit | ItemSplit | RangeSplit | EventSplit | BlockInput


class Partition(Struct, frozen=True):
    index: int
    input: PartitionInput
    attempt: int = 1
    final: bool = True
    """No attempt will follow: tolerated failures are now final instead of failing the attempt."""


# -- operations ----------


class MapRecords(Struct, frozen=True, tag="map records"):
    """`per: record`. Output kind: objects."""

    stage: str
    call: Call
    flat: bool = False
    tolerate: bool = False
    """Failed records are set aside (see Partition.final) instead of failing the attempt at once."""
    non_retryable: tuple[str, ...] = ()
    metrics: dict[str, str] = {}
    """Declared metrics: name -> sum | min | max."""


class MapPartition(Struct, frozen=True, tag="map partition"):
    """`per: partition`. A returned table or array is the partition; flat splices; anything else is one record."""

    stage: str
    call: Call
    flat: bool = False
    whole: bool = False
    tolerate: bool = False
    non_retryable: tuple[str, ...] = ()
    metrics: dict[str, str] = {}


class Sort(Struct, frozen=True, tag="sort"):
    """Stable sort by key."""

    stage: str
    by: By


class Reduce(Struct, frozen=True, tag="reduce"):
    """`per: key` over a gathered shuffle partition, or over the whole partition.

    With `uses`, `uses.args` are `with`; with `combine`, `finish.args` are. A leaf or inner node of a reduce tree is a
    Reduce with `combine` only. `value`: expressions read its record.
    """

    stage: str
    per: Literal["key", "partition"]
    uses: Call | None = None
    combine: str = ""
    fan_in: int = 0
    """Fold as a tree of groups of `fan_in` consecutive records (`per: partition`); 0: a left fold."""
    initial: Value | None = None
    finish: Call | None = None
    by: By | None = None
    """Key of the shuffled records; `per: key` only. `by.first`: values are `record[1]`."""
    names: tuple[str, ...] = ()
    """Names of the shuffle's inputs when it has several: `uses` gets `{name: values}`."""
    sorted: bool = False
    metrics: dict[str, str] = {}
    value: bool = False


class ToBroadcast(Struct, frozen=True, tag="broadcast value"):
    """The partition as one record: its single record (`single`), or the list, table or array itself."""

    stage: str
    single: bool
    limit: int


class Sample(Struct, frozen=True, tag="sample"):
    """The partition's deterministic sample of keys, as one record."""

    stage: str
    by: By


class Cuts(Struct, frozen=True, tag="cuts"):
    """Range boundaries from samples, as one record: a list of exactly partitions - 1 ascending keys."""

    stage: str
    partitions: int


Op = MapRecords | MapPartition | Sort | Reduce | ToBroadcast | Sample | Cuts

# -- what is made of the result ----------


class Keep(Struct, frozen=True, tag="keep"):
    """One block of one part."""


class Discard(Struct, frozen=True, tag="discard"):
    """No block: the output part is all that is wanted."""


class Scatter(Struct, frozen=True, tag="scatter"):
    """One block of `partitions` parts. `boundaries` None: hash partitioning."""

    stage: str
    by: By
    partitions: int
    boundaries: Arg | None = None
    combine: str = ""
    groups: int = 0
    """Of two levels the first: a part is a bundle of consecutive targets, of which there are so many; 0: one level."""


class Merge(Struct, frozen=True, tag="merge"):
    """Of two levels the second: bundles of one group, one from each source, as a block with a part for each target."""

    stage: str


class Cut(Struct, frozen=True, tag="cut"):
    """One block of consecutive parts within the limits (0: no limit)."""

    max_items: int = 0
    max_bytes: int = 0


Tail = Keep | Discard | Scatter | Merge | Cut


class PartOutput(Struct, frozen=True):
    """Where and how the partition is also written for people."""

    uri: str
    options: WriteOptions


class Program(Struct, frozen=True):
    """A segment as its tasks see it."""

    segment: str
    """Id with iteration path, such as `lloyd-3/assign`: iteration 3 of loop lloyd."""
    ops: tuple[Op, ...]
    tail: Tail
    output: PartOutput | None = None
    put: Literal["host", "store"] = "store"
    """Where blocks larger than `inline_limit` go."""
    inline_limit: int = 8192
    durability: Durability = ""
    """What of host blocks survives the loss of the host."""
    secrets: tuple[str, ...] = ()


class SharedCode(Struct, frozen=True):
    """A bundle in the store that is not the run's own: several runs have it."""

    name: str
    """Of the object, which is sealed under a key that the run does not have."""
    digest: str
    """SHA-256 of what is sealed in it, hexadecimal."""


class Job(Struct, frozen=True):
    """What every task of a run shares."""

    run: str
    workflow: str
    started: str
    """First start, RFC 3339, UTC."""
    seed: int
    store: str
    """URL of the store."""
    bundle: str
    """Digest of the bundle; empty: functions are imported from the worker's own path."""
    shared: SharedCode | None = None
    """Where the bundle is; None: with the run."""


class Task(Struct, frozen=True):
    """One attempt at one or more whole partitions of a segment."""

    id: str
    job: Job
    program: Program
    partitions: tuple[Partition, ...]
    timeout: float = 0.0
    """Seconds for each partition; 0: none."""
    memory: int = 0
    """Bytes the attempt may allocate; 0: the slot's own limit."""
    gang: Gang | None = None
    """Its one partition runs as a member of this gang."""


# -- what comes back ----------


class PartRef(Struct, frozen=True, array_like=True):
    """One written output part."""

    name: str
    size: int
    rows: int
    digest: str


class StageCount(Struct, frozen=True, array_like=True):
    """Records that entered a tolerant stage in this partition, and those that finally failed."""

    entered: int
    failed: int


class Charge(Struct, frozen=True, array_like=True):
    """What a provider charges for a call. The first report of the call has it, its other reports have zeros."""

    calls: int = 0
    seconds: float = 0.0
    memory: int = 0
    """Bytes of the function."""


class Outcome(Struct, frozen=True, tag="outcome"):
    """A partition is done: its block is put, its part is written. It counts once the ledger holds it."""

    partition: int
    attempt: int
    kind: Kind
    rows: int
    block: BlockRef | None = None
    part: PartRef | None = None
    metrics: dict[str, dict[str, Any]] = {}
    """stage -> metric -> value."""
    values: dict[str, Any] = {}
    """stage -> its record as JSON, of a reduce whose value expressions want."""
    counts: dict[str, StageCount] = {}
    first_failed: dict[str, str] = {}
    """stage -> place and error of the first record that was set aside."""
    failed_items: BlockRef | None = None
    """Records: dicts; docs/semantics.md says which members they have."""
    slot: str = ""
    """Where it ran; the dispatcher fills it in."""
    started: float = 0.0
    """Seconds since the epoch, by the worker's clock."""
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    peak_memory: int = 0
    """Bytes; 0: not measured, since it was over in less than a millisecond."""
    bytes_in: int = 0
    read: dict[str, int] = {}
    """Bytes of blocks by the kind of place they came from: inline, host, peer, store; those of a member that cannot be
    dialled by what they came over: path, relayed, stored. What was decoded already is not read again."""
    spilled: int = 0
    """Bytes written to temporary files because they did not fit into its memory."""
    log: bytes = b""
    """What the attempt printed, its last 64 KiB."""
    requests: dict[str, int] = {}
    """To stores, by kind (`treadle.primitives.stores.request_counts`), of the process that ran it."""
    charge: Charge | None = None
    """None: it was no call of a function, or a function that stays ran it."""


class Failure(Struct, frozen=True, tag="failure"):
    """An attempt at a partition failed, or (partition -1) the whole attempt did."""

    partition: int
    attempt: int
    failure: FailureClass
    how: str
    """How the class was determined, such as `exception MemoryError` or `signal 9 not sent by the driver`."""
    stage: str = ""
    error: str = ""
    """Exception class, as `module.Name`."""
    message: str = ""
    traceback: str = ""
    retryable: bool = True
    lost: tuple[str, ...] = ()
    """Names of input blocks found corrupt or gone."""
    log: bytes = b""
    started: float = 0.0
    """Seconds since the epoch, by the worker's clock; 0: nobody knows."""
    peak_memory: int = 0
    followed: bool = False
    """It only follows from the failure of another member of its gang."""
    place: str = ""
    """File and line or row, or key, of the record; empty: not known."""
    requests: dict[str, int] = {}
    charge: Charge | None = None

    @property
    def text(self) -> str:
        return error_text(self.error, self.message, self.place)


Report = Outcome | Failure
