from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from kafka import Mock
    from triggers.installation import Installation

pytest.register_assert_rewrite("triggers.source_suite", "triggers.world")


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory, kafka: Mock) -> Iterator[Installation]:
    """The broker, Temporal and driver shared by tests of whole triggers. Each test has its own workflow."""
    from kafka import Broker, unsupported
    from triggers.installation import installation

    if not isinstance(kafka, Broker):
        pytest.skip(unsupported())
    with installation(tmp_path_factory.mktemp("triggers"), kafka) as made:
        yield made
