"""`cache`: results of a stage that later runs may reuse, and for how long."""

from __future__ import annotations

from typing import Annotated

from pydantic import Discriminator, Field, Strict, StringConstraints, Tag

from .model_base import Flag, Model
from .units import Duration

_MONTH = 30 * 86_400.0


class Cache(Model):
    """A promise: the stage's functions return equal results for equal inputs, so that a later run may reuse
    a result.
    """

    version: Annotated[
        Annotated[int, Strict(), Tag("<number>")] | Annotated[str, StringConstraints(max_length=100), Tag("<text>")],
        Discriminator(lambda value: "<text>" if isinstance(value, str) else "<number>"),
    ] = ""
    """Part of the cache key: change it when the result changes for a reason outside the code and its inputs."""
    ttl: Duration = Field(default_factory=lambda: _MONTH)
    """How long a result may be reused after it was made; then `treadle gc` removes it. Default: 30 days."""


CacheSetting = Annotated[
    Annotated[Flag, Tag("<flag>")] | Annotated[Cache, Tag("<cache>")],
    Discriminator(lambda value: "<cache>" if isinstance(value, (dict, Cache)) else "<flag>"),
]
"""`true` is `{}`; `false` overrides `defaults` for a stage."""


def first_given(*settings: Cache | bool | None) -> Cache | None:
    """Return the first setting that is given, from the strongest to the weakest; None: no result is kept."""
    given = next((one for one in settings if one is not None), None)
    if isinstance(given, bool):
        return Cache() if given else None
    return given
