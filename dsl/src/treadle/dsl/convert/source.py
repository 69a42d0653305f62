"""Writes JSON values, templates, references and expressions as Python source, with handles in place of paths."""

from __future__ import annotations

import keyword
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..expressions import Array, Binary, BuiltinCall, Expr, Index, Literal, Path, Unary, parse
from ..expressions.nodes import walk
from ..expressions.parser import COMPARISONS
from ..templates import OPEN, parse_template
from .naming import Naming

_OPERATORS = {"&&": "&", "||": "|"}
_PLAIN = re.compile(r'[^{}"\\\x00-\x1f]*')
"""Text that an f-string can hold unchanged."""
_QUOTABLE = re.compile(r'[^"\\\x00-\x1f\x7f-\xa0\u2028\u2029\ud800-\udfff]*')
_FUNCTIONS = {"startsWith": "starts_with", "endsWith": "ends_with"}
_RUN = {"id": "id", "startTime": "start_time"}


class Unrecordable(Exception):
    """Python would evaluate the expression, or swap its operands, instead of recording it."""


@dataclass(frozen=True)
class SourceWriter:
    """Writes values at one place of a workflow. `states` maps a state to the handle of its loop."""

    naming: Naming
    states: Mapping[str, str] = field(default_factory=dict)

    def value(self, value: Any) -> str:
        """Write JSON whose strings may be templates."""
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, Mapping):
            return "{" + ", ".join(f"{literal(str(key))}: {self.value(item)}" for key, item in value.items()) + "}"
        if isinstance(value, (list, tuple)):
            return "[" + ", ".join(map(self.value, value)) + "]"
        return literal(value)

    def condition(self, text: str) -> str:
        """Write an expression with operators of handles, or as text where Python cannot record it."""
        try:
            return self._recorded(parse(text))
        except Unrecordable:
            return literal(text)

    def reference(self, reference: str) -> str:
        """Write a data edge: the handle of a stage, an input or a state."""
        first, *rest = reference.split(".")
        if first == "inputs":
            return self.naming.inputs[rest[0]]
        if first == "state":
            return _attribute(f"{self.states[rest[0]]}.state", rest[0])
        handle = self.naming.stages[first]
        return _attribute(f"{handle}.state", rest[1]) if rest else handle

    def function(self, reference: str) -> str:
        """Return the imported function, or `'module:name'`."""
        return self.naming.functions.get(reference) or literal(reference)

    # -- strings

    def _text(self, text: str) -> str:
        if OPEN not in text:
            return literal(text)
        pieces = parse_template(text)
        try:
            if len(pieces) == 1 and not isinstance(pieces[0], str):
                return self._recorded(pieces[0])
            return 'f"' + "".join(map(self._embedded, pieces)) + '"'
        except Unrecordable:
            return literal(text)

    def _embedded(self, piece: str | Expr) -> str:
        text = piece if isinstance(piece, str) else self._path(piece) if isinstance(piece, Path) else None
        if text is None or not _PLAIN.fullmatch(text):
            raise Unrecordable
        return text if isinstance(piece, str) else "{" + text + "}"

    # -- expressions

    def _recorded(self, expr: Expr) -> str:
        """Return Python code that records exactly this expression. Raises Unrecordable."""
        match expr:
            case Path():
                return self._path(expr)
            case Index(path, keys):
                return self._path(path) + "".join(f"[{literal(key)}]" for key in keys)
            case Unary("!" | "-" as operator, operand) if _has_path(operand):
                return f"{'~' if operator == '!' else '-'}{self._operand(operand)}"
            case Binary("in", left, right):
                return f"{self.naming.builder('is_in')}({self._argument(left)}, {self._argument(right)})"
            case Binary(operator, left, right) if _has_path(left) or (_has_path(right) and operator not in COMPARISONS):
                return f"{self._operand(left)} {_OPERATORS.get(operator, operator)} {self._operand(right)}"
            case BuiltinCall("has" | "size" as function, (Path() | Index() as path,)):
                return f"{self.naming.builder(function)}({self._recorded(path)})"
            case BuiltinCall("contains" | "startsWith" | "endsWith" | "matches" as function, arguments):
                given = ", ".join(map(self._argument, arguments))
                return f"{self.naming.builder(_FUNCTIONS.get(function, function))}({given})"
        raise Unrecordable

    def _argument(self, expr: Expr) -> str:
        if isinstance(expr, Array):
            return f"[{', '.join(map(self._argument, expr.items))}]"
        return literal(expr.value) if isinstance(expr, Literal) else self._recorded(expr)

    def _operand(self, expr: Expr) -> str:
        if isinstance(expr, Literal):
            return literal(expr.value)
        text = self._recorded(expr)
        return f"({text})" if isinstance(expr, Binary | Unary) else text

    def _path(self, path: Path) -> str:
        match path.names:
            case ("inputs", name):
                return self.naming.inputs[name]
            case ("secrets", name):
                return self.naming.secrets[name]
            case ("run", name):
                return f"{self.naming.builder('run')}.{_RUN[name]}"
            case ("state", name):
                return _attribute(f"{self.states[name]}.state", name)
            case ("stages", stage):
                return self.naming.stages[stage]
            case ("stages", stage, "value"):
                return f"{self.naming.stages[stage]}.value"
            case ("stages", stage, part, name) if part != "value":
                return _attribute(f"{self.naming.stages[stage]}.{part}", name)
            case ("event" | "trigger", part, *names):
                return f"{self.naming.builder(path.names[0])}.{part}{''.join(map(_item, names))}"
        raise Unrecordable


def literal(value: Any) -> str:
    """Write JSON as Python; strings are in double quotes where that needs no escape."""
    if isinstance(value, str):
        return f'"{value}"' if _QUOTABLE.fullmatch(value) else repr(value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{literal(str(key))}: {literal(item)}" for key, item in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(literal, value)) + "]"
    return repr(value)


def _has_path(expr: Expr) -> bool:
    return any(isinstance(node, Path | BuiltinCall) for node, _ in walk(expr))


def _item(name: str) -> str:
    """Write a part of a value: `event.data` may have a part of any name, including names of a handle's attributes."""
    plain = name.isidentifier() and not (keyword.iskeyword(name) or name[0] == "_" or name == "expression")
    return f".{name}" if plain else f"[{literal(name)}]"


def _attribute(owner: str, *names: str) -> str:
    for name in names:
        owner = f'getattr({owner}, "{name}")' if keyword.iskeyword(name) else f"{owner}.{name}"
    return owner
