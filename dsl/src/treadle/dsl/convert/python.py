"""Writes a spec as a Python module that builds the same document (tested by building it)."""

from __future__ import annotations

import keyword
from collections.abc import Mapping
from typing import Any

from ..expressions import Path
from ..graph.requirements import dependencies, topological
from ..graph.stages import all_stages
from ..model import LoopStage, Spec, Stage, WorkflowStage
from ..normalise import as_written
from ..templates import is_reference, template_paths, whole
from .naming import Naming
from .source import SourceWriter, literal

WIDTH = 110
_TYPES = {"integer": "int", "number": "float", "boolean": "bool", "string": "str", "list": "list"}
_POSITIONAL = {"kafka": ("connection", "topics")}
_SOURCES = {"object": "objects"}
_Arguments = list[tuple[str, str]]


def to_python(spec: Spec) -> str:
    """Return the module's text. Comments and `x-` keys of a YAML file are not part of a spec, and are lost."""
    return _Module(spec).text()


class _Module:
    """Collects statements; `_source` resolves names at the current place."""

    def __init__(self, spec: Spec) -> None:
        self._spec = spec
        self._dumped = spec.model_dump(mode="json", exclude_unset=True)
        self._naming = Naming(spec)
        outputs = {path[1] for path in template_paths(spec.outputs) if path[0] == "stages"}
        self._read = outputs.union(*(dependencies(stage) for _, stage in all_stages(spec.stages)))
        """Stages that another statement mentions."""
        self._source = SourceWriter(self._naming)
        self._lines: list[str] = []

    def text(self) -> str:
        self._head()
        self._triggers()
        self._lines.append("")
        self._body("wf", self._spec.stages, self._dumped["stages"], 0)
        self._lines.append("")
        for name, value in self._dumped.get("outputs", {}).items():
            self._call(0, "wf.output", [("", literal(name)), ("", self._source.value(value))])
        body = "\n".join(self._lines).strip() + "\n"
        return "\n".join(self._naming.imports()) + "\n\n" + body

    def _head(self) -> None:
        options = [name for name in ("description", "labels", "seed", "defaults") if name in self._dumped]
        named = [(name, literal(self._dumped[name])) for name in options]  # handles do not exist yet
        self._call(0, f"wf = {self._naming.builder('Workflow')}", [("", literal(self._spec.name)), *named])
        for name, declared in self._dumped.get("inputs", {}).items():
            kind = declared.pop("type")
            given = [(key, literal(value)) for key, value in declared.items()]
            first = [("", literal(name)), ("", _TYPES.get(kind, literal(kind)))]
            self._call(0, f"{self._naming.inputs[name]} = wf.input", [*first, *given])
        for name in self._spec.secrets:
            self._call(0, f"{self._naming.secrets[name]} = wf.secret", [("", literal(name))])
        for name, declared in self._dumped.get("objects", {}).items():
            arguments = declared.get("with_")
            given = [("", f"**{self._source.value(arguments)}")] if arguments else []
            self._call(0, "wf.object", [("", literal(name)), ("", literal(self._kind(name))), *given])

    def _kind(self, name: str) -> str:
        declared = self._spec.objects[name]
        return declared.uses or str(declared.type)

    # -- triggers

    def _triggers(self) -> None:
        for name, declared in self._dumped.get("triggers", {}).items():
            self._lines.append("")
            handle = self._naming.triggers[name]
            self._trigger_source(handle, dict(declared))
            given = [("with_", self._source.value(declared["with_"]))] if "with_" in declared else []
            given += [("description", literal(declared["description"]))] if "description" in declared else []
            self._call(0, "wf.trigger", [("", literal(name)), ("", handle), *given])

    def _trigger_source(self, handle: str, declared: dict[str, Any]) -> None:
        kind = declared.pop("type")
        declared = {key: value for key, value in declared.items() if key not in ("with_", "description")}
        first = [("", self._source.value(declared.pop(key))) for key in _POSITIONAL.get(kind, ())]
        make = self._naming.builder(_SOURCES.get(kind, kind))
        self._call(0, f"{handle} = {make}", [*first, *map(self._trigger_option, declared.items())])

    def _trigger_option(self, option: tuple[str, Any]) -> tuple[str, str]:
        key, value = option
        if key == "batch":
            return key, self._make("batch", [(name, literal(part)) for name, part in value.items()])
        if key == "filter" or (key == "dedupe" and value not in ("offset", "event", "id", "body", "none")):
            return key, self._source.condition(value)
        return key.rstrip("_"), literal(value)

    # -- stages

    def _body(self, owner: str, stages: Mapping[str, Stage], dumped: Mapping[str, Any], depth: int) -> None:
        for name in topological(stages):
            stage = stages[name]
            if isinstance(stage, LoopStage):
                self._loop(owner, name, stage, dumped[name], depth)
            else:
                self._stage(owner, name, stage, dict(dumped[name]), depth)

    def _stage(self, owner: str, name: str, stage: Stage, declared: dict[str, Any], depth: int) -> None:
        kind = declared.pop("type")
        first = [("", literal(name))]
        if isinstance(stage, WorkflowStage):
            del declared["uses"]
            uses = stage.uses if isinstance(stage.uses, str) else as_written(stage.uses)
            first.append(("uses", literal(uses)))
        else:
            data = declared.pop("input")
            edges = [self._data(one) for one in data] if isinstance(data, list) else [self._data(data)]
            first.append(("", f"[{', '.join(edges)}]" if isinstance(data, list) else edges[0]))
        options = [self._option(key, value) for key, value in declared.items()]
        target = f"{self._naming.stages[name]} = " if name in self._read else ""
        self._call(depth, f"{target}{owner}.{kind}", [*first, *options])

    def _option(self, key: str, value: Any) -> tuple[str, str]:
        match key:
            case "uses" | "combine" | "finish":
                return key, self._source.function(value)
            case "by":
                return key, self._source.function(value) if isinstance(value, str) else literal(value)
            case "needs":
                return key, f"[{', '.join(map(self._source.reference, value))}]"
            case "when":
                return key, self._source.condition(value)
            case "output":
                return key, self._files(value)
            case "failed_items":
                return key, self._source.value(value["uri"])
            case "partitioner":
                return key, self._partitioner(value)
            case "initial" | "description":
                return key, literal(value)
        return key, self._source.value(value)

    def _partitioner(self, value: dict[str, Any]) -> str:
        boundaries = value.get("boundaries")
        if isinstance(boundaries, str):
            return f'{{"type": "range", "boundaries": {self._source.reference(boundaries)}}}'
        return literal(value) if boundaries is not None else literal(value.get("type", "hash"))

    def _data(self, data: Any) -> str:
        if isinstance(data, str):
            return self._source.reference(data)
        options = dict(data)
        for key, constructor in (("items", "items"), ("range", "range_")):
            if key in options:
                records = options.pop(key)
                first = literal(records) if key == "items" else self._source.value(records)
                return self._make(constructor, [("", first), *self._named(options)])
        return self._files(options)

    def _files(self, given: Mapping[str, Any]) -> str:
        options = dict(given)
        constructor, uri = options.pop("format"), self._source.value(options.pop("uri"))
        return self._make(constructor, [("", uri), *self._named(options)])

    def _named(self, options: Mapping[str, Any]) -> _Arguments:
        return [(key, self._source.value(value)) for key, value in options.items()]

    # -- loops

    def _loop(self, owner: str, name: str, stage: LoopStage, declared: dict[str, Any], depth: int) -> None:
        outer, handle = self._source, self._naming.stages[name]
        shown = {"type", "stages", "state", "next", "until"}
        state = ", ".join(f"{literal(key)}: {self._state(value)}" for key, value in declared["state"].items())
        first = [("", literal(name)), ("state", f"{{{state}}}")]
        options = [self._option(key, value) for key, value in declared.items() if key not in shown]
        self._lines.append("")
        self._call(depth, f"with {owner}.loop", [*first, *options], f" as {handle}:")
        self._source = SourceWriter(self._naming, {**outer.states, **dict.fromkeys(stage.state, handle)})
        self._body(handle, stage.stages, declared["stages"], depth + 1)
        self._after_each(handle, declared, depth + 1)
        self._source = outer
        self._lines.append("")

    def _after_each(self, handle: str, declared: Mapping[str, Any], depth: int) -> None:
        values = {key: self._state(value) for key, value in declared.get("next", {}).items()}
        plain = [(key, value) for key, value in values.items() if not keyword.iskeyword(key)]
        odd = [f"{literal(key)}: {value}" for key, value in values.items() if keyword.iskeyword(key)]
        if values:
            self._call(depth, f"{handle}.next", [*plain, *([("", f"**{{{', '.join(odd)}}}")] if odd else [])])
        if declared.get("until") is not None:
            self._call(depth, f"{handle}.until", [("", self._source.condition(declared["until"]))])

    def _state(self, value: Any) -> str:
        if is_reference(value):
            return self._source.reference(value)
        match whole(value) if isinstance(value, str) else None:
            case Path(("inputs", name)) if self._spec.inputs[name].type == "list":  # its handle would be data
                return literal(value)
        return self._source.value(value)

    # -- parts

    def _make(self, constructor: str, arguments: _Arguments) -> str:
        return _inline(self._naming.builder(constructor), arguments)

    def _call(self, depth: int, what: str, arguments: _Arguments, end: str = "") -> None:
        indent = "    " * depth
        line = f"{indent}{_inline(what, arguments)}{end}"
        if len(line) <= WIDTH:
            self._lines.append(line)
            return
        inner = [f"{indent}    {_argument(one)}," for one in arguments]
        self._lines += [f"{indent}{what}(", *inner, f"{indent}){end}"]


def _inline(what: str, arguments: _Arguments) -> str:
    return f"{what}({', '.join(map(_argument, arguments))})"


def _argument(argument: tuple[str, str]) -> str:
    name, value = argument
    return f"{name}={value}" if name else value
