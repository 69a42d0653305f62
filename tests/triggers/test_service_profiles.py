"""The status names services whose profile has changed since their start."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from treadle.orchestrator.environment.profile import Profile
from treadle.primitives.stores.store import Store
from treadle.triggers.profile_reload import STALE, ServiceProfiles

BEFORE = Profile(name="lab", allow=("s3://a/",))
AFTER = Profile(name="lab", allow=("s3://a/", "s3://b/"))


@pytest.fixture
def profiles(tmp_path: Path) -> ServiceProfiles:
    return ServiceProfiles(Store.open(tmp_path.as_uri()), bytes(32))


def test_a_service_with_another_content_of_the_profile_is_outdated(profiles: ServiceProfiles) -> None:
    profiles.tell("old-0", BEFORE, 100.0)
    profiles.tell("new-0", AFTER, 100.0)
    profiles.tell("other-0", Profile(name="prod"), 100.0)
    assert profiles.outdated(AFTER, 110.0) == ["old-0"]
    assert profiles.outdated(BEFORE, 110.0) == ["new-0"]


def test_a_service_that_ended_is_not_outdated(profiles: ServiceProfiles) -> None:
    profiles.tell("killed-0", BEFORE, 100.0)
    assert profiles.outdated(AFTER, 100.0 + STALE) == []


async def test_service_withdraws_a_resolved_problem(profiles: ServiceProfiles) -> None:
    task = asyncio.create_task(profiles.keep_told("here-0", BEFORE))
    async with asyncio.timeout(30):
        while profiles.outdated(AFTER, 0.0) != ["here-0"]:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert profiles.outdated(AFTER, 0.0) == []
