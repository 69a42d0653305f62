"""Shared objects: state that processes call. Each lives at a keeper, and its methods run there, one at a time.

    with Keepers("/var/tmp/counts", replicas=2) as keepers:
        hits = keepers.object("hits", Counter)
        hits.increment()

docs/objects.md has the library, the guarantees and the failures. Layout:

    definitions, catalog     classes of objects: decorators, the library
    effects                  calls of a workflow's tasks, which count with their partition
    state, shard             state machines: the replicated state; replication, views and leases
    followers, replies       parts of a shard: what backups lack; answers that wait
    views, shard_log         chains in the store
    keeper, peer_links       sockets around the shards of a process
    handle, client_session   the side of the caller
    sharded_array            an array at all keepers
"""

from .catalog import (
    Adagrad,
    Adam,
    Addition,
    Boolean,
    Condition,
    Counter,
    CyclicBarrier,
    Flag,
    GradientDescent,
    Latch,
    List,
    Lock,
    Map,
    Number,
    PriorityQueue,
    Promise,
    Queue,
    RateLimit,
    ReadWriteLock,
    Reference,
    Semaphore,
    Set,
    StaleClock,
    UpdateRule,
)
from .definitions import CallContext, current, merges, read, removes, shared, then, when
from .errors import (
    CallOutcomeUnknown,
    CallRefused,
    CallWaitExpired,
    KeepersUnreachable,
    MethodTraceback,
    ObjectLost,
    ObjectMissing,
)
from .handle import Handle
from .keepers import Keepers
from .sharded_array import ShardedArray

__all__ = [
    "Adagrad",
    "Adam",
    "Addition",
    "Boolean",
    "CallContext",
    "CallOutcomeUnknown",
    "CallRefused",
    "CallWaitExpired",
    "Condition",
    "Counter",
    "CyclicBarrier",
    "Flag",
    "GradientDescent",
    "Handle",
    "Keepers",
    "KeepersUnreachable",
    "Latch",
    "List",
    "Lock",
    "Map",
    "MethodTraceback",
    "Number",
    "ObjectLost",
    "ObjectMissing",
    "PriorityQueue",
    "Promise",
    "Queue",
    "RateLimit",
    "ReadWriteLock",
    "Reference",
    "Semaphore",
    "Set",
    "ShardedArray",
    "StaleClock",
    "UpdateRule",
    "current",
    "merges",
    "read",
    "removes",
    "shared",
    "then",
    "when",
]
