"""Checks the expressions of a document: the names that each place may use, and the type of the result."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from pydantic import JsonValue

from ..diagnostics.diagnostics import Path, a, did_you_mean, one_of
from ..expressions import Expr, ExpressionError, Type, check, parse
from ..expressions import Path as Name
from ..expressions.nodes import walk
from ..graph.graph import Node, ReferenceProblem, StageGraph
from ..model import BroadcastStage, LoopStage, MapStage, ReduceStage, Stage, WorkflowStage
from ..templates import OPEN, is_reference, parse_template
from .report import Report

RUN: Mapping[str, Type] = {"id": Type.STRING, "startTime": Type.STRING}
INPUT_TYPES = {
    "string": Type.STRING,
    "uri": Type.STRING,
    "boolean": Type.BOOL,
    "integer": Type.INT,
    "number": Type.FLOAT,
    "list": Type.LIST,
}
_JSON_TYPES = {bool: Type.BOOL, int: Type.INT, float: Type.FLOAT, list: Type.LIST}
METRIC_TYPES = {"integer": Type.INT, "string": Type.STRING, "boolean": Type.BOOL}
PLAN_ROOTS = frozenset({"inputs", "run"})
RUN_ROOTS = frozenset({"inputs", "run", "stages", "state"})
OUTPUT_ROOTS = frozenset({"inputs", "objects", "run", "stages"})
_TRIGGER_HINT = "map it in the trigger's `with` to an input, and read `inputs.NAME`"

_NAME = r"\s*((?:inputs|objects|run|stages|state|secrets)\.[A-Za-z0-9_.]+)\s*"
_BRACES = re.compile(r"(?<!\$)\{\{" + _NAME + r"\}\}|\$\{" + _NAME + r"\}")
"""Text that was perhaps meant to be an expression."""
_UNTRIGGERED = {
    "secrets": "secrets are no inputs: stages read them in their own `with`",
    "event": "a batch has many events: hand over all with `${{ trigger.events }}`; a schedule has none",
    "run": "the run does not exist yet: its stages can read `run`",
}
"""Maps a root that a trigger cannot name to the remedy."""


@dataclass(frozen=True)
class ExpressionSite:
    """A place of the document that may hold an expression."""

    path: Path
    roots: frozenset[str]
    """First words of paths that have a value here."""
    when: str
    """The time of evaluation, for messages, such as `when the run is planned`."""
    loops: tuple[str, ...] = ()
    whole_values: bool = False
    """The value may be `${{ stages.B }}` or `${{ secrets.S }}`: top level of `with`."""
    scope: Mapping[str, Any] | None = None
    """In a trigger: all known names with their types; no run exists yet."""

    def below(self, *parts: str | int) -> ExpressionSite:
        return replace(self, path=(*self.path, *parts))


class Expressions:
    """Checks the expressions of one graph, and adds findings to the report."""

    def __init__(self, graph: StageGraph, report: Report) -> None:
        self.graph = graph
        self.report = report
        self.used_inputs: set[str] = set()
        self.used_secrets: set[str] = set()

    def condition(self, site: ExpressionSite, text: str) -> None:
        """Check `when` or `until`: an expression without delimiters that is true or false."""
        if OPEN in text:
            bare = text.replace(OPEN, "").replace("}}", "").strip()
            name = site.path[-1]
            self.report.add("T303", site.path, f"'{name}' is always an expression", f"write `{name}: {bare}`")
            return
        self.scalar(site, text, {Type.BOOL}, "true or false")

    def scalar(self, site: ExpressionSite, text: str, wanted: set[Type], words: str) -> None:
        """Check an expression without delimiters that gives one of the wanted types."""
        try:
            expr = parse(text)
        except ExpressionError as error:
            self.report.expression("T301", site.path, text, error)
            return
        self._whole(site, text, expr, wanted, words)

    def _whole(self, site: ExpressionSite, text: str, expr: Expr, wanted: set[Type] | None, words: str) -> None:
        found = self._type(site, text, expr)
        if found is not None and wanted is not None and found not in {*wanted, Type.UNKNOWN}:
            message = f"this must be {words}; the expression gives {a(found)}"
            self.report.add("T304", site.path, message, _instead(text, found, wanted))

    def count(self, site: ExpressionSite, value: object) -> None:
        """Check a number, or a single whole-value expression that gives a whole number."""
        if isinstance(value, str):
            self.typed(site, value, {Type.INT}, "a whole number")

    def uri(self, site: ExpressionSite, text: str) -> None:
        """Check text with embedded expressions."""
        self.typed(site, text, {Type.STRING}, "text", embedded=True)

    def value(self, site: ExpressionSite, value: JsonValue) -> None:
        """Check a JSON value with expressions at any depth; only the outermost string may be a broadcast or
        a secret.
        """
        if isinstance(value, str):
            self.typed(site, value, None, "", embedded=True)
        inner = replace(site, whole_values=False)
        if isinstance(value, dict):
            for key, item in value.items():
                self.value(inner.below(key), item)
        elif isinstance(value, list):
            for index, item in enumerate(value):
                self.value(inner.below(index), item)

    def literal(self, path: Path, value: object, reason: str) -> None:
        """Check a value in which `${{ }}` would not be evaluated."""
        if isinstance(value, str) and OPEN in value:
            self.report.add("T303", path, "an expression here would not be evaluated", reason)
        pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        for key, item in pairs:
            self.literal((*path, key), item, reason)

    def typed(
        self, site: ExpressionSite, text: str, wanted: set[Type] | None, words: str, *, embedded: bool = False
    ) -> None:
        """Check a template that gives one of the wanted types (None: any); `embedded`: text around it is allowed."""
        try:
            pieces = parse_template(text)
        except ExpressionError as error:
            self.report.expression("T301", site.path, text, error)
            return
        if len(pieces) == 1 and not isinstance(pieces[0], str):
            self._whole(site, text, pieces[0], wanted, words)
            return
        if not embedded:
            self.report.add("T304", site.path, f"this must be {words} or one expression, without other text around it")
        self._braces(site, text)
        for piece in pieces:
            if not isinstance(piece, str):
                self._embedded(replace(site, whole_values=False), text, piece)

    def _braces(self, site: ExpressionSite, text: str) -> None:
        """Report braces of other template languages, which are not evaluated here."""
        for match in _BRACES.finditer(text):
            name = match[1] or match[2]
            self.used_inputs.add(name.removeprefix("inputs."))
            hint = f"for its value write `${{{{ {name} }}}}`"
            self.report.inside("T605", site.path, text, match.span(), f"`{match[0]}` is not replaced by a value", hint)

    def _embedded(self, site: ExpressionSite, text: str, expr: Expr) -> None:
        found = self._type(site, text, expr)
        if found in (Type.LIST, Type.NULL):
            self.report.add("T304", site.path, f"{a(found)} cannot stand inside a longer text")

    def _type(self, site: ExpressionSite, text: str, expr: Expr) -> Type | None:
        """Return the type of an expression; None when one of its names has been reported."""
        known = site.scope or {}
        scope: dict[str, Any] = dict(known)
        for node, _ in walk(expr):
            if isinstance(node, Name) and node.names[0] not in known:
                try:
                    _insert(scope, node.names, self._name(site, node, whole=node is expr))
                except ReferenceProblem as problem:
                    at = (node.offset, node.offset + len(str(node)))
                    self.report.inside(problem.code, site.path, text, at, problem.message, problem.hint)
                    return None
        try:
            return check(expr, scope)
        except ExpressionError as error:
            self.report.expression("T304", site.path, text, error)
            return None

    def _name(self, site: ExpressionSite, name: Name, *, whole: bool) -> Type:
        root, *rest = name.names
        if site.scope is not None:
            known = sorted(site.scope)
            hint = _UNTRIGGERED.get(root) or did_you_mean(root, known) or f"paths begin with {one_of(known)}"
            raise ReferenceProblem("T302", f"'{root}' has no value {site.when}", hint)
        if root == "secrets":
            return self._secret(site, rest, whole=whole)
        if root in ("trigger", "event"):
            raise ReferenceProblem("T302", f"'{root}' has no value here", _TRIGGER_HINT)
        if root not in site.roots:
            known = sorted(site.roots)
            if root in RUN_ROOTS | OUTPUT_ROOTS:
                hint = "write `stages.LOOP.state.NAME`" if root == "state" else f"usable here: {one_of(known)}"
                raise ReferenceProblem("T302", f"'{root}' has no value {site.when}", hint)
            hint = did_you_mean(root, known) or f"paths begin with {one_of(known)}"
            raise ReferenceProblem("T302", f"there is nothing called '{root}'", hint)
        if root == "run":
            return _run(rest)
        if root == "inputs":
            return self._input(rest)
        if root == "state":
            return self._state(site, rest)
        if root == "objects":
            return self._object(rest)
        return self._stage(site, rest, whole=whole)

    def _secret(self, site: ExpressionSite, rest: list[str], *, whole: bool) -> Type:
        declared = self.graph.spec.secrets
        if len(rest) != 1:
            raise ReferenceProblem("T109", "a secret is `secrets.NAME`", "")
        self.used_secrets.add(rest[0])
        if not (whole and site.whole_values):
            hint = f"a secret can only be a whole `with` value: `name: ${{{{ secrets.{rest[0]} }}}}`"
            raise ReferenceProblem("T109", f"the secret '{rest[0]}' cannot be used here", hint)
        if rest[0] not in declared:
            hint = did_you_mean(rest[0], declared) or f"declare it: `secrets: [{rest[0]}]`"
            raise ReferenceProblem("T109", f"the secret '{rest[0]}' is not declared", hint)
        return Type.STRING

    def _input(self, rest: list[str]) -> Type:
        if len(rest) != 1:
            raise ReferenceProblem("T101", "an input is `inputs.NAME`", f"declared: {one_of(self.graph.spec.inputs)}")
        target = self.graph.input(rest[0])
        self.used_inputs.add(rest[0])
        if target.input.type == "dataset":
            hint = f"read it with `input: inputs.{rest[0]}`"
            raise ReferenceProblem("T106", f"the dataset '{rest[0]}' has no value in an expression", hint)
        return INPUT_TYPES[target.input.type]

    def _object(self, rest: list[str]) -> Type:
        known = self.graph.spec.objects
        if len(rest) != 1 or rest[0] not in known:
            hint = did_you_mean(".".join(rest), known) or f"declared: {one_of(known)}"
            raise ReferenceProblem("T101", f"there is no object '{'.'.join(rest)}'", hint)
        return Type.UNKNOWN

    def _state(self, site: ExpressionSite, rest: list[str]) -> Type:
        if len(rest) != 1:
            raise ReferenceProblem("T101", "a state is `state.NAME`", "")
        target = self.graph.state(rest[0], site.loops)
        return _scalar_state(target.loop, rest[0])

    def _stage(self, site: ExpressionSite, rest: list[str], *, whole: bool) -> Type:
        if not rest:
            raise ReferenceProblem("T101", "`stages` alone is not a value", "write `stages.ID.metrics.NAME`")
        node = self.graph.stage(rest[0], site.loops)
        if node.id in site.loops:
            hint = "inside a loop read `state.NAME`"
            raise ReferenceProblem("T102", f"the loop '{node.id}' is not over here", hint)
        if isinstance(node.stage, WorkflowStage):
            return self._outputs(node, rest[1:])
        match rest[1:]:
            case []:
                return _broadcast(site, node, whole=whole)
            case ["metrics", name]:
                return _metric(node, name)
            case ["value", *_]:
                return _value(node)
            case ["output", "uri"]:
                return _output(node)
            case ["state", name]:
                target = self.graph.loop_state(node.id, name, site.loops)
                return _scalar_state(target.loop, name)
        hint = f"write `stages.{node.id}.metrics.NAME`, `.output.uri`, or for a loop `.state.NAME`"
        if isinstance(node.stage, ReduceStage) and node.stage.per == "all":
            hint = f"write `stages.{node.id}.value`, `.metrics.NAME` or `.output.uri`"
        raise ReferenceProblem("T101", f"stages have no '{'.'.join(rest[1:])}'", hint)

    def type_of(self, site: ExpressionSite) -> Type:
        """Return the type of the workflow's output at that place, as far as the document shows it."""
        value = self.graph.spec.outputs[str(site.path[-1])]
        if not isinstance(value, str):
            return _JSON_TYPES.get(type(value), Type.UNKNOWN)
        try:
            pieces = parse_template(value)
        except ExpressionError:
            return Type.UNKNOWN
        if len(pieces) != 1 or isinstance(pieces[0], str):
            return Type.STRING
        return self._type(site, value, pieces[0]) or Type.UNKNOWN

    def _outputs(self, node: Node, rest: list[str]) -> Type:
        """Check `stages.SUB.outputs.NAME`."""
        child = self.report.document.children.get(node.id)
        known = child.spec.outputs if child is not None and child.spec is not None and not child.problems else None
        if len(rest) != 2 or rest[0] != "outputs":
            hint = f"write `stages.{node.id}.outputs.NAME`"
            raise ReferenceProblem("T106", f"'{node.id}' is a workflow, it has outputs only", hint)
        if known is None:
            return Type.UNKNOWN
        if rest[1] not in known:
            hint = did_you_mean(rest[1], known) or (f"it has {one_of(known)}" if known else "it declares no `outputs`")
            raise ReferenceProblem("T101", f"the workflow '{node.id}' has no output '{rest[1]}'", hint)
        assert child is not None
        return Expressions(StageGraph(child.require()), Report(child)).type_of(
            ExpressionSite(("outputs", rest[1]), OUTPUT_ROOTS, "")
        )


