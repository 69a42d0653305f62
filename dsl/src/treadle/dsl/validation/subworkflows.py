"""Checks the values that a stage passes to its sub-workflow: names and types of the inputs."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import JsonValue

from ..diagnostics.diagnostics import Path
from ..expressions import ExpressionError, Type
from ..expressions import Path as Name
from ..graph.graph import Node
from ..model import Input, Spec, WorkflowStage
from ..templates import OPEN, mentioned, whole
from .expressions import OUTPUT_ROOTS, Expressions, ExpressionSite
from .inputs import WORDS, InputError, accept, resolved, undeclared

_NUMBER = {Type.INT, Type.FLOAT}
_WANTED: Mapping[str, set[Type]] = {
    "string": {Type.STRING},
    "uri": {Type.STRING},
    "boolean": {Type.BOOL},
    "integer": _NUMBER,
    "number": _NUMBER,
    "list": {Type.LIST},
}
"""Accepted types of values by input type. Only the run shows whether a metric is a whole number."""


def check_subworkflow(expressions: Expressions, node: Node, stage: WorkflowStage) -> None:
    """Check that the stage is not in a loop, gives every required input a value, and gives no undeclared one."""
    report = expressions.report
    if node.loops:
        hint = f"run it before or after '{node.loops[-1]}', or put its stages into the loop"
        report.add("T222", node.path, f"'{node.id}' runs a workflow in every iteration of a loop", hint, key=True)
        return
    child = report.document.children.get(node.id)
    declared = child.spec.inputs if child is not None and child.spec is not None else None
    for name, value in stage.with_.items():
        path: Path = (*node.path, "with", name)
        if declared is not None and name not in declared:
            report.add("T501", path, *undeclared(name, declared), key=True)
        elif not _names_secret(expressions, path, value):
            _check_value(expressions, ExpressionSite(path, OUTPUT_ROOTS, "while the run goes on"), declared, value)
    for name, known in (declared or {}).items():
        if known.required and stage.with_.get(name) is None:
            hint = f"write `with: {{{name}: ...}}`"
            report.add("T502", (*node.path, "with"), f"'{node.id}' needs the input '{name}'", hint, key=True)


def _names_secret(expressions: Expressions, path: Path, value: JsonValue) -> bool:
    found = any(name[0] == "secrets" for name in mentioned(value))
    if found:
        hint = "declare it in the other workflow, whose stages then read it in their own `with`"
        expressions.report.add("T109", path, "a secret cannot be handed to a workflow", hint)
    return found


def _check_value(
    expressions: Expressions, site: ExpressionSite, declared: Mapping[str, Input] | None, value: JsonValue
) -> None:
    wanted = declared[str(site.path[-1])] if declared is not None else None
    if value is None or _is_dataset(expressions, value, wanted):
        return
    if wanted is not None and OPEN not in str(value):
        _check_literal(expressions, site.path, wanted, value)
    elif wanted is not None and isinstance(value, str) and wanted.type in _WANTED:
        text = wanted.type in ("string", "uri")
        expressions.typed(site, value, _WANTED[wanted.type], WORDS[wanted.type], embedded=text)
    else:
        expressions.value(site, value)


def _is_dataset(expressions: Expressions, value: JsonValue, wanted: Input | None) -> bool:
    """Return whether the value passes on a dataset input of the run: `${{ inputs.NAME }}`, for an input of
    that type.
    """
    try:
        expr = whole(value) if isinstance(value, str) else None
    except ExpressionError:
        return False
    inputs = expressions.graph.spec.inputs
    match expr:
        case Name(("inputs", name)) if name in inputs and inputs[name].type == "dataset":
            expressions.used_inputs.add(name)
            return wanted is None or wanted.type == "dataset"
    return False


def _check_literal(expressions: Expressions, path: Path, wanted: Input, value: JsonValue) -> None:
    try:
        accept(wanted, value)
    except InputError as error:
        expressions.report.add("T503", path, f"the input '{path[-1]}' does not fit: {error}", error.hint)


def given_inputs(spec: Spec, values: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """Return a value for every input of a sub-workflow; null counts as absent. Raises InvalidInputs.

    Unlike values on a command line, a string is never parsed as a number.
    """
    given = {name: value for name, value in values.items() if value is not None}
    return resolved(spec, given, "the stage gives null: ask with has(...) before")
