"""How many examples: `HYPOTHESIS_PROFILE` is `default`, `ci` (fewer, the same ones every time) or `nightly` (many)."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "default")
_FACTORS = {"default": 1.0, "ci": 0.6, "nightly": 60.0}
"""What never changes finds only what a change has broken, and that soon."""


def examples(count: int) -> settings:
    """`count` examples in the profile `default`, three fifths of them in CI, sixty times as many at night."""
    return settings(
        max_examples=max(1, round(count * _FACTORS[PROFILE])),
        derandomize=PROFILE == "ci",
        deadline=None,
        print_blob=True,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture, HealthCheck.data_too_large],
    )
