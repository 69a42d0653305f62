"""From a document to something that can be started: checked, planned once for early refusal, code bundled."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from treadle.dsl.model import MapStage, ReduceStage, ShuffleStage, Spec
from treadle.dsl.normalise import normalise
from treadle.executors.bundle.build import build_bundle
from treadle.primitives.functions import describe, load

from ..plan import Plan
from ..planner import Site, make_plan
from ..planner.references import all_stages
from ..runfiles import Submission


class Prepared(Struct):
    """A run that could be started now."""

    submission: Submission
    bundle: bytes
    plan: Plan
    """Made for early refusal and for `treadle plan`; the run makes its own when it starts."""


def new_run_id(workflow: str) -> str:
    """Readable, sorts by time, unique: `wordcount-20261121-043012-7f3a2c`."""
    return f"{workflow}-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{secrets.token_hex(3)}"


def function_references(spec: Spec) -> list[str]:
    """Every user function of a workflow, once, sorted."""
    found: set[str] = set()
    for _, stage in all_stages(spec.stages):
        if isinstance(stage, MapStage):
            found.add(stage.uses)
        elif isinstance(stage, ReduceStage):
            found |= {name for name in (stage.uses, stage.combine, stage.finish) if name}
        elif isinstance(stage, ShuffleStage):
            by = stage.by if isinstance(stage.by, str) and stage.by != "key" else None
            found |= {name for name in (by, stage.combine) if name}
    return sorted(found)


def prepare(
    spec: Spec,
    inputs: Mapping[str, Any],
    *,
    run: str,
    base: Path,
    roots: Sequence[Path],
    captured: Mapping[str, bytes],
    site: Site,
) -> Prepared:
    """Everything that can be known before the run is checked here. Raises UsageError.

    `base` is where relative URIs start, `roots` the folders whose modules are the project's own.
    """
    references = function_references(spec)
    functions = {ref: msgspec.to_builtins(describe(load(ref, captured))) for ref in references}
    bundle = build_bundle(references, roots, captured) if references else None
    document = normalise(spec)
    submission = Submission(
        run, document, dict(inputs), bundle.digest if bundle else "", functions, str(base.absolute()), site.default
    )
    about = {"id": run, "startTime": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}
    plan = make_plan(Spec.model_validate(document), inputs, about, functions, base, site)
    return Prepared(submission, bundle.data if bundle else b"", plan)


def same_workflow(known: Submission, new: Submission) -> str:
    """What differs between two submissions under one id; empty: nothing that matters."""
    names = {"spec": "the workflow", "inputs": "the inputs", "bundle": "the code", "executor": "the executor"}
    differing = [words for field, words in names.items() if getattr(known, field) != getattr(new, field)]
    return " and ".join(differing)
