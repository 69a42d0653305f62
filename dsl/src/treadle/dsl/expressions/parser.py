"""Parses text to a syntax tree: a Pratt parser (V. Pratt, Top down operator precedence, 1973).

Prints a syntax tree as text with the fewest parentheses: `parse(unparse(e)) == e`.
"""

from __future__ import annotations

import json
import math
import re
from itertools import takewhile
from typing import NamedTuple

from .nodes import (
    FUNCTIONS,
    MAX_BITS,
    MAX_DEPTH,
    MAX_LENGTH,
    MAX_PATTERN,
    Array,
    Binary,
    BuiltinCall,
    Expr,
    ExpressionError,
    Index,
    Literal,
    Path,
    Unary,
    paths,
    quoted,
    walk,
)
from .parse_cache import ParseCache

COMPARISONS = ("==", "!=", "<=", ">=", "<", ">", "in")
PRECEDENCE = {"||": 1, "&&": 2, **dict.fromkeys(COMPARISONS, 3), "+": 4, "-": 4, "*": 5, "/": 5}
UNARY = 6

_TOKEN = re.compile(
    r"""\s*(?:
      (?P<float>(?:0|[1-9][0-9]*)(?:\.[0-9]+(?:[eE][+-]?[0-9]+)?|[eE][+-]?[0-9]+))
    | (?P<int>(?:0|[1-9][0-9]*)(?![0-9]))
    | (?P<name>[A-Za-z_][A-Za-z0-9_]*)
    | (?P<string>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
    | (?P<close>\}\})
    | (?P<op>\|\||&&|[=!<>]=|[<>!+\-*/().,\[\]])
    | (?P<end>\Z)
    )""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", "'": "'", '"': '"'}
_CONSTANTS: dict[str, bool | None] = {"true": True, "false": False, "null": None}
_HINTS = {
    "=": "compare with ==",
    "&": "the operator is &&",
    "|": "the operator is ||",
    "%": "there is no remainder operator",
    "?": "there is no conditional operator",
    "if": "there is no conditional operator",
}
_WORDS = {"and": "&&", "or": "||", "not": "!", "True": "true", "False": "false", "None": "null"}
_ARGUMENTS = {
    **dict.fromkeys(("size", "has"), (1, "one argument")),
    **dict.fromkeys(("contains", "startsWith", "endsWith", "matches"), (2, "two arguments")),
}


class Token(NamedTuple):
    kind: str
    text: str
    offset: int


def parse(text: str) -> Expr:
    """Return the tree of one expression.

    Raises ExpressionError with the offset of the first syntax error, or when the expression is too long or too deep.
    """
    return _trees(text)


def read_paths(text: str) -> frozenset[tuple[str, ...]]:
    """Return every path in one expression. Raises ExpressionError like `parse`."""
    return _paths(text)


def _parsed(text: str) -> Expr:
    parser = Parser(text, 0)
    expr = parser.expression()
    parser.finish("end")
    return bounded(expr)


_trees = ParseCache(_parsed)
_paths = ParseCache(lambda text: frozenset(paths(parse(text))))


def parse_embedded(text: str, start: int) -> tuple[Expr, int]:
    """Return the tree of the expression at `start` of a template, and the offset after its closing `}}`."""
    parser = Parser(text, start)
    expr = parser.expression()
    return bounded(expr), parser.finish("close")


def bounded(expr: Expr) -> Expr:
    """Return `expr` itself. Raises ExpressionError when it is too deep for recursive functions."""
    for node, level in walk(expr):
        if level > MAX_DEPTH:
            raise ExpressionError(f"the expression is deeper than {MAX_DEPTH} levels", node.offset, "split it")
    return expr


class Parser:
    """One token of look-ahead over `text` from `start`."""

    def __init__(self, text: str, start: int) -> None:
        self.text = text
        self.limit = start + MAX_LENGTH
        self.depth = 0
        self.token = self.scan(start)

    def scan(self, position: int) -> Token:
        match = _TOKEN.match(self.text, position)
        if match is None:
            raise self.unreadable(position)
        kind = str(match.lastgroup)
        if match.end() > self.limit:
            raise ExpressionError(f"the expression is longer than {MAX_LENGTH} characters", match.start(kind))
        return Token(kind, match.group(kind), match.start(kind))

    def unreadable(self, position: int) -> ExpressionError:
        offset = position + len(self.text[position:]) - len(self.text[position:].lstrip())
        char = self.text[offset]
        if char in "'\"":
            return ExpressionError("the string has no closing quote", offset)
        if char in "0123456789":
            return ExpressionError("a number may not begin with 0", offset)
        return ExpressionError(f"{char!r} is not part of the language", offset, _HINTS.get(char, ""))

    def advance(self) -> Token:
        token = self.token
        self.token = self.scan(token.offset + len(token.text))
        return token

    def expect(self, text: str) -> None:
        if self.token.text != text:
            raise ExpressionError(f"expected {text!r}, got {shown(self.token)}", self.token.offset)
        self.advance()

    def finish(self, kind: str) -> int:
        if self.token.kind == kind:
            return self.token.offset + len(self.token.text)
        if kind == "close" and self.token.kind == "end":
            raise ExpressionError("the expression has no closing }}", self.token.offset)
        word = _WORDS.get(self.token.text)
        hint = f"the operator is {word}" if word in PRECEDENCE else _HINTS.get(self.token.text, "")
        raise ExpressionError(f"expected an operator, got {shown(self.token)}", self.token.offset, hint)

    def expression(self, above: int = 0) -> Expr:
        """Parse everything that binds tighter than `above`."""
        left = self.operand()
        while (power := self.power()) > above:
            operator = self.advance()
            left = Binary(operator.text, left, self.expression(power), operator.offset)
            if operator.text in COMPARISONS and self.power() == power:
                raise ExpressionError("comparisons do not chain", self.token.offset, "write a < b && b < c")
        return left

    def power(self) -> int:
        """Return the precedence of the current operator; 0 for any other token."""
        is_operator = self.token.kind == "op" or self.token.text == "in"
        return PRECEDENCE.get(self.token.text, 0) if is_operator else 0

    def operand(self) -> Expr:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise ExpressionError(f"the expression is deeper than {MAX_DEPTH} levels", self.token.offset, "split it")
        token = self.advance() if self.token.kind not in ("end", "close") else self.token
        expr = self.prefix(token)
        self.depth -= 1
        return expr

    def prefix(self, token: Token) -> Expr:
        match token.kind, token.text:
            case "op", "(":
                inner = self.expression()
                self.expect(")")
                return inner
            case "op", "[":
                return Array(tuple(self.listed("]")), token.offset)
            case "op", ("!" | "-"):
                return Unary(token.text, self.expression(UNARY - 1), token.offset)
            case "name", text if text != "in":
                return self.name(token)
            case (("int" | "float" | "string"), _):
                return literal(token)
        raise ExpressionError(f"expected a value, got {shown(token)}", token.offset)

    def name(self, first: Token) -> Expr:
        if self.token == ("op", "(", self.token.offset):
            return self.call(first)
        if first.text in _CONSTANTS:
            return Literal(_CONSTANTS[first.text], first.offset)
        keys: list[int | str] = [first.text]
        while self.token.kind == "op" and self.token.text in (".", "["):
            keys.append(self.position() if self.advance().text == "[" else self.member())
        return path(keys, first.offset)

    def member(self) -> str:
        """Parse the name after a dot."""
        if self.token.kind != "name":
            raise ExpressionError(f"expected a name after '.', got {shown(self.token)}", self.token.offset)
        return self.advance().text

    def position(self) -> int | str:
        """Parse the content of brackets, and the closing bracket."""
        negative = self.token == ("op", "-", self.token.offset) and bool(self.advance())
        token = self.token
        value = literal(token).value if token.kind in ("int", "string") else None
        if not isinstance(value, int | str) or (negative and isinstance(value, str)):
            hint = "write a whole number or a name in quotes"
            raise ExpressionError(f"expected a position or a name, got {shown(token)}", token.offset, hint)
        self.advance()
        self.expect("]")
        return -value if negative and isinstance(value, int) else value

    def call(self, name: Token) -> Expr:
        if name.text not in FUNCTIONS:
            from difflib import get_close_matches

            close = get_close_matches(name.text, FUNCTIONS, 1)
            hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(FUNCTIONS)}"
            raise ExpressionError(f"there is no function {name.text!r}", name.offset, hint)
        self.expect("(")
        arguments = [self.expression(), *self.listed(")", separated=True)]
        return checked_call(BuiltinCall(name.text, tuple(arguments), name.offset))

    def listed(self, end: str, *, separated: bool = False) -> list[Expr]:
        """Parse expressions separated by commas, and the closing bracket. `separated`: an expression precedes them."""
        found: list[Expr] = []
        while self.token != ("op", end, self.token.offset):
            if separated or found:
                if self.token != ("op", ",", self.token.offset):
                    break
                self.advance()
            found.append(self.expression())
        self.expect(end)
        return found


def shown(token: Token) -> str:
    return "the end" if token.kind == "end" else repr(token.text)


def path(keys: list[int | str], offset: int) -> Path | Index:
    if len(keys) == 1 and keys[0] in _WORDS:
        raise ExpressionError(f"{keys[0]!r} is not part of the language", offset, f"write {_WORDS[str(keys[0])]}")
    names = tuple(takewhile(lambda key: isinstance(key, str), keys))
    start = Path(tuple(map(str, names)), offset)
    return Index(start, tuple(keys[len(names) :]), offset) if len(names) < len(keys) else start


def checked_call(call: BuiltinCall) -> BuiltinCall:
    """Return the call itself. Raises ExpressionError for arguments that can never be right."""
    wanted = _ARGUMENTS.get(call.function)
    if wanted and len(call.arguments) != wanted[0]:
        raise ExpressionError(f"{call.function}() takes {wanted[1]}", call.offset)
    if call.function == "has" and not isinstance(call.arguments[0], Path | Index):
        raise ExpressionError("has() takes a path, such as has(stages.s.metrics.m)", call.arguments[0].offset)
    if call.function == "matches":
        checked_pattern(call.arguments[1])
    return call


def checked_pattern(expr: Expr) -> None:
    """Raise ExpressionError for a pattern that is not a string literal, or is too long."""
    if not isinstance(expr, Literal) or not isinstance(expr.value, str):
        raise ExpressionError("the pattern of matches() must be a text in quotes", expr.offset)
    if len(expr.value) > MAX_PATTERN:
        raise ExpressionError(f"the pattern is longer than {MAX_PATTERN} characters", expr.offset)


def literal(token: Token) -> Literal:
    """Return the value of a number or string token. Raises ExpressionError when it is out of range."""
    if token.kind == "string":
        return Literal(unescape(token), token.offset)
    value = int(token.text) if token.kind == "int" else float(token.text)
    if isinstance(value, int) and value.bit_length() > MAX_BITS:
        raise ExpressionError(f"the integer has more than {MAX_BITS} bits", token.offset)
    if isinstance(value, float) and math.isinf(value):
        raise ExpressionError("the number is too large", token.offset)
    return Literal(value, token.offset)


def unescape(token: Token) -> str:
    def replace(match: re.Match[str]) -> str:
        code = match.group(1)
        if len(code) == 5 and not 0xD800 <= int(code[1:], 16) < 0xE000:
            return chr(int(code[1:], 16))
        if code not in _ESCAPES:
            offset = token.offset + 1 + match.start()
            raise ExpressionError(f"unknown escape \\{code}", offset, "there are \\\\ \\' \\\" \\n \\t \\r \\uXXXX")
        return _ESCAPES[code]

    return _ESCAPE.sub(replace, token.text[1:-1])


def unparse(expr: Expr) -> str:
    """Return the expression as text that parses back to an equal tree."""
    match expr:
        case Literal(value):
            return quoted(value) if isinstance(value, str) else json.dumps(value)
        case Path() | Index():
            return str(expr)
        case Array(items):
            return f"[{', '.join(map(unparse, items))}]"
        case BuiltinCall(function, arguments):
            return f"{function}({', '.join(unparse(argument) for argument in arguments)})"
        case Unary(operator, operand):
            return operator + _within(operand, UNARY)
        case Binary(operator, left, right):
            power = PRECEDENCE[operator]
            chained = operator in COMPARISONS
            return f"{_within(left, power + chained)} {operator} {_within(right, power + 1)}"


def _within(expr: Expr, power: int) -> str:
    text = unparse(expr)
    return f"({text})" if isinstance(expr, Binary) and PRECEDENCE[expr.operator] < power else text
