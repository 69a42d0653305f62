"""Views of simulated channels."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from treadle.primitives.coordinator import channels


@pytest.fixture(scope="module", params=[0, 1 << 30], ids=["passed on", "from the coordinator"])
def few(request: pytest.FixtureRequest) -> Iterator[None]:
    """Members pass every change on that is not next to them, or none."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(channels, "_FEW", request.param)  # private: the test needs both ways for few members
        yield
