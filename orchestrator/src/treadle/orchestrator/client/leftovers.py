"""What runs that are long over still hold in the store. Outputs in the places that workflows name are never touched."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable

from msgspec import Struct

from treadle.primitives.store import ObjectInfo, Store

ROOT = "runs"


class Leftover(Struct, frozen=True):
    """The objects of one run."""

    run: str
    objects: int
    bytes: int
    modified: float
    """When the newest of them was written, in seconds since the epoch."""


def leftovers(objects: Iterable[ObjectInfo]) -> list[Leftover]:
    """By run, in the order of their names. Pure."""
    found: dict[str, Leftover] = {}
    for info in objects:
        run = info.name.split("/")[1]
        known = found.get(run, Leftover(run, 0, 0, 0.0))
        found[run] = Leftover(run, known.objects + 1, known.bytes + info.size, max(known.modified, info.modified))
    return [found[run] for run in sorted(found)]


async def needless(
    found: Iterable[Leftover], before: float, is_open: Callable[[str], Awaitable[bool]]
) -> list[Leftover]:
    """Those last written to `before` that time whose run is not open.

    The time also protects what is being submitted: its objects are written before Temporal hears of the run.
    """
    return [one for one in found if one.modified < before and not await is_open(one.run)]


def remove(store: Store, run: str) -> None:
    """What defines the run last, so that a removal that was cut off is found again. Blocking."""
    prefix = f"{ROOT}/{run}"
    store.delete(info.name for info in store.list(prefix) if info.name != f"{prefix}/spec")
    store.delete_prefix(f"{prefix}/")
