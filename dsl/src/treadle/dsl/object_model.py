"""Keys of shared objects in a workflow document."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Discriminator, Field, Tag

from .model_base import Arguments, FunctionRef, Identifier, Model

StageObjects = Annotated[
    Annotated[list[Identifier], Tag("<list>")] | Annotated[dict[Identifier, Literal["merge", "read"]], Tag("<modes>")],
    Discriminator(lambda value: "<list>" if isinstance(value, (list, tuple)) else "<modes>"),
]
ObjectType = Literal["boolean", "counter", "list", "map", "number", "reference", "set"]


class Object(Model):
    """State that stages share: an object of the library (`type`), or of a class (`uses`)."""

    type: ObjectType | None = None
    uses: FunctionRef | None = None
    """The class, marked with `@shared`."""
    with_: Arguments = Field(default_factory=dict, alias="with")
    """Keyword arguments of the class, for the first state."""

    @property
    def function(self) -> str:
        """The reference of the class."""
        return self.uses or f"treadle.primitives.objects:{(self.type or '').capitalize()}"
