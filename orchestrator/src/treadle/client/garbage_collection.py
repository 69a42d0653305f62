"""Finds and removes the stored data of runs that ended long ago. Outputs at the locations that workflows name are kept.

The in-memory inputs of runs (`input_data`) are shared by runs. They stay as long as a stored run refers to them.

Blocks of a run may outlive it: blocks of a cache entry stay as long as the entry, and blocks that another run reuses
stay as long as that run.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping

from msgspec import Struct

from treadle.orchestrator.run_store.run_files import RunFiles, Submission
from treadle.primitives.run_paths import CHILD, INPUTS
from treadle.primitives.stores.store import ObjectInfo, Store

from .input_data import MARK

ROOT = "runs"
_INPUT = re.compile(rf"{INPUTS}/[0-9a-f]{{32}}\.[a-z]+")
Lent = Mapping[str, set[str]]
"""Folder of a run -> segments whose blocks another run or the cache uses."""


class Leftover(Struct, frozen=True):
    """The objects of one run."""

    run: str
    objects: int
    bytes: int
    modified: float
    """Time of its newest object, in seconds since the epoch."""


def leftovers(objects: Iterable[ObjectInfo]) -> list[Leftover]:
    """The objects by run, sorted by name. Pure."""
    found: dict[str, Leftover] = {}
    for info in objects:
        run = run_of(info)
        known = found.get(run, Leftover(run, 0, 0, 0.0))
        found[run] = Leftover(run, known.objects + 1, known.bytes + info.size, max(known.modified, info.modified))
    return [found[run] for run in sorted(found)]


def run_of(info: ObjectInfo) -> str:
    """The top-level run, started by a user or a trigger."""
    return info.name.split("/")[1]


async def needless(
    found: Iterable[Leftover], before: float, is_open: Callable[[str], Awaitable[bool]]
) -> list[Leftover]:
    """The runs that were last written before `before` and are not open.

    The time also protects runs that are being submitted: their objects are written before Temporal knows the run.
    """
    return [one for one in found if one.modified < before and not await is_open(one.run)]


def borrowed(objects: Iterable[ObjectInfo], gone: Collection[str]) -> dict[str, set[str]]:
    """Segments that runs outside `gone` reuse, by the folder of their lender. Pure."""
    objects = list(objects)
    there = {run_of(info) for info in objects} - set(gone)
    found: dict[str, set[str]] = defaultdict(set)
    for info in objects:
        folder, kind, rest = _parted(info.name)
        borrower, _, segment = rest.partition("/")
        if kind == "lent" and borrower in there:
            found[folder].add(segment)
    return dict(found)


def removable(objects: Iterable[ObjectInfo], gone: Collection[str], *lent: Lent) -> Iterator[ObjectInfo]:
    """The removable objects of those runs: all except blocks in use elsewhere, and the records of that use. Pure."""
    for info in objects:
        folder, kind, rest = _parted(info.name)
        segment = rest.rpartition("/")[0] if kind == "blocks" else rest.partition("/")[2]
        kept = kind in ("blocks", "lent") and any(segment in one.get(folder, ()) for one in lent)
        if run_of(info) in gone and not kept:
            yield info


def separated(
    listed: Iterable[ObjectInfo], gone: Collection[str], lent: Lent
) -> tuple[list[ObjectInfo], dict[str, set[str]]]:
    """The removable objects of those runs, and by run the names of kept objects. Pure."""
    listed = list(listed)
    found = list(removable(listed, gone, lent, borrowed(listed, gone)))
    going = {info.name for info in found}
    kept: dict[str, set[str]] = defaultdict(set)
    for info in listed:
        if run_of(info) in gone and info.name not in going:
            kept[run_of(info)].add(info.name)
    return found, dict(kept)


def unused_inputs(
    store: Store, gone: Collection[str], before: float, files: Callable[[str], RunFiles]
) -> list[ObjectInfo]:
    """The files of in-memory inputs, with their marks, that no run outside `gone` refers to. Blocking.

    A file that was marked after `before` stays: the run that uses it may not be stored yet. Remove the result at once.
    Raises CorruptError for a run that this deployment cannot read, since it may refer to any file.
    """
    if not _old_inputs(store, before):
        return []
    used = _inputs_in_use(store, gone, files)
    old = _old_inputs(store, before)  # again, since a run may have marked a file meanwhile
    return [info for name, both in old.items() if name not in used for info in both]


def _old_inputs(store: Store, before: float) -> dict[str, list[ObjectInfo]]:
    """File -> the file and its mark, both last written before `before`."""
    found: dict[str, list[ObjectInfo]] = defaultdict(list)
    for info in store.list(INPUTS):
        found[info.name.removesuffix(MARK)].append(info)
    return {name: both for name, both in found.items() if max(info.modified for info in both) < before}


def _inputs_in_use(store: Store, gone: Collection[str], files: Callable[[str], RunFiles]) -> set[str]:
    """The files of in-memory inputs in the specs and inputs of runs outside `gone`, and of their child runs."""
    parted = [_parted(info.name) for info in store.list(ROOT) if run_of(info) not in gone]
    runs = [folder.replace(f"/{CHILD}", "/") for folder, kind, rest in parted if (kind, rest) == ("spec", "")]
    found = (files(run).find(Submission, "spec") for run in runs)
    return {name for one in found if one for name in _INPUT.findall(str([one.spec, one.inputs]))}


def remove_all(store: Store, objects: Iterable[ObjectInfo], kept: Mapping[str, Collection[str]]) -> None:
    """Remove the runs of these objects, except for the objects in `kept`. Blocking."""
    for run in sorted({run_of(info) for info in objects}):
        remove(store, run, kept.get(run, ()))


def remove(store: Store, run: str, kept: Collection[str] = ()) -> None:
    """Remove a run, except for the objects in `kept`. Blocking.

    The run's spec is removed last, so that an interrupted removal is found again.
    """
    prefix = f"{ROOT}/{run}"
    store.delete(info.name for info in store.list(prefix) if info.name not in {f"{prefix}/spec", *kept})
    if kept:
        store.delete([f"{prefix}/spec"])
    else:
        store.delete_prefix(f"{prefix}/")


def _parted(name: str) -> tuple[str, str, str]:
    """(folder of the run, kind, rest) of an object's name. `runs/a/_b/blocks/s/0.1` has the folder `a/_b`."""
    parts = name.split("/")[1:]
    depth = 1
    while depth < len(parts) and parts[depth].startswith(CHILD):
        depth += 1
    return "/".join(parts[:depth]), parts[depth] if depth < len(parts) else "", "/".join(parts[depth + 1 :])
