"""The task payload: the typed messages between the planner and the task runtime.

A segment is one `Program`, which all its partitions share: a chain of operations and a tail. A `Partition` names the
input of one run of that chain. Payloads hold references and small values, as JSON or MessagePack, never as pickle.
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

from treadle.primitives.blocks import Place
from treadle.primitives.channels.gang import Gang
from treadle.primitives.encoding.references import BlockRef, Kind, Slice
from treadle.primitives.errors import FailureClass
from treadle.primitives.events.records import Format
from treadle.primitives.formats import FileSplit, WriteOptions

from .failures import error_text
from .function_arguments import Arg as Arg
from .function_arguments import Broadcast as Broadcast
from .function_arguments import Call as Call
from .function_arguments import SecretRef as SecretRef
from .function_arguments import UsedObject as UsedObject
from .function_arguments import Value as Value


class By(Struct, frozen=True):
    """How to find a record's key. Exactly one of the three is set; `first` is `by: key`."""

    first: bool = False
    function: str = ""
    columns: tuple[str, ...] = ()


class ItemSplit(Struct, frozen=True, tag="items", gc=False):
    items: tuple[Any, ...]


class RangeSplit(Struct, frozen=True, tag="range", gc=False):
    start: int
    stop: int


class EventSplit(Struct, frozen=True, tag="events"):
    """The records of one partition of a Kafka topic, as events; without `envelope`, as the events' data."""

    connection: str
    topic: str
    topic_id: str
    partition: int
    start: int
    runs: tuple[int, ...]
    """Offset ranges; see treadle.primitives.events.offset_ranges."""
    format: Format
    envelope: bool = False
    copied: str = ""
    """Name of a copy in the run's folder of the store, which may hold other records too; empty: read the topic."""


def connection_secret(connection: str) -> str:
    """Name of the secret that holds a Kafka connection: a JSON object of librdkafka settings."""
    return f"kafka.{connection}"


class BlockInput(Struct, frozen=True, tag="blocks", gc=False):
    """Slices to concatenate, in source-partition order, for each input of a shuffle. Elsewhere there is one input."""

    inputs: tuple[tuple[Slice, ...], ...]
    pieces: bool = False
    """The slices of an input are pieces of one partition, as a shuffle writes them, and not whole partitions."""


PartitionInput = FileSplit | ItemSplit | RangeSplit | EventSplit | BlockInput


class Partition(Struct, frozen=True, gc=False):
    index: int
    input: PartitionInput
    attempt: int = 1
    final: bool = True
    """This is the last attempt: tolerated failures become final instead of failing the attempt."""


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
    """`per: partition`. A table or array becomes the partition; `flat` splices other results, else each is one
    record."""

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

    With `uses`, `uses.args` holds the arguments in `with`; with `combine`, `finish.args` holds them. A leaf or inner
    node of a reduce tree is a Reduce with `combine` only. `value`: expressions read its record.
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


class CallFunction(Struct, frozen=True, tag="call function"):
    """Calls of a session (`operations.calls`). The input: their arguments, and the results that these name."""

    stage: str
    function: Slice
    parts: int = 0
    """Results are lists of this length, and the block has a part for each member; 0: one part."""


class ObjectState(Struct, frozen=True, tag="object state"):
    """The state of a shared object, as one record: the first state, or `state` with the effects in the partition."""

    stage: str
    object: str
    create: Call | None = None
    """The class and its arguments, for the first state."""
    state: Arg | None = None
    source: str = ""
    """The stage whose effects count."""
    value: bool = False
    """Report the value of the object for `outputs`."""


Op = MapRecords | MapPartition | Sort | Reduce | ToBroadcast | Sample | Cuts | CallFunction | ObjectState


# -- outputs of a partition ----------


class Keep(Struct, frozen=True, tag="keep"):
    """One block of one part."""


class Discard(Struct, frozen=True, tag="discard"):
    """No block: only the output part is needed."""


class Scatter(Struct, frozen=True, tag="scatter"):
    """One block of `partitions` parts. `boundaries` None: hash partitioning."""

    stage: str
    by: By
    partitions: int
    boundaries: Arg | None = None
    combine: str = ""
    groups: int = 0
    """Bundles of consecutive targets in the first level of a two-level exchange, one for each part; 0: one level."""


class Merge(Struct, frozen=True, tag="merge"):
    """The second level: bundles of one group, one from each source, become a block with a part for each target."""

    stage: str


class Cut(Struct, frozen=True, tag="cut"):
    """One block of consecutive parts within the limits (0: no limit)."""

    max_items: int = 0
    max_bytes: int = 0


Tail = Keep | Discard | Scatter | Merge | Cut


