"""Prepares a run from a document: checks it, plans it to reject errors early, and bundles its code."""

from __future__ import annotations

import os
import re
import secrets
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from treadle.dsl.graph.stages import all_stages, functions_of
from treadle.dsl.model import Spec, WorkflowStage
from treadle.dsl.normalise import normalise, without_triggers
from treadle.executors.bundle.build import build_bundle
from treadle.executors.bundle.code_digest import code_of
from treadle.orchestrator.plan.plan import Plan
from treadle.orchestrator.planner import RunLocation, make_plan
from treadle.orchestrator.planner.placement import check_code
from treadle.orchestrator.planner.subworkflows import inner
from treadle.orchestrator.run_store.run_files import RunFiles, Submission
from treadle.orchestrator.telemetry.hops import hop
from treadle.primitives.errors import UsageError
from treadle.primitives.functions import describe, load

RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")
"""Valid run ids. An id is also the name of a folder, and of a Temporal workflow."""
_MANY = 500
"""Number of nodes that certainly fits into one Temporal payload."""


class Prepared(Struct):
    """A run that is ready to start."""

    submission: Submission
    bundle: bytes
    plan: Plan
    """Made for early errors and for `treadle plan`; the run makes its own plan when it starts."""
    again: RunFiles | None = None
    """The run that this one repeats; copies of its events are copied for this one."""


class CodePackage(Struct):
    """The user's code of a workflow."""

    functions: dict[str, dict[str, Any]]
    """Function reference -> its properties (FunctionInfo), and its `code` (Code)."""
    digest: str = ""
    """Digest of the bundle; empty without user code."""
    bundle: bytes = b""


def new_run_id(workflow: str) -> str:
    """Readable, sorted by time, unique: `wordcount-20261121-043012-7f3a2c`."""
    return f"{workflow}-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{secrets.token_hex(3)}"


def run_id(wanted: str | None, workflow: str, option: str = "id") -> str:
    """The id of a new run: the wanted one, or a new one. Raises UsageError for an invalid one; `option` names it."""
    if not wanted:
        return new_run_id(workflow)
    if not RUN_ID.fullmatch(wanted):
        text = f"{option} {wanted!r} cannot be a run id"
        raise UsageError(text, "Use letters, digits, `.`, `_` and `-`; at most 200.")
    return wanted


def function_references(spec: Spec) -> list[str]:
    """All user functions of a workflow and its sub-workflows, without duplicates, sorted."""
    found: set[str] = set()
    for _, stage in all_stages(spec.stages):
        found.update(functions_of(stage))
        if isinstance(stage, WorkflowStage):
            found.update(function_references(inner(stage)))
    return sorted(found)


def prepare(
    spec: Spec,
    inputs: Mapping[str, Any],
    *,
    run: str,
    base: Path,
    roots: Sequence[Path],
    captured: Mapping[str, bytes],
    site: RunLocation,
) -> Prepared:
    """Check everything that can be known before the run. Raises UsageError.

    Relative URIs start from `base`; `roots` are the folders of the project's own modules.
    """
    folder = _written(base.absolute())
    with hop(run, "bundle"):
        code = package(spec, roots, captured)
    document = normalise(without_triggers(spec))
    submission = Submission(run, document, dict(inputs), code.digest, code.functions, folder, site.default)
    return planned(submission, code.bundle, site)


def _written(folder: Path) -> str:
    try:
        return os.fsencode(folder).decode()
    except UnicodeDecodeError:
        raise UsageError(f"the name of the folder {str(folder)!r} is not UTF-8", "Rename it.") from None


def package(spec: Spec, roots: Sequence[Path], captured: Mapping[str, bytes]) -> CodePackage:
    """The code of the workflow's functions. Its modules are imported, and print to stderr. Raises UsageError."""
    references = function_references(spec)
    with redirect_stdout(sys.stderr):
        functions = {ref: msgspec.to_builtins(describe(load(ref, captured))) for ref in references}
    if not references:
        return CodePackage(functions)
    bundle = build_bundle(references, roots, captured)
    for reference, code in code_of(references, bundle.data).items():
        functions[reference]["code"] = msgspec.to_builtins(code)
    return CodePackage(functions, bundle.digest, bundle.data)


def planned(submission: Submission, bundle: bytes, site: RunLocation) -> Prepared:
    """The run with the plan that it would have if it started now. Imports no user code. Raises UsageError."""
    about = {"id": submission.run, "startTime": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}
    spec = Spec.model_validate(submission.spec)
    with hop(submission.run, "plan"):
        plan = make_plan(spec, submission.inputs, about, submission.functions, Path(submission.base), site)
    check_code(plan.executors, bundle)
    if len(plan.graph.nodes) > _MANY:
        from treadle.orchestrator.protocol.payload_limits import check_graph

        check_graph(plan.graph)
    return Prepared(submission, bundle, plan)


def on_executor(submission: Submission, executor: str | None) -> Submission:
    """The run, with `executor` for its stages that name none; None: unchanged."""
    if executor is None:
        return submission
    defaults = {**submission.spec.get("defaults", {}), "executor": executor}
    return replace(submission, spec={**submission.spec, "defaults": defaults})
