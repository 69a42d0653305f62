"""Pydantic's errors in the words of the language, at the author's own line."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, get_args

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from treadle.primitives.result import is_storable

from ..diagnostics.diagnostics import Path, did_you_mean, for_files, for_list, nearest, one_of, path_text
from ..model import ErrorType, Percentage, Reference, Template, WorkflowFile
from ..model_base import FunctionRef, Identifier
from ..units import SIZE_UNITS, TOO_MUCH
from .scalars import is_text
from .schema_lookup import keys_at
from .syntax import SyntaxProblem

LATER = {
    "heartbeat": "a worker that is lost is noticed without it; bound an attempt with `timeout`",
}
"""Words that the language reserves, and the alternative in this version."""
OTHER_NAMES = {
    "tasks": "stages", "steps": "stages", "jobs": "stages", "do": "stages", "id": "name", "on": "triggers",
    "params": "inputs", "parameters": "inputs", "arguments": "with", "args": "with", "withParam": "with",
    "run": "uses", "function": "uses", "call": "uses", "callable": "uses", "resource": "uses",
    "depends": "needs", "dependsOn": "needs", "depends_on": "needs", "after": "needs", "if": "when", "runIf": "when",
    "retries": "retry", "attempts": "retry", "maxAttempts": "maximumAttempts", "max_attempts": "maximumAttempts",
    "parallelism": "maxConcurrency", "concurrency": "maxConcurrency", "while": "until", "chunk": "batch",
    "key": "by", "keyBy": "by", "groupBy": "by", "sideInput": "broadcast", "transport": "exchange",
    "bucket": "partitions", "numPartitions": "partitions", "scope": "per", "reducer": "combine", "combiner": "combine",
    "path": "uri", "url": "uri", "file": "uri", "files": "uri", "source": "input", "from": "input", "every": "interval",
}  # fmt: skip
"""Words of other systems, and the keys of this language for them."""


def _pattern(annotation: Any) -> str:
    return str(get_args(annotation)[1].pattern)


PATTERNS: Mapping[str, tuple[str, str]] = {
    _pattern(Identifier): ("a name", "begin with a small letter; then letters, digits and _"),
    _pattern(FunctionRef): ("a function", "write `module:function`, such as `wordcount:tokenize`"),
    _pattern(Template): ("a whole number or an expression", "write 16 or `${{ inputs.partitions }}`"),
    _pattern(Reference): (
        "a reference",
        "write a stage's id, `inputs.x`, `state.x` or `LOOP.state.x`, without ${{ }}",
    ),
    _pattern(ErrorType): ("the name of an exception class", "write `SchemaError`, or `module.SchemaError`"),
    _pattern(Percentage): ("a percentage", "write 95% or 0.1%"),
    _pattern(WorkflowFile): ("the file of a workflow", "write its path from this file, such as `./load.yaml`"),
}
"""Maps a pattern of the model to (expected form, how to write it)."""

EXAMPLES = {"by": "by: key", "state": "state: {count: 0}", "uses": "uses: module:function", "uri": 'uri: "data/*.csv"'}
"""Example values of required keys that have no fixed choices."""
_BYTES = 2**16
"""A number without a unit is taken for bytes from this value on, below it for MiB."""
BOOLEANS = {"yes": "true", "on": "true", "no": "false", "off": "false"}
"""Strings in YAML 1.2 that are booleans in YAML 1.1."""

TYPES = {
    "string_type": "text",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "list_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
    "none_required": "nothing",
    "invalid-json-value": "a JSON value",
}


def shape_problems(error: ValidationError, data: Any) -> Iterator[tuple[SyntaxProblem, bool]]:
    """Yield every finding once, and whether it concerns the key rather than the value."""
    for details in error.errors(include_url=False):
        yield _problem(details, data)


def _problem(details: ErrorDetails, data: Any) -> tuple[SyntaxProblem, bool]:
    path, on_key = document_path(details["loc"], data, missing=details["type"] == "missing")
    kind, name = details["type"], _name(path)
    if kind == "missing":
        return _missing(path, data), True
    if kind == "extra_forbidden":
        return _unknown(path, data), True
    if kind in ("union_tag_not_found", "union_tag_invalid"):
        return _stage_type(path, details), kind == "union_tag_not_found"
    code, message, hint = _value(details, name)
    hint = _written(path, details["input"]) or hint if code == "T013" else hint
    if on_key and kind == "string_pattern_mismatch":
        message = f"the key '{path[-1]}' cannot be {_pattern_words(details)[0]}"
    return SyntaxProblem(code, message, hint, path=path), on_key


def document_path(loc: tuple[str | int, ...], data: Any, missing: bool = False) -> tuple[Path, bool]:
    """Return the document's path for a `loc` of Pydantic, without the tags of unions, and whether it means the key."""
    path: list[str | int] = []
    entered = True
    for index, part in enumerate(loc):
        if part == "[key]" and index == len(loc) - 1:
            return tuple(path), True
        if entered and isinstance(data, dict) and part == data.get("type") and index < len(loc) - 1:
            entered = False  # the tag of a union, not a key of that name
            continue
        known = part in data if isinstance(data, dict) else isinstance(part, int) and isinstance(data, list)
        if known:
            data, entered = data[part], True
            path.append(part)
        elif missing and index == len(loc) - 1:
            path.append(part)
    return tuple(path), False