def _instead(text: str, found: Type, wanted: set[Type]) -> str:
    if wanted == {Type.BOOL}:
        return "compare it: ==, !=, <, <=, > or >="
    return "`/` gives a float, whatever its operands" if found is Type.FLOAT and "/" in text else ""


def _insert(scope: dict[str, Any], names: tuple[str, ...], found: Type) -> None:
    for name in names[:-1]:
        scope = scope.setdefault(name, {})
    scope[names[-1]] = found


def _run(rest: list[str]) -> Type:
    if len(rest) != 1 or rest[0] not in RUN:
        hint = did_you_mean(rest[0] if rest else "", RUN) or f"there is {one_of(f'run.{name}' for name in RUN)}"
        raise ReferenceProblem("T101", f"there is no `{'.'.join(['run', *rest])}`", hint)
    return RUN[rest[0]]


def _broadcast(site: ExpressionSite, node: Node, *, whole: bool) -> Type:
    if not isinstance(node.stage, BroadcastStage):
        hint = f"only a broadcast is a value: add a stage `{{type: broadcast, input: {node.id}}}`, or name a metric"
        raise ReferenceProblem("T106", f"stage '{node.id}' is a {node.stage.type}, not a value", hint)
    if not (whole and site.whole_values):
        hint = f"it can only be a whole `with` value: `name: ${{{{ stages.{node.id} }}}}`"
        raise ReferenceProblem("T106", f"the broadcast '{node.id}' cannot be part of an expression", hint)
    return Type.UNKNOWN


