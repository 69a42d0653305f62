"""What every part of the model stands on: identifiers, expressions, strict keys."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Strict, StringConstraints
from pydantic.alias_generators import to_camel

Identifier = Annotated[str, StringConstraints(pattern=r"^[a-z][A-Za-z0-9_]*$")]
Expression = Annotated[str, StringConstraints(min_length=1)]
"""An expression without delimiters (`when`, `until`, `filter`)."""
Uri = Annotated[str, StringConstraints(min_length=1)]
Flag = Annotated[bool, Strict()]


class Model(BaseModel):
    """Unknown keys are errors; values are frozen once read."""

    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel, populate_by_name=True)
