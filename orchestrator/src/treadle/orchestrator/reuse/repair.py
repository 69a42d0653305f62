"""Repair of damaged objects that follow from other objects: `treadle resume` replaces them, and names each.

The manifest of a segment, or of a task group, follows from its ledger. The result of a loop follows from the loop's
ledger. A damaged one is replaced by a mark that the segment is not closed. The run then closes it again and runs no
committed partition.

The plan follows from the submission, but input files may have changed since. So a damaged plan is replaced only if no
stage was begun; otherwise the run is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from treadle.primitives.errors import CorruptError

from ..dispatcher.ledger.ledger import read
from ..plan.plan import Plan
from ..run_store.child_runs import family
from ..run_store.run_files import OPEN, Closing, LoopResult, Manifest, RunFiles, RunResult
from ..scheduler.instructions import Summary


def mend(files: RunFiles, others: Callable[[str], RunFiles]) -> Iterator[str]:
    """Replace the damaged objects that follow from others, in a finished run and its children. Yields their names.

    `others` returns the files of a run by its id. The submission must have been read before, since with a wrong
    deployment key every object seems to be damaged. Blocking. Raises CorruptError for a damaged ledger or plan,
    StoreError.
    """
    try:
        files.find(Plan, "plan")
    except CorruptError as damaged:
        yield _mend_plan(files, damaged)
        return
    for _, run, _ in family(files, others):
        yield from _mend_run(run)


def _mend_plan(files: RunFiles, damaged: CorruptError) -> str:
    if any(files.store.list(f"{files.prefix}/segments/")):
        raise CorruptError(
            f"{damaged.message}. Stages were committed by this plan, and a new one may differ from it",
            f"Start a new run: treadle rerun {files.run}",
        ) from damaged
    return _removed(files, "plan")


def _mend_run(files: RunFiles) -> Iterator[str]:
    manifests, closed, loops = _newest(files)
    for (segment, group), generation in closed.items():
        if _is_damaged(partial(files.group_closing, segment, group, generation)):
            yield _mend_group(files, segment, f"segments/{segment}/closed/{group}/{generation}")
    for segment, generation in manifests.items():
        if _is_damaged(partial(files.find, Closing, f"segments/{segment}/manifest/{generation}")):
            yield _mend_manifest(files, segment, generation, [loop for loop in loops if segment.startswith(f"{loop}-")])
    for loop in loops:
        if _is_damaged(partial(files.find, LoopResult, f"segments/{loop}/result")):
            yield _removed(files, f"segments/{loop}/result")
    if _is_damaged(partial(files.find, RunResult, "result")):
        yield _removed(files, "result")


def _mend_group(files: RunFiles, segment: str, name: str) -> str:
    _check_ledgers(files, segment)
    _reopen(files, segment, files.generation(segment) + 1)
    return _removed(files, name)


def _mend_manifest(files: RunFiles, segment: str, generation: int, loops: list[str]) -> str:
    """`loops`: the loops around the segment, which run the end of their last iteration again."""
    _check_ledgers(files, *(loops or [segment]))
    for loop in loops:
        _removed(files, f"segments/{loop}/result")
    name = _removed(files, f"segments/{segment}/manifest/{generation}")
    _reopen(files, segment, generation)
    return name


def _removed(files: RunFiles, name: str) -> str:
    files.store.delete([f"{files.prefix}/{name}"])
    return f"{files.prefix}/{name}"


def _newest(files: RunFiles) -> tuple[dict[str, int], dict[tuple[str, int], int], list[str]]:
    """(newest generation by segment, newest generation by task group, the loops with a result)."""
    manifests: dict[str, int] = {}
    closed: dict[tuple[str, int], int] = {}
    results: list[str] = []
    for info in files.store.list(f"{files.prefix}/segments/"):
        parts = info.name.removeprefix(f"{files.prefix}/segments/").split("/")
        if parts[-2:-1] == ["manifest"]:
            segment = "/".join(parts[:-2])
            manifests[segment] = max(int(parts[-1]), manifests.get(segment, 0))
        elif parts[-3:-2] == ["closed"]:
            group = "/".join(parts[:-3]), int(parts[-2])
            closed[group] = max(int(parts[-1]), closed.get(group, 0))
        elif parts[-1] == "result":
            results.append("/".join(parts[:-1]))
    return manifests, closed, results


def _is_damaged(read_it: Callable[[], object]) -> bool:
    try:
        read_it()
    except CorruptError:
        return True
    return False


def _check_ledgers(files: RunFiles, *segments: str) -> None:
    """Raises CorruptError for a damaged ledger. The manifest is then the only record of the commits."""
    for segment in segments:
        for ledger in files.ledgers(segment):
            read(files.store, ledger, files.key)


def _reopen(files: RunFiles, segment: str, generation: int) -> None:
    """Invalidate earlier manifests too, so that the segment is closed again."""
    files.create_manifest(Manifest(segment, OPEN, (), Summary()), generation)
