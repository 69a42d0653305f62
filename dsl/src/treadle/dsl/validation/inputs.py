"""Checks inputs: their declarations, and the values given for them when a run is submitted."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import JsonValue, TypeAdapter, ValidationError

from treadle.primitives.errors import UsageError
from treadle.primitives.result import is_storable

from ..diagnostics.diagnostics import Diagnostic, Path, a, did_you_mean, one_of
from ..diagnostics.formats import render
from ..document.loader import load_yaml
from ..document.model_errors import found, shape_problems
from ..model import DatasetValue, EventRange, Input, Items, Range, Source, Spec
from ..templates import OPEN
from .formats import check_source
from .report import Report

_DATASET: TypeAdapter[Source | Items | Range | EventRange] = TypeAdapter(DatasetValue)
WORDS = {
    "string": "text",
    "uri": "text",
    "boolean": "true or false",
    "integer": "a whole number",
    "number": "a number",
    "list": "a list",
    "dataset": "files ({uri, format}), {items: [...]} or {range: N}",
}
_ENDINGS = {".txt": "text", ".jsonl": "jsonl", ".ndjson": "jsonl", ".csv": "csv", ".parquet": "parquet", ".npy": "npy"}


class InputError(Exception):
    """A value that an input does not accept; `args[0]` is the reason, `hint` the remedy."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


def check_inputs(spec: Spec, report: Report) -> None:
    """Check defaults, bounds and choices of every declared input."""
    for name, declared in spec.inputs.items():
        _check_bounds(report, ("inputs", name), declared)
        _check_enum(report, ("inputs", name), declared)
        _check_default(report, ("inputs", name), declared)


def _check_bounds(report: Report, path: Path, declared: Input) -> None:
    for key in ("minimum", "maximum"):
        if getattr(declared, key) is not None and declared.type not in ("integer", "number"):
            message = f"'{key}' bounds numbers, and this input is {a(declared.type)}"
            report.add("T218", (*path, key), message, "remove it", key=True)
    if declared.minimum is not None and declared.maximum is not None and declared.minimum > declared.maximum:
        report.add("T218", (*path, "minimum"), "'minimum' is larger than `maximum`", "no value would fit", key=True)


def _check_enum(report: Report, path: Path, declared: Input) -> None:
    if declared.enum is None:
        return
    if declared.type in ("list", "dataset", "boolean"):
        message = f"'enum' lists texts or numbers, and this input is {a(declared.type)}"
        report.add("T218", (*path, "enum"), message, "remove it", key=True)
    elif not declared.enum:
        report.add("T218", (*path, "enum"), "'enum' allows no value at all", "list the allowed values", key=True)
    for index, value in enumerate(declared.enum):
        if declared.type in _PYTHON and not _is(declared.type, value):
            report.add("T218", (*path, "enum", index), f"this input needs {WORDS[declared.type]}, not {found(value)}")


def _check_default(report: Report, path: Path, declared: Input) -> None:
    if declared.required and declared.default is not None:
        hint = "remove one of the two: a default makes the input optional"
        report.add("T218", (*path, "default"), "a required input has no default", hint, key=True)
    elif declared.default is None:
        if declared.type == "dataset" and not declared.required:
            hint = "write `required: true`, or give a default"
            report.add("T218", path, "a dataset must come from somewhere", hint, key=True)
        return
    if OPEN in json.dumps(declared.default):
        hint = "expressions are evaluated in stages and outputs"
        report.add("T303", (*path, "default"), "a default is a plain value", hint)
        return
    try:
        default = accept(declared, declared.default)
    except InputError as error:
        report.add("T218", (*path, "default"), f"the default does not fit: {error}", error.hint)
        return
    if declared.type == "dataset" and isinstance(source := source_of(default), Source):
        check_source(report, (*path, "default"), source)


_PYTHON: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "uri": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
    "list": (list,),
}


def _is(kind: str, value: object) -> bool:
    return isinstance(value, _PYTHON[kind]) and (kind == "boolean" or not isinstance(value, bool))


def accept(declared: Input, value: JsonValue) -> JsonValue:
    """Return the value as the run stores it. Raises InputError when the input does not accept it."""
    if declared.type == "dataset":
        return _dataset(value)
    if declared.type == "integer" and isinstance(value, float) and value.is_integer():
        value = int(value)
    if not _is(declared.type, value):
        raise InputError(f"it must be {WORDS[declared.type]}, not {found(value)}")
    if isinstance(value, (int, float)):
        if isinstance(value, float) and not math.isfinite(value):
            raise InputError("it must be a finite number")
        if not is_storable(value):
            raise InputError("it has more than 64 bits", "give it as text, to an input of type string")
        if declared.minimum is not None and value < declared.minimum:
            raise InputError(f"it must be at least {declared.minimum}, not {value}")
        if declared.maximum is not None and value > declared.maximum:
            raise InputError(f"it must be at most {declared.maximum}, not {value}")
    if declared.enum is not None and value not in declared.enum:
        hint = did_you_mean(str(value), map(str, declared.enum))
        raise InputError(f"it must be {one_of(map(str, declared.enum))}, not {found(value)}", hint)
    return value


