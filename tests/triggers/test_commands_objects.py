"""Commands for objects without a possible run: they are dead letters like others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from orchestrator.commands import Done, Terminal
from triggers.deployed import deploy, document

from treadle.orchestrator.environment.home import Home
from treadle.primitives.sealing import load_or_create_key
from treadle.primitives.stores.store import ObjectInfo, Store
from treadle.triggers.objects.listing_diff import event_of
from treadle.triggers.objects.seen_objects import ObjectRecords, RefusedObject
from treadle.triggers.registry.registry import Registry

FILES = {
    "type": "object",
    "poll": {"uri": "s3://lake/in/"},
    "filter": "event.data.size > 0",
    "with": {"source": "${{ event.data.uri }}"},
}
EVENTS = [event_of("s3://lake/in/", ObjectInfo(name, size, "tag", 1.8e9)) for name, size in (("a", 3), ("empty", 0))]


def told(done: Done) -> Any:
    assert done.code == 0, done
    return json.loads(done.out)


def test_object_that_a_look_refused_is_listed_shown_and_replayed(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    store, key = Store.open(home.store.as_uri()), load_or_create_key(home.key)
    deploy(Registry(store, key), document({"files": FILES}, "looked", inputs={"source": {"type": "uri"}}), tmp_path)
    for number, event in enumerate(EVENTS):
        refused = RefusedObject(event, f"filter: reason {number}", f"looked.files.{number}", 1, 1.9e9 + number)
        ObjectRecords(store, key, "looked", "files").refuse(refused)
    hand = Terminal(tmp_path, home.path)

    listed = told(hand.run("dlq", "list", "-o", "json"))
    names = [f"looked.files/{event.id}" for event in EVENTS]
    assert [(one["letter"], one["place"]) for one in listed] == list(
        zip(names, ("s3://lake/in/a", "s3://lake/in/empty"), strict=True)
    )
    about = told(hand.run("dlq", "show", names[0], "-o", "json"))
    assert (about["reason"], about["value"]["data"]["size"]) == ("filter: reason 0", 3)
    first, second = told(hand.run("dlq", "replay", *names, "--dry-run", "-o", "json"))
    assert (first["did"], first["run"][-3:]) == ("would start", ".r1")
    assert second["did"] == "passed over"
