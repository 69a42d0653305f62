"""Services that share a trigger on a real broker: the work that one leaves to the other at its end."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

from eventually import eventually_async
from kafka import Broker
from triggers.stages import home, stage

from treadle.orchestrator.environment.home import Home
from treadle.orchestrator.environment.kafka_connections import KafkaConnection
from treadle.orchestrator.environment.profile import Profile
from treadle.triggers.service import TriggerService

__all__ = ["home"]
LONG = {"session.timeout.ms": 300_000, "heartbeat.interval.ms": 500}
"""With this timeout, a member that died is missed only long after the test has failed."""


async def test_service_that_ends_leaves_its_partitions_to_the_other_at_once(home: Home, real_kafka: Broker) -> None:
    async with stage(home, real_kafka) as here:
        connection = KafkaConnection.model_validate({**real_kafka.settings, **LONG})
        here.site = replace(here.site, profile=Profile(kafka={"prod": connection}))
        await asyncio.to_thread(here.deploy)
        ending = TriggerService(replace(here.site, instance=f"{here.site.instance}-ending"))
        task = asyncio.create_task(ending.run())
        real_kafka.produce(here.topic, [b"1"])
        await here.until_runs(1)
        await here.serve()

        async def shared() -> bool:
            described = await asyncio.to_thread(members, real_kafka, here.group())
            return [len(one.assignment.topic_partitions) for one in described] == [1, 1]

        await eventually_async(shared)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        for number in (0, 1):
            real_kafka.produce(here.topic, [b"2"], partition=number)
        await here.until_runs(3)
        await here.until_done()


def members(broker: Broker, group: str) -> list[Any]:
    """The members of a consumer group."""
    return list(broker.admin.describe_consumer_groups([group])[group].result(30).members)
