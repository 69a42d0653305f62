"""The submission of a sub-workflow's run. It follows from its parent's submission and the results of its parent's
stages.

So a later change of files does not affect it, and a resumed parent continues with the same child.

Copies of events, in the folder of the run that receives them, sealed under its key, named by a digest of their
content.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from typing import Any

from msgspec.structs import replace

from treadle.dsl.normalise import read_normalised
from treadle.dsl.templates import render
from treadle.dsl.validation.subworkflows import given_inputs
from treadle.executors.program import SharedCode
from treadle.primitives.errors import UsageError
from treadle.primitives.run_paths import child_run, stage_of

from ..plan.plan import Child, Plan
from .run_files import NO_CACHE, RunFiles, Submission, same_workflow
from .uri_policy import check_child

_NAME = re.compile(r"events/[0-9a-f]{16}")


def copy_name(packed: bytes) -> str:
    """The name of a copy within the run's folder."""
    return f"events/{hashlib.sha256(packed).hexdigest()[:16]}"


def hand_over(owner: RunFiles, heir: RunFiles, inputs: Mapping[str, Any]) -> None:
    """Copy the events that these inputs name from one run to another. Blocking.

    They are sealed again, since a run's tasks have only the run's key. Raises MissingError when the owner's copies are
    gone, CorruptError for objects that this deployment did not write, StoreError.
    """
    for name in _copies(inputs):
        heir.create_bytes(name, bytes(owner.load_bytes(name)))


def _copies(inputs: Mapping[str, Any]) -> Iterator[str]:
    """Names of copies. An input of another type may look like a range of events, but names no other object this way."""
    for value in inputs.values():
        events = value.get("kafka") if isinstance(value, Mapping) else None
        name = events.get("copied") if isinstance(events, Mapping) else None
        if isinstance(name, str) and _NAME.fullmatch(name):
            yield name


def child_submission(parent: Submission, started: str, run: str, bindings: Mapping[str, Any]) -> Submission:
    """The submission of the child run with this id.

    `started`: the parent's `run.startTime`. `bindings`: the values of the parent's stages that the child's inputs
    mention. A child that is run again on request takes over no cached results.

    Raises UsageError when the inputs are not valid, and Forbidden when the child would use a URI that its parent may
    not.
    """
    stage = stage_of(run)
    anew = run != child_run(parent.run, stage) or bool(parent.memo.get(NO_CACHE))
    declared = parent.spec["stages"][stage]
    env = {**bindings, "inputs": parent.inputs, "run": {"id": parent.run, "startTime": started}}
    values = render(declared.get("with", {}), env)
    document = declared["uses"]
    child = Submission(
        run,
        document,
        given_inputs(read_normalised(document), values),
        parent.bundle,
        parent.functions,
        parent.base,
        parent.spec.get("defaults", {}).get("executor") or parent.executor,
        {NO_CACHE: True} if anew else {},
        parent.shared,
        parent.allow,
    )
    check_child(parent, child)
    return child


def keep_child(parent: RunFiles, files: RunFiles, wanted: Submission) -> Submission:
    """Store the child's submission and the events that its parent hands over, unless that is done. Blocking.

    Raises UsageError when the child began with other values, because its parent's stages have run again since.
    """
    known = files.find(Submission, "spec")
    if known is None:
        if wanted.bundle and wanted.shared is None:
            digest = hashlib.sha256(parent.load_bytes("bundle")).hexdigest()
            wanted = replace(wanted, shared=SharedCode(f"{parent.prefix}/bundle", digest))
        hand_over(parent, files, wanted.inputs)
        known = files.keep("spec", wanted)
    if difference := same_workflow(known, wanted):
        text = f"run {wanted.run} cannot go on: {difference} of it would be others than when it began"
        raise UsageError(text, f"Start a new run: treadle rerun {parent.run}")
    return known


def family(files: RunFiles, others: Callable[[str], RunFiles], below: str = "") -> Iterator[tuple[str, RunFiles, Plan]]:
    """A run and every run below it that was planned: (path prefix of its stages, its files, its plan).

    `others` returns the files of a run by its id. A child that was run again on request occurs once for each run:
    `load/`, `load-2/`. Blocking.
    """
    plan = files.find(Plan, "plan")
    if plan is None:
        return
    yield below, files, plan
    stages = [node.id for node in plan.graph.nodes if isinstance(node, Child)]
    for run in chain.from_iterable(files.children(stages).values()):
        yield from family(others(run), others, f"{below}{run.rpartition('/')[2]}/")
