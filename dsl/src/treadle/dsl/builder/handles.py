"""Handles that the builder returns: stages, inputs and values. Their operators record expressions instead
of computing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, NoReturn, TypeVar

from treadle.primitives.errors import UsageError

from ..diagnostics.diagnostics import a
from ..expressions import Array, Binary, BuiltinCall, Expr, Index, Literal, Path, Unary, unparse
from ..expressions.parser import checked_call, path


def to_expression(value: Any) -> Expr:
    """Return the expression of a handle, number, string, boolean, None, or list of these. Raises UsageError."""
    if isinstance(value, ValueHandle):
        return value.expression
    if isinstance(value, (int, float)) and not isinstance(value, bool) and value < 0:
        return Unary("-", Literal(-value))
    if value is None or isinstance(value, (bool, int, float, str)):
        return Literal(value)
    if isinstance(value, (list, tuple)):
        return Array(tuple(map(to_expression, value)))
    hint = "Use a handle's `.metrics.x`, `.output.uri` or `.state.x`, an input, or a literal."
    raise UsageError(f"{a(type(value).__name__)} cannot be part of an expression", hint)


def _binary(operator: str, swapped: bool = False) -> Callable[[Any, Any], ValueHandle]:
    def record(self: ValueHandle, other: Any) -> ValueHandle:
        left, right = (to_expression(other), self.expression) if swapped else (self.expression, to_expression(other))
        return Scalar(Binary(operator, left, right))

    return record


class ValueHandle:
    """A scalar that is known only when the workflow runs. `str()` gives its template, for use in an f-string."""

    def __init__(self, expression: Expr) -> None:
        self.expression = expression

    __add__, __radd__ = _binary("+"), _binary("+", swapped=True)
    __sub__, __rsub__ = _binary("-"), _binary("-", swapped=True)
    __mul__, __rmul__ = _binary("*"), _binary("*", swapped=True)
    __truediv__, __rtruediv__ = _binary("/"), _binary("/", swapped=True)
    __and__, __rand__ = _binary("&&"), _binary("&&", swapped=True)
    __or__, __ror__ = _binary("||"), _binary("||", swapped=True)
    __lt__, __le__, __gt__, __ge__ = _binary("<"), _binary("<="), _binary(">"), _binary(">=")
    __hash__ = None  # type: ignore[assignment]  # == records an expression

    def __eq__(self, other: object) -> ValueHandle:  # type: ignore[override]
        return _binary("==")(self, other)

    def __ne__(self, other: object) -> ValueHandle:  # type: ignore[override]
        return _binary("!=")(self, other)

    def __getitem__(self, key: int | str) -> ValueHandle:
        """An item of a list, counted from the end for a negative index; or a member of an object."""
        return Scalar(below(self.expression, key))

    def __neg__(self) -> ValueHandle:
        return Scalar(Unary("-", self.expression))

    def __invert__(self) -> ValueHandle:
        return Scalar(Unary("!", self.expression))

    def __bool__(self) -> NoReturn:
        raise UsageError(
            f"{unparse(self.expression)} has no value yet: it is known only when the workflow runs",
            "Write &, | and ~ (with parentheses) instead of and, or and not; use `when=` or `until` instead of if.",
        )

    def __iter__(self) -> NoReturn:
        raise UsageError(f"{unparse(self.expression)} has no items yet", "Pass it to a stage whole.")

    def __str__(self) -> str:
        return "${{ " + unparse(self.expression) + " }}"

    def __repr__(self) -> str:
        return f"<{unparse(self.expression)}>"


Condition = ValueHandle | str
"""A condition: a value, or an expression as text."""


class Scalar(ValueHandle):
    """Any other value. A sibling of DataValue, not its base: Python asks a subclass first and would swap `a < b`."""


class DataValue(ValueHandle):
    """An input or a state: data where a dataset is expected, a scalar in expressions."""

    def __init__(self, names: tuple[str, ...], reference: str, is_data: bool) -> None:
        super().__init__(Path(names))
        self.reference = reference
        """The text for the `input` of a stage."""
        self.is_data = is_data
        """`state` and `next`, which accept data and scalars, take it as data."""


V = TypeVar("V", bound=ValueHandle)


class NamedValues(Generic[V]):
    """A namespace such as `.metrics`: every attribute is a value."""

    def __init__(self, make: Callable[[str], V]) -> None:
        self._make = make

    def __getattr__(self, name: str) -> V:
        if name.startswith("_"):
            raise AttributeError(name)
        return self._make(name)


class StageHandle:
    """A stage of the workflow: the `input` of later stages, with `.metrics.x` and `.output.uri`."""

    def __init__(self, id: str) -> None:
        self.id = id
        self.metrics = NamedValues(lambda name: Scalar(Path(("stages", id, "metrics", name))))
        self.output = NamedValues(lambda name: Scalar(Path(("stages", id, "output", name))))
        self.value = Scalar(Path(("stages", id, "value")))
        """The record of a reduce with `per="all"`."""

    @property
    def reference(self) -> str:
        return self.id

    def __str__(self) -> str:
        return "${{ stages." + self.id + " }}"

    def __repr__(self) -> str:
        return f"<stage {self.id}>"


class ChildHandle(StageHandle):
    """A stage that runs a child workflow, with `.outputs.x`."""

    def __init__(self, id: str) -> None:
        super().__init__(id)
        self.outputs = NamedValues(lambda name: Scalar(Path(("stages", id, "outputs", name))))


class ObjectHandle(Scalar):
    """A shared object: for `objects` of stages, and for `Workflow.output`."""

    def __init__(self, name: str) -> None:
        super().__init__(Path(("objects", name)))
        self.name = name


class RunHandle:
    """The run itself."""

    id = Scalar(Path(("run", "id")))
    start_time = Scalar(Path(("run", "startTime")))
    """The time of the first start, RFC 3339, UTC; unchanged by a resume."""


run = RunHandle()


def has(value: ValueHandle) -> ValueHandle:
    """Return whether a value exists: false for values of a skipped stage."""
    return Scalar(BuiltinCall("has", (value.expression,)))


def size(value: ValueHandle) -> ValueHandle:
    """Return the number of characters of a string, or of items of a list."""
    return Scalar(BuiltinCall("size", (value.expression,)))


def is_in(value: Any, place: Any) -> ValueHandle:
    """Return whether a list has an equal item, or an object has a member of this name: `value in place`."""
    return Scalar(Binary("in", to_expression(value), to_expression(place)))


def contains(value: Any, part: Any) -> ValueHandle:
    """Return whether a string contains the part, or a list the item."""
    return _call("contains", value, part)


def starts_with(value: Any, prefix: Any) -> ValueHandle:
    """Return whether a string begins with the prefix."""
    return _call("startsWith", value, prefix)


def ends_with(value: Any, suffix: Any) -> ValueHandle:
    """Return whether a string ends with the suffix."""
    return _call("endsWith", value, suffix)


def matches(value: Any, pattern: str) -> ValueHandle:
    """Return whether the pattern (RE2) matches anywhere in a string. Raises ExpressionError for a pattern that is too
    long.
    """
    return Scalar(checked_call(BuiltinCall("matches", (to_expression(value), Literal(pattern)))))


def below(expr: Expr, key: int | str) -> Path | Index:
    """Return the expression of a part of a value. Raises UsageError for a value that is not a path."""
    if isinstance(expr, Path):
        return path([*expr.names, key], 0)
    if isinstance(expr, Index):
        return Index(expr.path, (*expr.keys, key))
    raise UsageError(f"{unparse(expr)} is no path, so it has no [{key!r}]", "Name the part of an input or an event.")


def _call(function: str, *arguments: Any) -> ValueHandle:
    return Scalar(BuiltinCall(function, tuple(map(to_expression, arguments))))
