from __future__ import annotations

from collections.abc import Iterator

import pytest

from treadle.primitives.testing.s3 import S3Endpoint, seaweedfs


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Endpoint]:
    """A real S3 server, started for the first test that needs it."""
    with seaweedfs() as endpoint:
        yield endpoint
