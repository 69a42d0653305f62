"""What the run of a sub-workflow is made of. All of it follows from its parent's submission and what its stages gave.

So whatever happens to files after the parent was submitted changes nothing, and who resumes the parent goes on with the
very same child.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from treadle.dsl.normalise import read_normalised
from treadle.dsl.templates import render
from treadle.dsl.validation.subworkflows import given_inputs
from treadle.primitives.errors import UsageError
from treadle.primitives.run_names import child_run

from .client.submission import same_workflow
from .runfiles import RunFiles, Submission


def child_submission(parent: Submission, started: str, stage: str, bindings: Mapping[str, Any]) -> Submission:
    """The child that `stage` of a run is. Raises UsageError when its inputs do not get what they need.

    `started` is the parent's `run.startTime`, `bindings` the values of its stages that the stage mentions.
    """
    declared = parent.spec["stages"][stage]
    env = {**bindings, "inputs": parent.inputs, "run": {"id": parent.run, "startTime": started}}
    values = render(declared.get("with", {}), env)
    _refuse_copies(parent.run, values)
    document = declared["uses"]
    return Submission(
        child_run(parent.run, stage),
        document,
        given_inputs(read_normalised(document), values),
        parent.bundle,
        parent.functions,
        parent.base,
        parent.spec.get("defaults", {}).get("executor") or parent.executor,
    )


def keep_child(parent: RunFiles, files: RunFiles, wanted: Submission) -> Submission:
    """Write what the child is made of, unless that was done. Blocking.

    Raises UsageError when the child began as something else: what its parent's stages gave was then made anew, and
    differs.
    """
    known = files.find(Submission, "spec")
    if known is None:
        if wanted.bundle:
            files.create_bytes("bundle", bytes(parent.load_bytes("bundle")))
        known = wanted if files.create("spec", wanted) else files.load(Submission, "spec")
    if difference := same_workflow(known, wanted):
        text = f"run {wanted.run} cannot go on: {difference} of it would be others than when it began"
        raise UsageError(text, f"Start a new run: treadle rerun {parent.run}")
    return known


def _refuse_copies(run: str, values: Mapping[str, Any]) -> None:
    """Records of a topic that were copied for a run are in its own folder, under its own key."""
    for name, value in values.items():
        if isinstance(value, Mapping) and value.get("kafka", {}).get("copied"):
            text = f"the events of input {name} were copied for run {run}, and a child run cannot read them"
            raise UsageError(text, "Read them in a stage, and let it write files; or set `events: range` or `inline`.")
