"""How many examples: `HYPOTHESIS_PROFILE` is `default`, `ci` (the same ones every time) or `nightly` (many)."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "default")
_FACTORS = {"default": 1, "ci": 1, "nightly": 60}


def examples(count: int) -> settings:
    """`count` examples in the profiles `default` and `ci`, sixty times as many at night."""
    return settings(
        max_examples=count * _FACTORS[PROFILE],
        derandomize=PROFILE == "ci",
        deadline=None,
        print_blob=True,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture, HealthCheck.data_too_large],
    )
