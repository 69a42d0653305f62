"""What every part of the model stands on: identifiers, expressions, strict keys."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, JsonValue, Strict, StringConstraints
from pydantic.alias_generators import to_camel

Identifier = Annotated[str, StringConstraints(pattern=r"^[a-z][A-Za-z0-9_]*$")]
Expression = Annotated[str, StringConstraints(min_length=1)]
"""An expression without delimiters (`when`, `until`, `filter`)."""
Uri = Annotated[str, StringConstraints(min_length=1)]
Flag = Annotated[bool, Strict()]
Arguments = dict[Identifier, JsonValue]
"""`with`: keyword arguments of functions, inputs of runs; texts in it may be templates."""


class Model(BaseModel):
    """Unknown keys are errors; values are frozen once read."""

    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel, populate_by_name=True)
