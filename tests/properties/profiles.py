"""The number of examples, and whether they change: `HYPOTHESIS_PROFILE`.

profile  examples      which
default  all           the same each time
quick    a fifth       the same each time
ci       three fifths  the same each time
explore  all           new ones each time
nightly  sixty times   new ones each time
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "default")
_FACTORS = {"default": 1.0, "quick": 0.2, "ci": 0.6, "explore": 1.0, "nightly": 60.0}
FIXED = PROFILE in ("default", "quick", "ci")
"""Fixed examples find only defects of the present change. New ones find old defects, at any time."""


def examples(count: int) -> settings:
    """`count` examples, multiplied by the factor of the profile."""
    return settings(
        max_examples=max(1, round(count * _FACTORS[PROFILE])),
        derandomize=FIXED,
        deadline=None,
        print_blob=True,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture, HealthCheck.data_too_large],
    )
