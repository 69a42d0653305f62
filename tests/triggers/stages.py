"""A topic, a workflow with a trigger on it, and a service in this process, on a real broker and a real Temporal server.

No worker runs the runs, so all of them stay open.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import pytest
from eventually import eventually_async
from kafka import Broker
from temporalio.client import Client
from triggers.deployed import document, read

from treadle.client.client import Runs
from treadle.dsl.normalise import normalise
from treadle.orchestrator import embedded
from treadle.orchestrator.environment.home import Home
from treadle.orchestrator.environment.kafka_connections import KafkaConnection
from treadle.orchestrator.environment.profile import Profile
from treadle.orchestrator.temporal.connect import connect
from treadle.orchestrator.temporal.temporal_runs import TemporalRuns
from treadle.primitives import sealing
from treadle.primitives.stores.store import Store
from treadle.triggers.kafka.dead_letters import KafkaDeadLetter, read_letters
from treadle.triggers.kafka.offsets import KafkaPositions, group_of
from treadle.triggers.registry.deployment import Deployment
from treadle.triggers.registry.registry import DeploymentCandidate, NoSuchDeployment, Registry
from treadle.triggers.service import TriggerService, instance
from treadle.triggers.start_requests import Starter
from treadle.triggers.starter import RunStarter, ensure_search_attribute
from treadle.triggers.trigger_runner import TriggerSite, TriggerStatus

PATIENCE = 90.0
_NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    """A home with its Temporal server."""
    made = Home(tmp_path_factory.mktemp("home"))
    embedded.attach(made)
    try:
        embedded.ensure_server(made)
        yield made
    finally:
        embedded.down(made)


@dataclass
class Stage:
    """A topic, a workflow with a trigger on it, and the parts that serve it."""

    broker: Broker
    site: TriggerSite
    name: str
    topic: str
    serving: tuple[TriggerService, asyncio.Task[None]] | None = None

    def deploy(self, **trigger: Any) -> Deployment:
        about = {"type": "kafka", "connection": "prod", "topics": [self.topic], "format": "json", **trigger}
        inputs = {"orders": {"type": "dataset", "required": True}}
        about = {"startFrom": "earliest", "with": {"orders": "${{ trigger.events }}"}, **about}
        spec = read(document({"live": about}, self.name, inputs=inputs))
        positions = KafkaPositions(self.site.home, self.site.profile)

        candidate = DeploymentCandidate(normalise(spec), {}, "", b"", "/")
        draft = self.site.registry.draft(candidate)
        return self.site.registry.deploy(candidate, lambda before: positions.begins(draft, before))

    async def serve(self, starter: Starter | None = None) -> None:
        service = TriggerService(replace(self.site, starter=starter or self.site.starter))
        self.serving = service, asyncio.create_task(service.run())

    async def stop(self) -> None:
        if self.serving is not None:
            self.serving[1].cancel()
            await asyncio.gather(self.serving[1], return_exceptions=True)
            self.serving = None

    def status(self) -> TriggerStatus | None:
        assert self.serving is not None
        return next((one for one in self.serving[0].statuses() if one.workflow == self.name), None)

    async def runs(self) -> dict[str, dict[str, Any]]:
        """Run -> memo, for all runs of the trigger in Temporal's listing."""
        query = f"TreadleTrigger = '{self.name}.live'"
        return {one.id: dict(await one.memo()) async for one in self.site.client.list_workflows(query)}

    async def until_runs(self, count: int) -> dict[str, dict[str, Any]]:
        async def enough() -> bool:
            return len(await self.runs()) >= count

        await eventually_async(enough)
        return await self.runs()

    async def until_done(self) -> None:
        """Wait until every record of the topic is decided, and its offset committed."""

        async def committed() -> bool:
            status = self.status()
            return status is not None and status.lag == 0 and self.commits() == self.ends()

        await eventually_async(committed)

    def group(self) -> str:
        return group_of(self.site.key, self.name, "live", 1)

    def commits(self) -> list[int]:
        from confluent_kafka import Consumer, TopicPartition

        asking = Consumer({**self.broker.settings, "group.id": self.group()})
        try:
            wanted = [TopicPartition(self.topic, number) for number in (0, 1)]
            return [max(0, one.offset) for one in asking.committed(wanted, timeout=30)]
        finally:
            asking.close()

    def ends(self) -> list[int]:
        return [self.broker.end_offset(self.topic, number) for number in (0, 1)]

    def letters(self) -> list[KafkaDeadLetter]:
        return list(read_letters(self.broker.settings, f"{self.topic}.dlt", f"{self.name}.live"))


@asynccontextmanager
async def stage(home: Home, broker: Broker) -> AsyncIterator[Stage]:
    this = next(_NUMBERS)
    topic = f"orders-{this}"
    broker.create_topic(topic, 2, max_message_bytes=str(8 * 2**20))
    for number in (0, 1):  # every partition has its leader
        broker.end_offset(topic, number)
    soon = {"session.timeout.ms": 3000, "heartbeat.interval.ms": 500}
    settings = {**broker.settings, **soon, "message.max.bytes": 8 * 2**20}
    profile = Profile(kafka={"prod": KafkaConnection.model_validate(settings)})
    client: Client = await connect(profile, home)
    await ensure_search_attribute(client)
    store, key = Store.open(profile.store_url(home)), sealing.load_or_create_key(home.key)
    runs, registry = Runs(TemporalRuns(client), store, key, profile.queue), Registry(store, key)
    starter = RunStarter(client, runs, registry, None)
    with instance(home) as name:
        site = TriggerSite(home, profile, client, store, key, registry, starter, name)
        made = Stage(broker, site, f"orders{this}", topic)
        try:
            yield made
        finally:
            await made.stop()
            with contextlib.suppress(NoSuchDeployment):
                await asyncio.to_thread(registry.undeploy, made.name)
