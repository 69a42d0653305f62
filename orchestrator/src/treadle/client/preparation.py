"""From a checked document to a run that can start; refusals name their place in the document."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from treadle.dsl.validation.inputs import resolve_inputs
from treadle.orchestrator.dispatcher.tasks.outputs import check
from treadle.orchestrator.planner.placement import PlacementRefused
from treadle.orchestrator.telemetry.hops import passed
from treadle.primitives.errors import StoreError, UsageError

from .input_data import stored
from .submission import Prepared, prepare

if TYPE_CHECKING:
    from treadle.dsl.document.document import Document
    from treadle.dsl.model import Spec
    from treadle.orchestrator.planner import RunLocation

    from .documents import StartableDocument
    from .environment import ClientEnvironment


def prepare_document(
    env: ClientEnvironment,
    loaded: StartableDocument,
    inputs: Mapping[str, Any],
    run: str,
    executor: str | None = None,
    site: RunLocation | None = None,
) -> Prepared:
    """Check and plan a run without starting it. Raises InvalidInputs, UsageError.

    Data of the process that is given for inputs of type `dataset` is written to the store. `executor` is that of stages
    which name none; `site` replaces the resources of the profile.
    """
    passed(run, "read document", loaded.began)
    site = site or env.plan_site()
    spec = _on_executor(loaded.spec, executor, site)
    values = resolve_inputs(spec, stored(env.store, spec, inputs))
    try:
        return prepare(
            spec, values, run=run, base=loaded.base, roots=[loaded.base], captured=loaded.captured, site=site
        )
    except PlacementRefused as error:
        raise positioned(error, loaded.document) from error


def _on_executor(spec: Spec, name: str | None, site: RunLocation) -> Spec:
    if not name:
        return spec
    if name not in site.executors:
        raise UsageError(f"there is no executor {name!r} here", f"The profile has: {', '.join(site.executors)}.")
    return spec.model_copy(update={"defaults": spec.defaults.model_copy(update={"executor": name})})


def positioned(error: PlacementRefused, document: Document) -> UsageError:
    """The refusal with its place in the document, which editors and terminals show as a link."""
    for whole in error.paths:
        there, path = _file_of(document, whole)
        if path in there.places:
            span = there.span(path, key=True)
            return UsageError(f"{there.file}:{span.line}:{span.col}: {error.message}", error.hint)
    return error


def _file_of(document: Document, path: tuple[str, ...]) -> tuple[Document, tuple[str, ...]]:
    """The document, or its nested document, that contains the path; and the path in it."""
    if path[2:3] == ("uses",) and path[1] in document.children:
        return _file_of(document.children[path[1]], path[3:])
    return document, path


def check_places(prepared: Prepared) -> None:
    """Raises UsageError when an output location belongs to another run, before any stage starts. Blocking."""
    with suppress(StoreError):  # this machine cannot reach the location, and need not
        check(prepared.plan.graph, prepared.submission.run)
