"""Whole runs get the same records for each transport of their events."""

from __future__ import annotations

import asyncio
import json
import time

import pytest
from temporalio.client import Client
from triggers.installation import Installation, workflow

WAYS = ("inline", "range", "capture")
HEADERS = {"ce_specversion": b"1.0", "ce_source": b"/tests"}
EVENTS = 30


def produce(place: Installation) -> list[dict[str, int]]:
    """Produce events of two types in turn. Returns the data of type a."""
    place.kafka.create_topic("ways")
    place.kafka.create_topic("ways.dlt")
    for number in range(EVENTS):
        headers = HEADERS | {"ce_id": b"%d" % number, "ce_type": b"ab"[number % 2 : number % 2 + 1]}
        place.kafka.produce("ways", [b'{"n": %d}' % number], headers=headers)
    return [{"n": number} for number in range(0, EVENTS, 2)]


async def ended(place: Installation, client: Client, way: str) -> str:
    """The single run of a trigger, once it is over."""
    end = time.monotonic() + 90
    while True:
        runs = await place.executions(client, f"ways.{way}")
        if runs and runs[0].ended:
            (run,) = runs
            return run.run
        assert time.monotonic() < end, place.log()[-3000:]
        await asyncio.sleep(0.2)


@pytest.mark.timeout(240)
async def test_runs_read_the_same_records_inline_as_a_range_and_from_a_copy(place: Installation) -> None:
    wanted = produce(place)
    document = workflow("ways", "ways", "a", batch={"maxEvents": len(wanted), "maxWait": "60s"})
    trigger = document["triggers"]["live"]
    document["triggers"] = {way: trigger | {"events": way} for way in WAYS}
    each = document["stages"]["each"]
    document["stages"] = {"each": each | {"input": "inputs.events", "batch": {"maxItems": 4}}}
    place.deploy(document)
    if not place.alive():
        place.serve()
    client = await place.client()
    for way in WAYS:
        run = await ended(place, client, way)
        assert ("kafka" in place.submission(run).inputs["events"]) == (way != "inline")
        done = await asyncio.to_thread(place.treadle, "result", run, "--stage", "each")
        assert [json.loads(line) for line in done.stdout.splitlines()] == wanted, (way, done.stderr)
    place.registry.undeploy("ways")
