"""The trigger service with a real Temporal: a hook and a prefix of one workflow, from deployment to removal."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
from eventually import eventually_async
from triggers.deployed import deploy, document

from treadle.client.testing.service import Service, service
from treadle.orchestrator.environment.home import Home
from treadle.orchestrator.environment.profile import Profile, WebhookSettings
from treadle.triggers import service as module
from treadle.triggers.registry.registry import Registry
from treadle.triggers.service import TriggerService
from treadle.triggers.starter import RunStarter, ensure_search_attribute
from treadle.triggers.trigger_runner import TriggerSite, TriggerStatus
from treadle.triggers.webhook.server import HookServer

INPUTS = {"source": {"type": "uri"}, "amount": {"type": "integer"}}


@dataclass
class Serving:
    """A running service."""

    here: Service
    registry: Registry
    triggers: TriggerService
    address: str
    folder: Path

    def deploy(self, **hook: Any) -> None:
        lake = self.folder / "lake"
        lake.mkdir(exist_ok=True)
        poll = {"uri": lake.as_uri(), "every": "1s"}
        given = {
            "hook": {"type": "webhook", "dedupe": "body", "with": {"amount": "${{ event.data.amount }}"}, **hook},
            "files": {"type": "object", "poll": poll, "with": {"source": "${{ event.data.uri }}"}},
            "hourly": {"type": "schedule", "interval": "1h"},
        }
        deploy(self.registry, document(given, "served", inputs=INPUTS), self.folder)

    async def states(self, **wanted: str) -> bool:
        return {one.trigger: one.state for one in self.triggers.statuses()} == wanted

    def status(self, trigger: str) -> TriggerStatus:
        return next(one for one in self.triggers.statuses() if one.trigger == trigger)

    async def post(self, amount: Any) -> httpx.Response:
        url = f"http://127.0.0.1:{HookServer.at(self.address).port}/hooks/served/hook"
        async with httpx.AsyncClient(trust_env=False, timeout=30) as http:
            return await http.post(url, json={"amount": amount})

    async def runs(self, trigger: str) -> list[str]:
        return [view.run async for view in self.here.runs.list_runs(50, prefix=f"served.{trigger}.")]


@pytest.fixture
async def serving(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Serving]:
    monkeypatch.setattr(module, "LOOK_EVERY", 0.1)
    home, address = Home(tmp_path / "home"), "127.0.0.1:00"
    profile = Profile(webhook=WebhookSettings(address=address))
    async with service(home) as here:
        registry = Registry(here.site.store, here.site.key)
        await ensure_search_attribute(here.client)
        starter = RunStarter(here.client, here.runs, registry, None)
        about = (here.client, here.site.store, here.site.key, registry, starter, "test")
        triggers = TriggerService(TriggerSite(home, profile, *about))
        task = asyncio.create_task(triggers.run())
        yield Serving(here, registry, triggers, address, tmp_path)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def test_a_workflow_s_triggers_live_from_its_deployment_to_its_end(serving: Serving) -> None:
    serving.deploy()
    await eventually_async(lambda: serving.states(hook="running", files="running", hourly="running"))
    answer = await serving.post(3)
    assert answer.status_code == 202
    run = answer.json()["runs"][0]["run"]
    assert (await serving.here.runs.view(run)).workflow == "served", "it exists once the answer is there"
    assert (await serving.here.runs.end(run)).failure is None
    assert (await serving.here.runs.submission(run)).inputs["amount"] == 3
    again = await serving.post(3)
    assert (again.status_code, again.json()["runs"]) == (200, [{"run": run, "new": False}])
    assert (await serving.post("many")).status_code == 422
    (serving.folder / "lake" / "a.txt").write_text("x")
    (found,) = await eventually_async(lambda: serving.runs("files"))
    assert (await serving.here.runs.submission(found)).inputs["source"].endswith("/lake/a.txt")
    assert serving.status("files").started == 1

    serving.registry.pause("served", "hook", "a rest")
    await eventually_async(lambda: serving.states(hook="paused", files="running", hourly="running"))
    assert (await serving.post(4)).status_code == 503
    serving.registry.unpause("served", "hook")
    await eventually_async(lambda: serving.states(hook="running", files="running", hourly="running"))

    serving.deploy(filter="event.data.amount > 10")
    await eventually_async(lambda: _is(serving.status("hook").version == 2))
    assert (await serving.post(4)).json() == {"runs": []}
    serving.registry.undeploy("served")
    await eventually_async(serving.states)
    with pytest.raises(httpx.ConnectError):
        await serving.post(5)


async def _is(fact: bool) -> bool:
    return fact


async def test_ending_server_is_not_given_to_a_new_client() -> None:
    address, unused = "127.0.0.1:000", cast(Any, None)
    server = HookServer.at(address)
    assert HookServer.at(address) is server
    await server.add("served", "hook", unused)
    ending = asyncio.create_task(server.remove("served", "hook"))
    await asyncio.sleep(0)
    other = HookServer.at(address)
    assert not ending.done()
    assert other is not server
    await other.add("served", "hook", unused)
    await ending
    assert HookServer.at(address) is other
    await other.remove("served", "hook")
