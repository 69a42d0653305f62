"""Where an edge's blocks go: a pure function of sizes, abilities, figures and what was asked for, with its reason.

**Storage or direct** is only the question of where the producer puts its block. Direct is the shared memory of its
host: consumers there map it, consumers on other hosts pull it over TCP.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

from treadle.executors.interface import Capabilities
from treadle.primitives.blocks import Durability

INLINE_LIMIT = 8 * 2**10
"""Bytes of a block that travels inside its commit record."""
SEALED = 4 / 3
"""A payload carries its task in Base64."""
UNRELIABLE = 3
"""Hosts lost lately from which on nothing goes between hosts directly."""

_FULL = "what shared memory cannot hold goes to the store"

Exchange = Literal["auto", "storage", "direct"]


class Figures(Struct, frozen=True):
    """What one request to the store, and to a peer, costs here; measured, see `dispatcher.blocks.probe`."""

    store_seconds: float
    """A small put and get."""
    store_rate: float
    """Bytes per second, put and got again."""
    link_seconds: float
    """A small pull."""
    link_rate: float
    """Bytes per second pulled."""


class Site(Struct, frozen=True):
    """What is known of where the run will be."""

    executors: Mapping[str, Capabilities]
    """What each executor can do, by the name that stages use."""
    host_budget: int
    """Bytes of shared memory that blocks may fill."""
    store: str
    """URL of the store."""
    one_host: bool = True
    """No driver of another host takes part."""
    drivers: int = 1
    """Those that could share a segment when the plan was made; 0: nobody was asked, and it is made for one."""
    peers: bool = False
    """Workers of other hosts can pull blocks from this one, and it from theirs."""
    lost_hosts: int = 0
    """Hosts that took blocks with them lately."""
    figures: Figures | None = None
    """Known where there are peers."""
    default: str = "local"
    """The executor of stages that name none."""
    assumed_bytes: int = 0
    """That each source of files has, which are then not looked for; 0: they are listed."""


class Edge(Struct, frozen=True):
    """What is known of one edge before it carries anything."""

    estimate: int
    """Bytes; 0: unknown."""
    producers: int = 0
    """0: known at run time."""
    targets: int = 1
    """Parts of each producer's block."""
    exchange: Exchange = "auto"
    durability: Durability = ""


def choose_place(edge: Edge, can: Capabilities, site: Site) -> tuple[Literal["host", "store"], str]:
    """Place for the blocks above INLINE_LIMIT that an executor makes, and why."""
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


def _between_hosts(edge: Edge, slots: int, site: Site) -> tuple[Literal["host", "store"], str]:
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
    """Seconds that the edge takes (directly, through the store), with every slot busy.

    Each part is one request of its consumer. A store also takes a put for each producer.
    """
    slots = max(1, slots)
    producers = edge.producers or slots
    parts = producers * edge.targets
    direct = (parts * figures.link_seconds) / slots + edge.estimate / figures.link_rate
    storage = ((parts + producers) * figures.store_seconds) / slots + edge.estimate / figures.store_rate
    return direct, storage


def _reach(site: Site) -> str:
    return "every worker is on this host" if site.one_host else "workers of other hosts pull them over TCP"


def crowding(total: int, site: Site) -> str:
    """What to add where all stages leave `total` bytes in shared memory; empty: it holds them."""
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
