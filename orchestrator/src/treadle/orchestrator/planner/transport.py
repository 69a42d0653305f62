"""Where an edge's blocks go: a pure function of sizes, abilities and what was asked for, with its reason."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

INLINE_LIMIT = 8 * 2**10
"""Bytes of a block that travels inside its commit record."""


class Site(Struct, frozen=True):
    """What is known of where the run will be."""

    slots: int
    shares_host: bool
    """Every worker maps blocks of one host."""
    host_budget: int
    """Bytes of shared memory that blocks may fill."""
    store: str
    """URL of the store."""


def choose_place(
    estimate: int, exchange: Literal["auto", "storage", "direct"], site: Site
) -> tuple[Literal["host", "store"], str]:
    """Place for blocks above INLINE_LIMIT, and why."""
    if exchange == "storage":
        return "store", "exchange: storage was asked for"
    if not site.shares_host:
        return "store", "workers of several hosts may take part"
    if exchange == "direct":
        return "host", "exchange: direct was asked for; all workers are on this host"
    if estimate > site.host_budget:
        return "store", f"about {_size(estimate)} may not fit the {_size(site.host_budget)} of shared memory for blocks"
    return "host", f"about {_size(estimate)} fits shared memory and every worker is on this host"


def _size(count: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"
