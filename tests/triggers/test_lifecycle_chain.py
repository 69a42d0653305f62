"""Chained workflows: the event at the end of one run starts the next one."""

from __future__ import annotations

import asyncio
import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from kafka import Broker
from orchestrator.record_histories import ITEMS, TESTS, mapped, spec
from triggers.deployed import deploy, document

from treadle.client.testing.service import Service, service
from treadle.orchestrator.environment.home import Home
from treadle.orchestrator.environment.profile import load_profile
from treadle.orchestrator.lifecycle import sinks
from treadle.orchestrator.lifecycle.delivery import Untellable, untold_of
from treadle.orchestrator.lifecycle.events import About, run_news
from treadle.primitives.events.decode import structured
from treadle.triggers.registry.registry import Registry
from treadle.triggers.service import TriggerService
from treadle.triggers.starter import RunStarter, ensure_search_attribute
from treadle.triggers.trigger_runner import TriggerSite

TOPIC = "treadle.lifecycle"
PROFILE = """
[chained]
lifecycle = {{ kafka = {{ connection = "broker", topic = "{topic}" }} }}

[chained.kafka.broker]
bootstrap.servers = "{bootstrap}"
"""
AFTER = {
    "type": "kafka",
    "connection": "broker",
    "topics": [TOPIC],
    "startFrom": "earliest",
    "filter": "event.type == 'dev.treadle.run.completed.v1' && event.data.workflow == 'recorded'",
    "dedupe": "event",
    "with": {"made": "${{ event.data.outputs.made }}"},
}


def records(kafka: Broker) -> list[dict[str, Any]]:
    """(key, content type, event) of each record in the topic."""
    reader = Consumer({**kafka.settings, "group.id": "chain", "enable.auto.commit": False})
    end = reader.get_watermark_offsets(TopicPartition(TOPIC, 0), timeout=30)[1]
    reader.assign([TopicPartition(TOPIC, 0, 0)])
    found: list[dict[str, Any]] = []
    while len(found) < end:
        for message in reader.consume(100, timeout=5):
            headers = dict(message.headers() or [])
            found.append({"key": message.key(), "type": headers["content-type"], "event": message.value()})
    reader.close()
    return found


@pytest.fixture
def home(tmp_path: Path, real_kafka: Broker, monkeypatch: pytest.MonkeyPatch) -> Home:
    made = Home(tmp_path / "home")
    made.profiles.write_text(PROFILE.format(topic=TOPIC, bootstrap=real_kafka.settings["bootstrap.servers"]))
    monkeypatch.setenv("TREADLE_PROFILE", "chained")
    return made


async def test_the_end_of_a_run_starts_the_next_workflow(home: Home, real_kafka: Broker, tmp_path: Path) -> None:
    real_kafka.create_topic(TOPIC)
    profile = load_profile(home)
    async with service(home) as here:
        registry = Registry(here.site.store, here.site.key)
        deploy(registry, document({"after": AFTER}, "next", inputs={"made": {"type": "integer"}}), tmp_path)
        await ensure_search_attribute(here.client)
        starter = RunStarter(here.client, here.runs, registry, profile.allow)
        site = TriggerSite(home, profile, here.client, here.site.store, here.site.key, registry, starter, "chain")
        serving = asyncio.create_task(TriggerService(site).run())
        try:
            await here.submit(spec(each=mapped(ITEMS)) | {"outputs": {"made": 42}}, "first", tmp_path, TESTS)
            assert (await here.runs.end("first")).failure is None
            run = await _next(here)
            assert (await here.runs.end(run)).failure is None
            assert (await here.runs.submission(run)).inputs == {"made": 42}
        finally:
            serving.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await serving
        assert await asyncio.to_thread(untold_of, here.runs.files("first")) == []
    _check_records(await asyncio.to_thread(records, real_kafka))


async def _next(here: Service) -> str:
    while True:
        async for view in here.runs.list_runs(20):
            if view.run.startswith("next.after."):
                return view.run
        await asyncio.sleep(0.2)


def _check_records(found: list[dict[str, Any]]) -> None:
    events = [structured(one["event"]) for one in found]
    assert {one["type"] for one in found} == {b"application/cloudevents+json; charset=utf-8"}
    assert [one["key"].decode() for one in found] == [event.subject for event in events]
    of_first = [event.type for event in events if event.subject == "first"]
    assert of_first[0] == "dev.treadle.run.started.v1"
    assert of_first[-1] == "dev.treadle.run.completed.v1"
    assert len({event.id for event in events}) == len(events)
    assert json.loads(found[0]["event"])["specversion"] == "1.0"


async def test_a_topic_that_cannot_be_reached_is_given_up_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sinks, "ANSWER", 0.3)
    outlet = sinks.TopicOutlet({"bootstrap.servers": "127.0.0.1:1"}, TOPIC)
    event = run_news(About("r", "w", 1, "t"), "started", 0.0)
    with pytest.raises(Untellable, match=TOPIC) as caught:
        await outlet.send(event)
    assert caught.value.away
    await outlet.close()
