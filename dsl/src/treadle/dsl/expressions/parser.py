"""Text to syntax tree: a Pratt parser (V. Pratt, Top down operator precedence, 1973)."""

from __future__ import annotations

import math
import re
from typing import NamedTuple

from .nodes import (
    FUNCTIONS,
    MAX_BITS,
    MAX_DEPTH,
    MAX_LENGTH,
    Binary,
    Call,
    Expr,
    ExpressionError,
    Literal,
    Path,
    Unary,
    walk,
)

COMPARISONS = ("==", "!=", "<=", ">=", "<", ">")
PRECEDENCE = {"||": 1, "&&": 2, **dict.fromkeys(COMPARISONS, 3), "+": 4, "-": 4, "*": 5, "/": 5}
UNARY = 6

_TOKEN = re.compile(
    r"""\s*(?:
      (?P<float>(?:0|[1-9][0-9]*)(?:\.[0-9]+(?:[eE][+-]?[0-9]+)?|[eE][+-]?[0-9]+))
    | (?P<int>(?:0|[1-9][0-9]*)(?![0-9]))
    | (?P<name>[A-Za-z_][A-Za-z0-9_]*)
    | (?P<string>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
    | (?P<close>\}\})
    | (?P<op>\|\||&&|[=!<>]=|[<>!+\-*/().,])
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
    "[": "there are no lists or indexes; follow names with dots",
    "?": "there is no conditional operator",
    "if": "there is no conditional operator",
}
_WORDS = {"and": "&&", "or": "||", "not": "!", "True": "true", "False": "false", "None": "null"}


class Token(NamedTuple):
    kind: str
    text: str
    offset: int


def parse(text: str) -> Expr:
    """The tree of one expression.

    Raises ExpressionError with the offset of the first thing that cannot be read, or when it is too long or too deep.
    """
    parser = Parser(text, 0)
    expr = parser.expression()
    parser.finish("end")
    return bounded(expr)


def parse_embedded(text: str, start: int) -> tuple[Expr, int]:
    """The tree of the expression at `start` of a template, and the offset after its closing `}}`."""
    parser = Parser(text, start)
    expr = parser.expression()
    return bounded(expr), parser.finish("close")


def bounded(expr: Expr) -> Expr:
    """`expr` itself, if the functions that recurse over it may do so."""
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
        """Everything that binds tighter than `above`."""
        left = self.operand()
        while (power := self.power()) > above:
            operator = self.advance()
            left = Binary(operator.text, left, self.expression(power), operator.offset)
            if operator.text in COMPARISONS and self.power() == power:
                raise ExpressionError("comparisons do not chain", self.token.offset, "write a < b && b < c")
        return left

    def power(self) -> int:
        return PRECEDENCE.get(self.token.text, 0) if self.token.kind == "op" else 0

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
            case "op", ("!" | "-"):
                return Unary(token.text, self.expression(UNARY - 1), token.offset)
            case "name", _:
                return self.name(token)
            case (("int" | "float" | "string"), _):
                return literal(token)
        raise ExpressionError(f"expected a value, got {shown(token)}", token.offset)

    def name(self, first: Token) -> Expr:
        if self.token == ("op", "(", self.token.offset):
            return self.call(first)
        if first.text in _CONSTANTS:
            return Literal(_CONSTANTS[first.text], first.offset)
        names = [first.text]
        while self.token == ("op", ".", self.token.offset):
            self.advance()
            if self.token.kind != "name":
                raise ExpressionError(f"expected a name after '.', got {shown(self.token)}", self.token.offset)
            names.append(self.advance().text)
        return path(names, first.offset)

    def call(self, name: Token) -> Expr:
        if name.text not in FUNCTIONS:
            known = ", ".join(FUNCTIONS)
            raise ExpressionError(f"there is no function {name.text!r}", name.offset, f"there are {known}")
        self.expect("(")
        arguments = [self.expression()]
        while self.token == ("op", ",", self.token.offset):
            self.advance()
            arguments.append(self.expression())
        self.expect(")")
        return checked_call(Call(name.text, tuple(arguments), name.offset))


def shown(token: Token) -> str:
    return "the end" if token.kind == "end" else repr(token.text)


def path(names: list[str], offset: int) -> Path:
    if len(names) == 1 and names[0] in _WORDS:
        raise ExpressionError(f"{names[0]!r} is not part of the language", offset, f"write {_WORDS[names[0]]}")
    return Path(tuple(names), offset)


def checked_call(call: Call) -> Call:
    if call.function in ("size", "has") and len(call.arguments) != 1:
        raise ExpressionError(f"{call.function}() takes one argument", call.offset)
    if call.function == "has" and not isinstance(call.arguments[0], Path):
        raise ExpressionError("has() takes a path, such as has(stages.s.metrics.m)", call.arguments[0].offset)
    return call


def literal(token: Token) -> Literal:
    """The value of a number or string token; refused when out of range."""
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