def _name(path: Path) -> str:
    """Return the last key of a path, with the list positions after it."""
    keys = [index for index, part in enumerate(path) if isinstance(part, str)]
    return path_text(path[keys[-1] :]) if keys else ""


_KINDS = {"stages": "stage", "inputs": "input", "triggers": "trigger"}


def _owner(path: Path) -> str:
    """Return `stage 'count'` for the path of a stage, otherwise the path itself."""
    if len(path) >= 2 and path[-2] in _KINDS:
        return f"{_KINDS[str(path[-2])]} '{path[-1]}'"
    return f"`{path_text(path)}`" if path else "the document"


def _missing(path: Path, data: Any) -> SyntaxProblem:
    owner, name = _owner(path[:-1]), path[-1]
    here: Any = data
    for part in path[:-1]:
        here = here[part]
    known = keys_at(data, path[:-1])
    choices = get_args(known[str(name)].annotation) if name in known else ()
    example = "uses: ./load.yaml" if here.get("type") == "workflow" else EXAMPLES.get(str(name))
    hint = f"such as `{example}`" if example else ""
    if choices and all(isinstance(one, str) for one in choices):
        hint = f"write `{name}: {choices[0]}`" if len(choices) == 1 else f"write `{name}:` with {one_of(choices)}"
    typo = nearest(str(name), (key for key in here if key not in known))
    if typo:
        hint = f"'{typo}' is perhaps meant to be '{name}'"
    return SyntaxProblem("T011", f"{owner} needs the key '{name}'", hint, path=path)


def _unknown(path: Path, data: Any) -> SyntaxProblem:
    name = str(path[-1])
    known = keys_at(data, path[:-1])
    if name in LATER:
        return SyntaxProblem("T018", f"'{name}' is not part of this version", LATER[name], path=path)
    if OTHER_NAMES.get(name) in known:
        hint = f"the word here is '{OTHER_NAMES[name]}'"
    else:
        hint = did_you_mean(name, known) or f"known here: {', '.join(sorted(known))}"
    return SyntaxProblem("T012", f"unknown key '{name}'", hint, path=path)


def _stage_type(path: Path, details: ErrorDetails) -> SyntaxProblem:
    context = details.get("ctx", {})
    owner = _owner(path)
    if details["type"] == "union_tag_not_found":
        example = "kafka" if owner.startswith("trigger") else "map"
        return SyntaxProblem(
            "T011", f"{owner} needs the key 'type'", f"such as `type: {example}`", path=(*path, "type")
        )
    tag, expected = str(context["tag"]), str(context["expected_tags"]).replace("'", "").split(", ")
    if tag in LATER:
        return SyntaxProblem("T018", f"'{tag}' is not part of this version", LATER[tag], path=(*path, "type"))
    hint = did_you_mean(tag, expected)
    return SyntaxProblem("T014", f"{owner} has type '{tag}'; it must be {one_of(expected)}", hint, path=(*path, "type"))


def found(value: Any) -> str:
    """Describe a value for messages."""
    names: dict[type, Callable[[], str]] = {
        type(None): lambda: "nothing",
        bool: lambda: str(value).lower(),
        dict: lambda: "a mapping",
        list: lambda: "a list",
        str: lambda: f"the text '{value if len(value) <= 40 else value[:37] + '...'}'",
    }
    if not is_storable(value):
        return "a number of more than 64 bits"
    return names.get(type(value), lambda: f"the number {value}")()


