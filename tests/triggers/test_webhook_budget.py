"""A request whose schema takes long is answered with an error, and delays no other hook."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio
from triggers.test_webhook import Hooks, check_problem, post

from treadle.triggers.webhook import runner


@pytest_asyncio.fixture
async def hooks(tmp_path: Path) -> AsyncIterator[Hooks]:
    found = Hooks(tmp_path)
    await found.start()
    yield found
    await found.stop()


@pytest_asyncio.fixture
async def http(hooks: Hooks) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=hooks.url, trust_env=False, timeout=60) as client:
        yield client


@pytest.mark.parametrize("data", [{"a": "a" * 60 + "!"}, {"b": [{"n": one} for one in range(20_000)]}])
async def test_schema_that_exceeds_its_budget_is_answered_and_delays_no_other_hook(
    http: httpx.AsyncClient, data: dict[str, Any]
) -> None:
    costly = asyncio.create_task(post(http, "costly", data))
    served = 0
    while not costly.done():
        assert (await http.get("/healthz")).status_code == 200
        assert (await post(http, "shaped", {"amount": served})).status_code in (200, 202)
        served += 1
    assert served > 2
    check_problem(await costly, 422, "schema: timed out")
    assert (await post(http, "costly", {"a": "aaa", "b": [1, 2]})).status_code in (200, 202)


async def test_requests_that_wait_for_a_costly_schema_are_bounded(
    hooks: Hooks, http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "UNREAD", 1)
    costly = asyncio.create_task(post(http, "costly", {"a": "a" * 70 + "!"}))
    while not hooks.runners["costly"].unread:  # noqa: ASYNC110  # no event signals it
        await asyncio.sleep(0)
    refused = await post(http, "costly", {"a": "b"})
    check_problem(refused, 503, "too many requests")
    assert int(refused.headers["retry-after"]) > 0
    check_problem(await costly, 422, "timed out")