def _dataset(value: JsonValue) -> JsonValue:
    if isinstance(value, list):
        value = {"items": value}
    if isinstance(value, str):
        ending = next((end for end in _ENDINGS if value.removesuffix(".gz").endswith(end)), None)
        if ending is None:
            known = one_of(dict.fromkeys(_ENDINGS.values()))
            hint = f'write {{"uri": "{value}", "format": ...}} with {known}'
            raise InputError("the format of the files cannot be told from their name", hint)
        value = {"uri": value, "format": _ENDINGS[ending]}
    if not isinstance(value, dict):
        raise InputError(f"it must be {WORDS['dataset']}, not {found(value)}")
    try:
        source = _DATASET.validate_python(value, by_alias=True, by_name=False)
    except ValidationError as error:
        problem, _ = next(shape_problems(error, value))
        raise InputError(problem.message, problem.hint) from error
    dumped: dict[str, Any] = source.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    if OPEN in json.dumps({key: part for key, part in dumped.items() if key != "items"}):  # records are data
        raise InputError("expressions are not evaluated in given values", "write the value itself")
    return dumped


def source_of(value: JsonValue) -> Source | Items | Range | EventRange:
    """Return the resolved value of a dataset or list input as the source of a stage."""
    return _DATASET.validate_python(
        {"items": value} if isinstance(value, list) else value, by_alias=True, by_name=False
    )


# -- values given for a run --------------------------------------------------------------------------------------


def resolve_inputs(spec: Spec, given: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """Return a value for every declared input: given, default, or None for an optional input without a default.

    A string for an input of another type (`-i k=8`) is parsed as that type. Raises InvalidInputs.
    """
    unknown = [
        Diagnostic("T501", *undeclared(name, spec.inputs), "inputs", path=("inputs", name))
        for name in given
        if name not in spec.inputs
    ]
    read = {name: read_as(spec.inputs[name], value) for name, value in given.items() if name in spec.inputs}
    return resolved(spec, read, "give it with `-i {}=...`", unknown)


def resolved(
    spec: Spec, given: Mapping[str, JsonValue], required: str, problems: Iterable[Diagnostic] = ()
) -> dict[str, JsonValue]:
    """Return values like `resolve_inputs`, but parse no string as another type. `required`: the remedy for an input
    without a value, with `{}` for its name; `problems`: earlier findings. Raises InvalidInputs.
    """
    found, values = list(problems), dict[str, JsonValue]()
    for name, declared in spec.inputs.items():
        if declared.required and name not in given:
            message = f"the input '{name}' is required"
            found.append(Diagnostic("T502", message, required.format(name), "inputs", path=("inputs", name)))
            continue
        value = given.get(name, declared.default)
        try:
            values[name] = None if value is None and name not in given else accept(declared, value)
        except InputError as error:
            message = f"the input '{name}' does not fit: {error}"
            found.append(Diagnostic("T503", message, error.hint, "inputs", path=("inputs", name)))
    if found:
        raise InvalidInputs(found)
    return values


class InvalidInputs(UsageError):
    """Values given for a run do not fit the declared inputs; the caller must give others."""

    def __init__(self, diagnostics: list[Diagnostic]) -> None:
        self.diagnostics = tuple(diagnostics)
        super().__init__(render(diagnostics).rstrip("\n"))


def undeclared(name: str, inputs: Mapping[str, Input]) -> tuple[str, str]:
    """Return (message, hint) for an input that the workflow does not declare (T501)."""
    return f"the workflow has no input '{name}'", did_you_mean(name, inputs) or f"declared: {one_of(inputs)}"


def read_as(declared: Input, value: JsonValue) -> JsonValue:
    """Parse a string from a command line as the declared type: YAML 1.2 scalars, JSON for lists and datasets."""
    if not isinstance(value, str) or declared.type in ("string", "uri"):
        return value
    if re.fullmatch(r"[-+]?[0-9]{20,1000}", value):
        return int(value)  # YAML would refuse it here; `accept` gives the better error
    loaded = load_yaml(value)
    if loaded.problems or isinstance(loaded.data, str):
        return value
    result: JsonValue = loaded.data
    return result
