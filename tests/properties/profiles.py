"""How many examples, and whether they change: `HYPOTHESIS_PROFILE`.

profile  examples      which
default  as many       the same ones every time
quick    a fifth       the same ones every time
ci       three fifths  the same ones every time
explore  as many       others every time
nightly  sixty times   others every time
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "default")
_FACTORS = {"default": 1.0, "quick": 0.2, "ci": 0.6, "explore": 1.0, "nightly": 60.0}
FIXED = PROFILE in ("default", "quick", "ci")
"""The same examples every time find only what a change has broken; other ones find old defects, at any time."""


def examples(count: int) -> settings:
    """`count` examples, times the factor of the profile."""
    return settings(
        max_examples=max(1, round(count * _FACTORS[PROFILE])),
        derandomize=FIXED,
        deadline=None,
        print_blob=True,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture, HealthCheck.data_too_large],
    )
