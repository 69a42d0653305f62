"""An account that accepts no more calls than there are idle members: some members leave, and nothing runs twice."""

from __future__ import annotations

import asyncio
import dataclasses
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
from emulators.openwhisk import GENEROUS, OpenWhiskPlace, openwhisk
from executors.members_rig import MEETING, MODULE, Rig, workflow
from hypothesis import given
from hypothesis import strategies as st

from treadle.dsl.model import Spec
from treadle.executors.functions.rate_limiter import Crowding
from treadle.executors.resident import lifetime
from treadle.executors.resident.lifetime import LONE, SETTLED, Resting, leavers
from treadle.primitives import sealing
from treadle.primitives.blocks import Blocks
from treadle.primitives.encoding.references import BlockRef
from treadle.primitives.peers.hosts import HostPeers
from treadle.primitives.stores.store import Store

NOW, SLOTS = 1000.0, 2
ANCIENT = NOW - 10 * LONE
PATIENT = msgspec.structs.replace(MEETING, idle=3000.0)
"""Idle members outlive the tests of this file."""


@pytest.mark.parametrize(
    ("resting", "working", "wanted", "found"),
    [
        ([], 3, 2, []),
        ([Resting("a", ANCIENT, holds=False), Resting("b", ANCIENT + 1, holds=False)], 0, 1, [("a", "")]),
        ([Resting("a", ANCIENT, holds=True), Resting("b", NOW - 2, holds=False)], 0, 1, [("b", "")]),
        ([Resting("a", ANCIENT, holds=True), Resting("b", NOW - 2, holds=True)], 0, 2, [("a", "b")]),
        ([Resting("a", NOW - SETTLED / 2, holds=False)], 0, 1, []),
        ([Resting("a", NOW - LONE / 2, holds=True)], 0, 1, []),
        ([Resting("a", ANCIENT, holds=True)], 1, 1, []),
        ([Resting("a", ANCIENT, holds=True)], 0, 1, [("a", "")]),
    ],
    ids=["none", "longest idle", "empty first", "handed over", "just idle", "alone", "others work", "alone for long"],
)
def test_leavers_keep_blocks_where_they_can(
    resting: list[Resting], working: int, wanted: int, found: list[tuple[str, str]]
) -> None:
    assert leavers(resting, working, wanted, NOW) == found


@given(st.lists(st.tuples(st.floats(0, NOW), st.booleans()), max_size=6), st.integers(0, 3), st.integers(0, 8))
def test_leavers_hand_blocks_to_a_member_that_stays(
    members: list[tuple[float, bool]], working: int, wanted: int
) -> None:
    resting = [Resting(str(number), used, holds) for number, (used, holds) in enumerate(members)]
    found = leavers(resting, working, wanted, NOW)
    assert len(found) <= wanted
    assert not {heir for _, heir in found} & {leaver for leaver, _ in found}


def test_refused_calls_are_counted_until_they_are_repeated() -> None:
    crowding, wanted = Crowding(), list[int]()
    crowding.make_room = wanted.append
    for call in ("a", "b", "b"):
        crowding.refused(call)
    crowding.over("a")
    crowding.refused("c")
    assert wanted == [1, 2, 2, 2]


# -- on an emulated OpenWhisk


@pytest.fixture
async def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Rig]:
    """A namespace whose limit of calls is the executor's number of slots (reference.md, `concurrent`)."""
    with openwhisk(tmp_path / "openwhisk", dataclasses.replace(GENEROUS, concurrent=SLOTS)) as emulator:
        (tmp_path / "rig").mkdir()
        made = Rig(OpenWhiskPlace(emulator), tmp_path / "rig", seconds=280, slots=SLOTS, meeting=PATIENT)
        monkeypatch.syspath_prepend(made.folder / "project")
        monkeypatch.delitem(sys.modules, MODULE, raising=False)
        yield made
        await made.stop()


def called(tasks: int) -> Spec:
    """As many tasks as slots, on functions that are not resident."""
    defaults = {"executor": "functions", "retry": {"maximumAttempts": 1}, "backups": False}
    pairs = {"type": "map", "input": {"range": tasks, "partitions": tasks}, "uses": f"{MODULE}:pairs", "flat": True}
    document = {"apiVersion": "treadle/v1", "name": "called", "stages": {"pairs": pairs}, "defaults": defaults}
    return Spec.model_validate(document)


@pytest.mark.timeout(150)
async def test_idle_members_leave_for_calls_that_the_account_refuses(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifetime, "LONE", 2.0)
    await rig.run(workflow(4), "staying")
    assert sum(slot.has_member for slot in rig.members.slots) == SLOTS
    await rig.run(called(SLOTS), "called")
    assert list(rig.engine.site.open("called").plan.executors) == ["functions"]
    assert rig.members.usage.throttled > 0, "the account was full"
    assert sum(slot.has_member for slot in rig.members.slots) < SLOTS


@pytest.mark.timeout(150)
async def test_blocks_of_a_member_that_leaves_are_read_from_another(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifetime, "SETTLED", 0.0)
    await rig.run(workflow(4), "first")
    refs = [one.block for one in rig.outcomes("first", "groups") if one.block is not None]
    assert len({ref.locations for ref in refs}) == SLOTS, "both members hold some"
    rig.members._make_room(1)  # private: the moment of the call matters
    await asyncio.gather(*rig.members._giving_way)  # private: the test waits for the tasks
    while any(slot.leaving for slot in rig.members.slots):  # noqa: ASYNC110 (it has a moment to leave)
        await asyncio.sleep(0.05)
    assert sum(slot.has_member for slot in rig.members.slots) == 1
    found = await asyncio.gather(*(asyncio.to_thread(read, rig, ref) for ref in refs))
    assert all(len(records) > 0 for records in found)


def read(rig: Rig, ref: BlockRef) -> list[object]:
    """A block of the run `first`, read from another host. Raises MissingError when no member holds it."""
    store, key = Store.open(f"file://{rig.folder}/store"), sealing.run_key(rig.key, "first")
    reader = Blocks(store, "first", None, lambda: HostPeers(store, "first", key, None))
    try:
        found: list[object] = reader.get(ref.slice(0))
        return found
    finally:
        reader.close()