class PartOutput(Struct, frozen=True):
    """Location and format of the partition's user-visible output."""

    uri: str
    options: WriteOptions


class Program(Struct, frozen=True):
    """A segment as its tasks see it."""

    segment: str
    """Id with iteration path, such as `lloyd-3/assign`: iteration 3 of loop lloyd."""
    ops: tuple[Op, ...]
    tail: Tail
    output: PartOutput | None = None
    put: Place = "store"
    """Destination of blocks larger than `inline_limit`."""
    inline_limit: int = 8192
    checksums: bool = True
    """False: blocks that are put on the host alone have none."""
    secrets: tuple[str, ...] = ()


class SharedCode(Struct, frozen=True):
    """A bundle in the store that several runs share."""

    name: str
    """Name of the object. It is sealed under a key that the run does not have."""
    digest: str
    """SHA-256 of the sealed content, hexadecimal."""


class Job(Struct, frozen=True):
    """Values that all tasks of a run share."""

    run: str
    workflow: str
    started: str
    """First start, RFC 3339, UTC."""
    seed: int
    store: str
    bundle: str
    """Digest of the bundle; empty: functions are imported from the worker's own path."""
    shared: SharedCode | None = None
    """Location of the bundle; None: in the run's folder."""


class Task(Struct, frozen=True):
    """One attempt at one or more whole partitions of a segment."""

    id: str
    job: Job
    program: Program
    partitions: tuple[Partition, ...]
    timeout: float = 0.0
    """Seconds for each partition; 0: no limit."""
    memory: int = 0
    """Bytes the attempt may allocate; 0: the slot's own limit."""
    gang: Gang | None = None
    """The gang in which its single partition runs as a member."""


# -- reports ----------


class PartRef(Struct, frozen=True, array_like=True, gc=False):
    """One written output part."""

    name: str
    size: int
    rows: int
    digest: str


class StageCount(Struct, frozen=True, array_like=True, gc=False):
    """Records that entered a tolerant stage in this partition, and records that finally failed there."""

    entered: int
    failed: int


class Charge(Struct, frozen=True, array_like=True):
    """The provider's charge for a call. The first report of the call holds it; its other reports hold zeros."""

    calls: int = 0
    seconds: float = 0.0
    memory: int = 0
    """Memory of the function, in bytes."""


class Outcome(Struct, frozen=True, tag="outcome", gc=False):
    """A finished partition: its block and its output part are written. It counts once the ledger holds it."""

    partition: int
    attempt: int
    kind: Kind
    rows: int
    block: BlockRef | None = None
    part: PartRef | None = None
    metrics: dict[str, dict[str, Any]] = {}
    """stage -> metric -> value."""
    values: dict[str, Any] = {}
    """stage -> the record as JSON, for each reduce that value expressions read."""
    counts: dict[str, StageCount] = {}
    first_failed: dict[str, str] = {}
    """stage -> place and error of the first record that was set aside."""
    failed_items: BlockRef | None = None
    """Records as dicts; docs/semantics.md lists their members."""
    effects: BlockRef | None = None
    """Calls of shared objects, which count with this partition: (stage, call)."""
    slot: str = ""
    """The slot that ran it; the dispatcher whose slot it is sets it."""
    started: float = 0.0
    """Seconds since the epoch, by the worker's clock."""
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    peak_memory: int = 0
    """Bytes; 0: not measured, because the partition took less than a millisecond."""
    bytes_in: int = 0
    read: dict[str, int] = {}
    """Bytes of blocks read, by source: inline, host, peer, store; from a member that cannot be dialled, by route: path,
    relayed, stored. Blocks that are already decoded are not read again."""
    spilled: int = 0
    """Bytes written to temporary files because they did not fit into memory."""
    log: bytes = b""
    """The last 64 KiB that the attempt printed."""
    requests: dict[str, int] = {}
    """Store requests by kind (`treadle.primitives.stores.request_counts`), of the process that ran it."""
    charge: Charge | None = None
    """None: it was not a function call, or a resident function ran it."""


class Failure(Struct, frozen=True, tag="failure"):
    """A failed attempt at a partition, or (partition -1) at the whole task."""

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
    """Names of input blocks found corrupt or missing."""
    log: bytes = b""
    started: float = 0.0
    """Seconds since the epoch, by the worker's clock; 0: not known."""
    peak_memory: int = 0
    followed: bool = False
    """A consequence of the failure of another member of its gang."""
    place: str = ""
    """File and line or row, or key, of the record; empty: not known."""
    requests: dict[str, int] = {}
    charge: Charge | None = None

    @property
    def text(self) -> str:
        return error_text(self.error, self.message, self.place)


Report = Outcome | Failure
