"""Commands for events on a real broker: from a dead letter to its run, and a changed position in a topic."""

from __future__ import annotations

import json
import re
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from orchestrator.commands import Done, Terminal
from triggers.installation import CONNECTION, Installation

from treadle.primitives.events import Event
from treadle.triggers.objects.seen_objects import ObjectRecords, RefusedObject

GOOD = {"specversion": "1.0", "source": "/shop", "type": "created", "data": {"amount": 12}}


def terminal(place: Installation, folder: Path) -> Terminal:
    (folder / "functions.py").write_text("def same(order):\n    return order\n")
    return Terminal(folder, place.home.path, {"TREADLE_PROFILE": "tests"})


def write(folder: Path, name: str, filter: str, **triggers: Any) -> Path:
    """Write a workflow with these triggers, or with one that reads the topic of that name."""
    live = {
        "type": "kafka",
        "connection": CONNECTION,
        "topics": [name],
        "filter": filter,
        "with": {"orders": "${{ trigger.events }}"},
    }
    inputs = {"orders": {"type": "dataset", "required": True}}
    each = {"type": "map", "input": "inputs.orders", "uses": "functions:same"}
    spec = {"apiVersion": "treadle/v1", "name": name, "inputs": inputs, "triggers": triggers or {"live": live}}
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump({**spec, "stages": {"each": each}}))
    return path


def told(done: Done) -> Any:
    assert done.code == 0, done
    return json.loads(done.out)


def until(terminal: Terminal, *command: object, holds: Any) -> Any:
    """The output of a command once `holds` is true. A busy machine takes its time."""
    deadline = time.monotonic() + 90
    while not holds(found := told(terminal.run(*command, "-o", "json"))):
        assert time.monotonic() < deadline, found
        time.sleep(0.3)
    return found


@pytest.mark.timeout(300)
def test_dead_letter_is_listed_mended_and_replayed_once(place: Installation, tmp_path: Path) -> None:
    name = "mended"
    place.kafka.create_topic(name)
    hand = terminal(place, tmp_path)
    assert hand.run("deploy", write(tmp_path, name, "event.data.amount > 3")).code == 0
    place.end_all()  # services of another test would serve this trigger too, and keep it from being moved
    service = place.serve()
    try:
        events = [{**GOOD, "id": "1"}, {**GOOD, "id": "2", "data": {"amount": "12"}}, {**GOOD, "id": "3"}]
        place.kafka.produce(name, [json.dumps(one).encode() for one in events])
        runs = until(hand, "list", "--trigger", f"{name}.live", holds=lambda found: len(found) == 2)
        (letter,) = until(hand, "dlq", "list", "--trigger", f"{name}.live", holds=lambda found: len(found) == 1)
        assert (letter["letter"], letter["place"]) == (f"{name}.dlt/0/0", f"{name}/0/1")
        assert letter["reason"] == "filter: cannot compare string with int"
        about = told(hand.run("dlq", "show", letter["letter"], "-o", "json"))
        assert json.loads(about["value"]) == events[1]

        still = hand.run("dlq", "replay", letter["letter"])
        assert (still.code, "still" in still.err) == (2, True)
        assert hand.run("deploy", write(tmp_path, name, 'event.type == "created"')).code == 0
        every = ("dlq", "replay", "--all", "--reason", "cannot compare", "--trigger", f"{name}.live", "-o", "json")
        (would,) = told(hand.run(*every, "--dry-run"))
        (first,), nothing, (forced,) = (told(hand.run(*every, *more)) for more in ((), (), ("--again",)))
        (again,) = told(hand.run("dlq", "replay", letter["letter"], "-o", "json"))
        assert nothing == []
        assert (would["did"], would["run"]) == ("would start", first["run"])
        assert [one["did"] for one in (first, again, forced)] == ["started", "replayed before", "started"]
        assert first["run"] == again["run"] == f"{runs[0]['run'].rpartition('.')[0]}.1.r1"
        assert forced["run"] == f"{first['run'][:-1]}2"
        assert told(hand.run("dlq", "list", "--trigger", f"{name}.live", "-o", "json")) == []
        (done,) = told(hand.run("dlq", "list", "--trigger", f"{name}.live", "--all", "-o", "json"))
        assert (done["done"]["did"], done["done"]["runs"]) == ("replayed", [first["run"]])
        state = until(hand, "trigger", "list", name, holds=lambda found: found[0]["state"] == "running")[0]
        assert (state["dead"], state["started"]) == (1, 2)

        before = len(told(hand.run("list", "--trigger", f"{name}.live", "-o", "json")))
        moved = hand.run("trigger", "seek", f"{name}.live", "--to", "earliest", "-o", "json")
        assert [(one["partition"], one["offset"]) for one in told(moved)] == [(0, 0)]
        assert "waiting until it hands it over" in moved.err
        place.kafka.produce(name, [json.dumps({**GOOD, "id": "after the seek"}).encode()])
        found = until(hand, "list", "--trigger", f"{name}.live", holds=lambda found: len(found) > before)
        assert len(found) == before + 1, "the service goes on, and what has a run gets no second"
    finally:
        place.end(service, signal.SIGTERM)
    check_seek(hand, name, len(told(hand.run("list", "--trigger", f"{name}.live", "-o", "json"))), place)


