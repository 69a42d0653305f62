"""A trigger whose user may not write dead letters reports that, and blocks no other trigger."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from eventually import eventually_async
from kafka import Broker
from kafka_security import as_user, lift, restrict
from triggers.stages import home, stage

from treadle.orchestrator.environment.home import Home
from treadle.orchestrator.environment.kafka_connections import KafkaConnection
from treadle.orchestrator.environment.profile import Profile
from treadle.primitives.errors import UsageError
from treadle.triggers.kafka.offsets import KafkaPositions

__all__ = ["home"]


async def test_letter_that_may_not_be_written_holds_up_no_good_event(
    home: Home, real_kafka: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    async with stage(home, real_kafka) as here:
        login = as_user(real_kafka)
        secret = home.secrets / "letters"
        secret.parent.mkdir(mode=0o700, exist_ok=True)
        secret.touch(0o600)
        secret.write_text(str(login.pop("sasl.password")))
        connection = KafkaConnection.model_validate({**login, "secrets": {"sasl.password": "letters"}})
        here.site = replace(here.site, profile=Profile(kafka={"prod": connection}))
        letters = f"{here.topic}.dlt"
        real_kafka.create_topic(letters)
        restrict(real_kafka.admin, "topic", letters, "DESCRIBE")
        deployed = await asyncio.to_thread(here.deploy)
        positions = KafkaPositions(home, here.site.profile)

        async def refused() -> bool:
            """The broker applies new rights after a moment."""
            try:
                await asyncio.to_thread(positions.check_rights, deployed, "live", here.site.key)
            except UsageError as error:
                return f"may not write dead letters to the topic '{letters}'" in error.message
            return False

        await eventually_async(refused)
        real_kafka.produce(here.topic, [b"oops", b"1", b"2"])
        await here.serve()

        async def failing() -> bool:
            found = here.status()
            wrong = found is not None and found.state == "failing" and found.since > 0
            return wrong and found is not None and letters in found.error and found.started == 2

        await eventually_async(failing)
        assert here.commits() == [0, 0]
        lift(real_kafka.admin, "topic", letters)
        await here.until_done()
        found = here.status()
        assert found is not None
        assert (found.state, found.error, found.dead) == ("running", "", 1)
    mine = [one for one in caplog.records if one.name == "treadle.triggers"]
    assert not [one.getMessage() for one in mine if one.exc_info]
    assert len([one for one in mine if "dead letter" in one.getMessage()]) <= 2
