"""`cache`: what is kept of a stage for later runs, and for how long."""

from __future__ import annotations

from typing import Annotated

from pydantic import Discriminator, Field, Strict, StringConstraints, Tag

from .model_base import Flag, Model
from .units import Duration

_MONTH = 30 * 86_400.0


class Cache(Model):
    """A promise: the functions of the stage give the same for the same, so that a later run may take what is kept."""

    version: Annotated[
        Annotated[int, Strict(), Tag("<number>")] | Annotated[str, StringConstraints(max_length=100), Tag("<text>")],
        Discriminator(lambda value: "<text>" if isinstance(value, str) else "<number>"),
    ] = ""
    """Another one is another result: for what the code and its inputs do not show."""
    ttl: Duration = Field(default_factory=lambda: _MONTH)
    """Since it was made. Older results are not taken, and `treadle gc` removes them. Default: 30 days."""


CacheSetting = Annotated[
    Annotated[Flag, Tag("<flag>")] | Annotated[Cache, Tag("<cache>")],
    Discriminator(lambda value: "<cache>" if isinstance(value, (dict, Cache)) else "<flag>"),
]
"""`true` is `{}`; `false` is for a stage that shall not do what `defaults` say."""


def first_given(*settings: Cache | bool | None) -> Cache | None:
    """The setting that counts, of the strongest first; None: nothing is kept."""
    given = next((one for one in settings if one is not None), None)
    if isinstance(given, bool):
        return Cache() if given else None
    return given
