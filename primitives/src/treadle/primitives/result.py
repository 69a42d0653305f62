"""What a user function returns when it also has metrics to report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct


def is_storable(value: Any) -> bool:
    """Whether ledgers and specs can hold the scalar: a whole number may have 64 bits."""
    return not isinstance(value, int) or -(2**63) <= value < 2**64


class Result(Struct, frozen=True):
    """`value` is what the function would return alone; `metrics` are finite JSON scalars declared on the stage."""

    value: Any
    metrics: Mapping[str, Any] = {}
