"""Records without a possible run: each is a complete dead letter and can be replayed. The partition goes on."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from temporalio.client import Client
from triggers.installation import CONNECTION, Installation, workflow

from treadle.orchestrator.environment.kafka_connections import kafka_settings
from treadle.triggers.kafka.dead_letters import KafkaDeadLetter, read_letters

TOPIC = "poison"
HUGE = 5 * 2**20
GOOD = {"ce_specversion": b"1.0", "ce_source": b"/tests", "ce_type": b"a"}
SCHEMA = {"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}}
POISON: dict[str, tuple[bytes | None, dict[str, bytes], str]] = {
    "undecodable": (b"{", GOOD | {"ce_id": b"1"}, "JSON"),
    "no CloudEvent": (b"1", {"other": b"header"}, "CloudEvent"),
    "schema-invalid": (b'{"n": "text"}', GOOD | {"ce_id": b"2"}, "schema"),
    "filter raises": (b'{"n": 1, "limit": "x"}', GOOD | {"ce_id": b"3"}, "filter"),
    "tombstone": (None, {}, "tombstone"),
    "too large": (b'{"n": 1, "pad": "' + b"x" * HUGE + b'"}', GOOD | {"ce_id": b"4"}, "bytes"),
}
"""Defect -> (value, headers, a word of the reason)."""


def poisoned(place: Installation) -> dict[str, int]:
    """A partition with a good event, all poison, an event of another type, and a good event. Returns the poison's
    offsets."""
    kafka = place.kafka
    kafka.create_topic(TOPIC, max_message_bytes=str(8 * 2**20))
    kafka.create_topic(f"{TOPIC}.dlt")  # its limit is 1 MiB, the default of brokers
    kafka.produce(TOPIC, [b'{"n": 1}'], headers=GOOD | {"ce_id": b"first"})
    found: dict[str, int] = {}
    for what, (value, headers, _) in POISON.items():
        (found[what],) = kafka.produce(TOPIC, [value], keys=[what.encode()], headers=headers)
    kafka.produce(TOPIC, [b'{"n": 2}'], headers=GOOD | {"ce_id": b"other", "ce_type": b"unknown"})
    kafka.produce(TOPIC, [b'{"n": 3}'], headers=GOOD | {"ce_id": b"last"})
    return found


Letters = dict[int, KafkaDeadLetter]
"""Offset of the record -> its letter."""


async def told(letters: Callable[[], Letters], client: Client, place: Installation) -> Letters:
    """The letters, once each poison record has one, and each good event a run."""
    end = time.monotonic() + 90
    while True:
        kept, runs = await asyncio.to_thread(letters), await place.executions(client, "poison.live")
        if len(kept) >= len(POISON) and len(runs) >= 2:
            return kept
        reasons = {offset: letter.reason for offset, letter in kept.items()}
        assert time.monotonic() < end, (reasons, [one.run for one in runs], place.log()[-2000:])
        await asyncio.sleep(0.2)


def replay(place: Installation, letter: KafkaDeadLetter) -> list[dict[str, Any]]:
    done = place.treadle("dlq", "replay", letter.id, "-o", "json")
    assert done.returncode == 0, done.stderr
    shown: list[dict[str, Any]] = json.loads(done.stdout)
    return shown


@pytest.mark.timeout(240)
async def test_poison_is_kept_with_its_reason_and_stops_nothing(place: Installation) -> None:
    where = poisoned(place)
    settings = kafka_settings(place.profile.kafka, CONNECTION, place.home.secret)
    judging = {"filter": 'event.type == "a" && (!has(event.data.limit) || event.data.limit > 0)', "schema": SCHEMA}
    place.deploy(workflow("poison", TOPIC, "a", **judging))
    if not place.alive():
        place.serve()
    client = await place.client()

    def letters() -> Letters:
        return {one.record.offset: one for one in read_letters(settings, f"{TOPIC}.dlt")}

    kept = await told(letters, client, place)
    for what, (value, headers, word) in POISON.items():
        letter = kept[where[what]]
        assert word.lower() in letter.reason.lower(), what
        assert (letter.trigger, letter.record.key) == ("poison.live", what.encode())
        assert dict(letter.record.headers) == headers
        assert letter.omitted == (what == "too large")
        assert letter.omitted or letter.record.value == value
    await _replayed(client, place, kept[where["schema-invalid"]])


async def _replayed(client: Client, place: Installation, letter: KafkaDeadLetter) -> None:
    """The workflow is corrected: its schema accepts the event. Replayed twice, it starts one run."""
    place.deploy(workflow("poison", TOPIC, "a"))
    for _ in range(2):
        (outcome,) = await asyncio.to_thread(replay, place, letter)
    assert outcome["run"].endswith(f".{letter.record.offset}.r1")
    runs = [one.run for one in await place.executions(client, "poison.live")]
    assert len(runs) == 3
    assert outcome["run"] in runs
    given = place.submission(outcome["run"]).inputs["events"]["kafka"]
    assert (given["topic"], given["start"], given["runs"]) == (TOPIC, letter.record.offset, [1])
    assert given["copied"], "the record may have expired in its topic"
    place.registry.undeploy("poison")