@pytest.mark.timeout(300)
def test_dropped_letter_is_listed_no_more_and_a_refused_cluster_hides_none(place: Installation, tmp_path: Path) -> None:
    name, home = "dropped", place.home
    place.kafka.create_topic(name)
    hand = terminal(place, tmp_path)
    assert hand.run("deploy", write(tmp_path, name, "event.data.amount > 3")).code == 0
    service = place.serve()
    try:
        place.kafka.produce(name, [b"oops", b"odd"])
        target = ("--trigger", f"{name}.live", "-o", "json")
        first, second = until(hand, "dlq", "list", *target, holds=lambda found: len(found) == 2)
    finally:
        place.end(service, signal.SIGTERM)
    drop = ("dlq", "drop", *target)
    assert [one["did"] for one in told(hand.run(*drop, "--dry-run"))] == ["would drop", "would drop"]
    assert told(hand.run("dlq", "drop", first["letter"], "-o", "json"))[0]["did"] == "dropped"
    assert [one["letter"] for one in told(hand.run("dlq", "list", *target))] == [second["letter"]]
    assert [one["letter"] for one in told(hand.run(*drop))] == [second["letter"]]
    assert told(hand.run("dlq", "list", *target)) == []
    assert {one["done"]["did"] for one in told(hand.run("dlq", "list", "--all", *target))} == {"dropped"}

    poll = {"uri": tmp_path.as_uri()}
    files = {"type": "object", "poll": poll, "with": {"orders": {"items": ["${{ event.data.uri }}"]}}}
    assert hand.run("deploy", write(tmp_path, "other", "event.data.size > 0", files=files)).code == 0
    event = Event("1", "s", "t", data={"uri": "file:///odd"})
    ObjectRecords(place.store, place.key, "other", "files").refuse(RefusedObject(event, "odd", "r", 1, 5.0))
    with home.profiles.open("a") as profiles:
        profiles.write(f'[refused.kafka.{CONNECTION}]\nbootstrap.servers = "127.0.0.1:1"\n')
    refused = hand.run("dlq", "list", "-o", "json", TREADLE_PROFILE="refused")
    assert [one["letter"] for one in json.loads(refused.out)] == ["other.files/1"]
    assert (refused.code, "connection refused" in refused.err) == (5, True)


def check_seek(hand: Terminal, name: str, runs: int, place: Installation) -> None:
    """Read again from the first record: records with a run get no second one, and a former dead letter now matches."""
    deadline = time.monotonic() + 90
    while (done := hand.run("trigger", "seek", f"{name}.live", "--to", "earliest", "-o", "json")).code:
        assert time.monotonic() < deadline, done
        time.sleep(0.5)
    assert [(one["partition"], one["offset"]) for one in json.loads(done.out)] == [(0, 0)]
    service = place.serve()
    try:
        place.kafka.produce(name, [json.dumps({**GOOD, "id": "4"}).encode()])
        found = until(hand, "list", "--trigger", f"{name}.live", holds=lambda found: len(found) > runs)
        assert len(found) == runs + 1
    finally:
        place.end(service, signal.SIGTERM)
    undeployed = hand.run("undeploy", name, "-o", "json")
    ((group,),) = [one["groups"] for one in told(undeployed)["workflows"]]
    assert re.fullmatch(rf"treadle\.[0-9a-f]{{8}}\.{name}\.live\.1", group)
    assert group in [one.group_id for one in place.kafka.admin.list_consumer_groups().result().valid]
