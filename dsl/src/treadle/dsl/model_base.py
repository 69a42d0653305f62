"""The basis of the model: identifiers, expressions, strict keys."""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    JsonValue,
    PlainSerializer,
    Strict,
    StringConstraints,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)
from pydantic.alias_generators import to_camel

Identifier = Annotated[str, StringConstraints(pattern=r"^[a-z][A-Za-z0-9_]*$")]
Expression = Annotated[str, StringConstraints(min_length=1)]
"""An expression without delimiters (`when`, `until`, `filter`)."""
FunctionRef = Annotated[str, StringConstraints(pattern=r"^(captured:[0-9a-f]+|[A-Za-z_][\w.]*:[A-Za-z_][\w.]*)$")]
"""`module:qualname`, or `captured:<digest>` for a function taken by value into the bundle."""
Uri = Annotated[str, StringConstraints(min_length=1)]
Flag = Annotated[bool, Strict()]


def _as_written(value: Any, check: ValidatorFunctionWrapHandler) -> Any:
    check(value)
    return value


N = TypeVar("N")
AsWritten = Annotated[N, WrapValidator(_as_written), PlainSerializer(lambda number: number)]
"""A number that keeps its form: `minimum: 1` is exact, and written again without a point."""
Number = AsWritten[Annotated[float, Strict()]]
Arguments = dict[Identifier, JsonValue]
"""`with`: keyword arguments of functions, inputs of runs; strings in it may be templates."""


class Model(BaseModel):
    """Refuses unknown keys; immutable after reading."""

    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel, populate_by_name=True)