def _value(node: Node) -> Type:
    if not isinstance(node.stage, ReduceStage) or node.stage.per != "all":
        hint = "only a reduce with `per: all` makes one value; of other stages name a metric, or write an `output`"
        raise ReferenceProblem("T106", f"stage '{node.id}' has no single value", hint)
    return Type.UNKNOWN


def _metric(node: Node, name: str) -> Type:
    declared = metrics_of(node.stage)
    if name not in declared:
        hint = did_you_mean(name, declared) or (
            f"declared: {one_of(declared)}" if declared else f"declare it on the stage: `metrics: {{{name}: ...}}`"
        )
        raise ReferenceProblem("T108", f"stage '{node.id}' declares no metric '{name}'", hint)
    return METRIC_TYPES.get(declared[name], Type.FLOAT)


def metrics_of(stage: Stage) -> dict[str, str]:
    """Return metrics by name with their declared types; a loop always has `iterations`."""
    if isinstance(stage, LoopStage):
        return {"iterations": "integer"}
    return {**stage.metrics} if isinstance(stage, (MapStage, ReduceStage)) else {}


def _output(node: Node) -> Type:
    if getattr(node.stage, "output", None) is None:
        hint = "give the stage an `output: {uri: ..., format: ...}`"
        raise ReferenceProblem("T106", f"stage '{node.id}' writes no output", hint)
    return Type.STRING


def _scalar_state(loop: Node, name: str) -> Type:
    assert isinstance(loop.stage, LoopStage)
    initial = loop.stage.state[name]
    if is_reference(initial):
        hint = f"as data it is read with `input: state.{name}`, as a value through a broadcast"
        raise ReferenceProblem("T106", f"the state '{name}' is a dataset, not a value", hint)
    if isinstance(initial, bool):
        return Type.BOOL
    return Type.FLOAT if isinstance(initial, (int, float)) else Type.UNKNOWN
