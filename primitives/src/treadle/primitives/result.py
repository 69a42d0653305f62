"""What a user function returns when it also has metrics to report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Result:
    """`value` is what the function would have returned alone; `metrics` are finite JSON scalars declared on the stage."""

    value: Any
    metrics: Mapping[str, Any] = field(default_factory=dict)