def _value(details: ErrorDetails, name: str) -> tuple[str, str, str]:
    kind, value, context = details["type"], details["input"], details.get("ctx", {})
    if kind == "one_of":
        return "T701", str(details["msg"]), ""
    if kind == "value_error":
        return _quantity(str(context["error"]), value, name)
    if kind == "string_pattern_mismatch":
        needed, hint = _pattern_words(details)
        if name == "input":
            hint = for_list(str(value)) or for_files(str(value)) or hint
        if name == "by":
            needed, hint = "`key`, a list of columns or a function", did_you_mean(str(value), ["key"]) or hint
        return "T016", f"'{name}' must be {needed}, not {found(value)}", hint
    if kind == "literal_error":
        expected = str(context["expected"]).replace("'", "").replace(" or ", ", ").split(", ")
        return "T014", f"'{name}' must be {one_of(expected)}, not {found(value)}", did_you_mean(str(value), expected)
    if kind in TYPES or kind == "int_parsing":
        return (
            "T013",
            f"'{name}' must be {TYPES.get(kind, 'a whole number')}, not {found(value)}",
            _advice(kind, value),
        )
    return "T015", f"'{name}' is {found(value)}: {_bound(kind, context)}", ""


def _pattern_words(details: ErrorDetails) -> tuple[str, str]:
    pattern = str(details.get("ctx", {})["pattern"])
    return PATTERNS.get(pattern, ("other text", f"it must match {pattern}"))


def _written(path: Path, value: Any) -> str:
    """Return how to write a value that is often written differently; empty if unknown."""
    *above, name = path or ("",)
    match name, value:
        case "retry", int() if type(value) is int:
            return f"write {{maximumAttempts: {value}}}"
        case "output", str():
            return f'write `{{uri: "{value}", format: ...}}`; the uri is a folder'
        case "stages", list() | None:
            return "write each one under its name: `stages: {load: {type: map, ...}}`"
        case "input", [*_]:
            return "write `{items: [...]}`; data of several stages is brought together by a shuffle"
        case "toleratedFailures", float():
            return "write a count, such as 10, or a share, such as 10%"
        case _, bool() | int() | float() | str() if above == ["inputs"]:
            kinds = {bool: "boolean", int: "integer", float: "number", str: "string"}
            return f"write `{name}: {{type: {kinds[type(value)]}, default: ...}}`"
    return ""


def _advice(kind: str, value: Any) -> str:
    if kind == "string_type" and isinstance(value, (bool, int, float)):
        return f'for text write "{str(value).lower() if isinstance(value, bool) else value}"'
    if kind == "list_type" and isinstance(value, str):
        return for_list(value) or f"write [{value}]"
    if kind not in ("int_type", "float_type", "bool_type") or not isinstance(value, str):
        return ""
    if "${{" in value:
        return "an expression is not possible here"
    if kind == "bool_type" and value.lower() in BOOLEANS:
        return f"write {BOOLEANS[value.lower()]}"
    return "" if is_text(value) else "write it without quotes"


def _bound(kind: str, context: Mapping[str, Any]) -> str:
    words = {
        "greater_than_equal": f"it must be at least {context.get('ge')}",
        "string_too_short": f"it needs at least {context.get('min_length')} character",
        "string_too_long": f"it may have at most {context.get('max_length')} character",
        "too_short": f"it needs at least {context.get('min_length')} entry",
    }
    return words.get(kind, kind.replace("_", " "))


def _quantity(message: str, value: Any, name: str) -> tuple[str, str, str]:
    if message.startswith(TOO_MUCH):
        return "T015", f"'{name}' is {found(value)}: {message}", ""
    size_unit = "B" if isinstance(value, (int, float)) and value >= _BYTES else "MiB"
    example = (size_unit, "a size") if message.startswith("a size") else ("s", "a duration")
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return "T017", f"'{name}' must be {example[1]} with its unit, not {found(value)}", f"write {value}{example[0]}"
    units = ", ".join(SIZE_UNITS) if example[1] == "a size" else "ms, s, m, h, d"
    return "T017", f"'{name}' must be {example[1]} with its unit, not {found(value)}", f"units: {units}"
