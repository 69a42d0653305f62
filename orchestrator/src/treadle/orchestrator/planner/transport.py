"""The place of an edge's blocks, with the reason. A pure function of sizes, capabilities, figures and settings.

The choice is where the producer puts its block. Storage is the store. Direct is the shared memory of the producer's
host: consumers there map it, and consumers on other hosts pull it over TCP.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

from treadle.executors.interface import Capabilities

from ..plan.plan import Durability

INLINE_LIMIT = 8 * 2**10
"""Maximum of bytes of a block that travels inside its commit record."""
SEALED = 4 / 3
"""Growth of a task in a payload, which is in Base64."""
UNRELIABLE = 3
"""Number of recently lost hosts from which on blocks no longer go directly between hosts."""

_FULL = "what shared memory cannot hold goes to the store"

Exchange = Literal["auto", "storage", "direct"]


class Figures(Struct, frozen=True):
    """The measured cost of a request to the store and to a peer (see `dispatcher.blocks.latency_probe`)."""

    store_seconds: float
    """Seconds of a small put and get."""
    store_rate: float
    """Bytes per second, for a put and a get."""
    link_seconds: float
    """Seconds of a small pull."""
    link_rate: float
    """Bytes per second of a pull."""


class RunLocation(Struct, frozen=True):
    """The known facts about the site of a run."""

    executors: Mapping[str, Capabilities]
    """The capabilities of each executor, by the name that stages use."""
    host_budget: int
    """Bytes of shared memory that blocks may fill."""
    store: str
    """URL of the store."""
    one_host: bool = True
    """True: no driver of another host takes part."""
    drivers: int = 1
    """Drivers that could share a segment when the plan was made. 0: not known; the plan is made for one."""
    peers: bool = False
    """True: hosts can pull blocks from each other."""
    lent: int = 0
    """Local slots of all drivers that lend each other slots for gangs (those with `peers`). 0: not known."""
    lost_hosts: int = 0
    """Hosts lost recently with blocks on them."""
    figures: Figures | None = None
    """None: the site has no peers."""
    default: str = "local"
    """The executor of stages that name none."""
    assumed_bytes: int = 0
    """The assumed bytes of each source of files, which are then not listed. 0: they are listed."""


class Edge(Struct, frozen=True):
    """The facts about one edge before it has carried data."""

    estimate: int
    """Bytes; 0: unknown."""
    producers: int = 0
    """0: known at run time only."""
    targets: int = 1
    """Parts of each producer's block."""
    exchange: Exchange = "auto"
    durability: Durability = ""


def choose_place(edge: Edge, can: Capabilities, site: RunLocation) -> tuple[Literal["host", "store"], str]:
    """The place of an executor's blocks above INLINE_LIMIT, with the reason."""
    if edge.exchange == "storage":
        return "store", "exchange: storage was asked for"
    if not can.shares_host:
        return "store", f"{can.name} workers do not share this host's memory"
    if not (site.one_host or site.peers):
        return "store", "workers of several hosts may take part, and there is no address for peers (TREADLE_PEERS)"
    if edge.exchange == "direct":
        return "host", f"exchange: direct was asked for; {_reach(site)}{_kept(edge)}"
    if edge.estimate > site.host_budget:
        budget = _size(site.host_budget)
        return "store", f"about {_size(edge.estimate)} may not fit the {budget} of shared memory for blocks"
    if site.one_host:
        return "host", f"{_fits(edge)} and {_reach(site)}{_kept(edge)}"
    return _between_hosts(edge, can.slots, site)


def _between_hosts(edge: Edge, slots: int, site: RunLocation) -> tuple[Literal["host", "store"], str]:
    if site.lost_hosts >= UNRELIABLE:
        return "store", f"{site.lost_hosts} hosts were lost lately with blocks on them"
    if edge.durability == "task":
        return "host", f"{_reach(site)}{_kept(edge)}"
    if site.figures is None:
        return "host", f"{_fits(edge)}; {_reach(site)}{_kept(edge)}"
    direct, storage = predict(edge, slots, site.figures)
    compared = f"predicted {_seconds(direct)} directly, {_seconds(storage)} through the store"
    return ("host", f"{compared}; {_reach(site)}{_kept(edge)}") if direct <= storage else ("store", compared)


def predict(edge: Edge, slots: int, figures: Figures) -> tuple[float, float]:
    """Predicted seconds for the edge (directly, through the store), with every slot busy.

    Each part is one request of its consumer. A store also takes a put for each producer.
    """
    slots = max(1, slots)
    producers = edge.producers or slots
    parts = producers * edge.targets
    direct = (parts * figures.link_seconds) / slots + edge.estimate / figures.link_rate
    storage = ((parts + producers) * figures.store_seconds) / slots + edge.estimate / figures.store_rate
    return direct, storage


def _reach(site: RunLocation) -> str:
    return "every worker is on this host" if site.one_host else "workers of other hosts pull them over TCP"


def crowding(total: int, site: RunLocation) -> str:
    """A note if all stages together leave `total` bytes in shared memory. Empty: they fit."""
    if total <= site.host_budget or not site.one_host:
        return ""
    return f"; all stages leave about {_size(total)} there, and there is room for {_size(site.host_budget)}: {_FULL}"


def _fits(edge: Edge) -> str:
    if not edge.estimate:
        return f"their size shows when it runs ({_FULL})"
    return f"about {_size(edge.estimate)} fits shared memory"


def _kept(edge: Edge) -> str:
    match edge.durability:
        case "task":
            return "; durability: task, so each also goes to the store before it counts"
        case "segment":
            return "; durability: segment, so they are copied to the store before the segment closes"
    return ""


def _size(count: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def _seconds(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds >= 1 else f"{seconds * 1000:.1f} ms"
