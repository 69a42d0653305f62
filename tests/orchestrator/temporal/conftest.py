"""Temporal and a driver for the tests of a file."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from treadle.client.testing.service import Service, service
from treadle.orchestrator.environment.home import Home


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def here(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Service]:
    async with service(Home(tmp_path_factory.mktemp("home"))) as found:
        yield found
