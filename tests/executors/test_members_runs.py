"""Resident functions in whole runs: blocks go between them, and a member that dies or ends costs its own share."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import msgspec
import pytest
from emulators.lambda_place import LambdaPlace, lambda_place
from executors.members_rig import MEETING, MODULE, Rig, host_of, workflow

from treadle.executors.program import Outcome
from treadle.executors.resident import lifetime
from treadle.executors.resident.coordinator_host import Meeting

UNDIALLED = msgspec.structs.replace(MEETING, inbound=False)


@pytest.fixture(scope="module")
def functions(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LambdaPlace]:
    with lambda_place(tmp_path_factory.mktemp("lambda"), concurrency=8) as place:
        yield place


@pytest.fixture
def meeting(request: pytest.FixtureRequest) -> Meeting:
    return getattr(request, "param", MEETING)


@pytest.fixture
async def rig(
    tmp_path: Path,
    functions: LambdaPlace,
    meeting: Meeting,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> AsyncIterator[Rig]:
    for name, value in functions.emulator.credentials.items():
        monkeypatch.setenv(name, value)
    functions.emulator.settle()
    functions.emulator.invocations.clear()
    seconds = getattr(request, "param", 60.0)
    if seconds < 60:
        monkeypatch.setattr(lifetime, "HANDOVER_SHARE", 0.6)  # a busy machine is slow to start a process
    made = Rig(functions, tmp_path, seconds=seconds, meeting=meeting)
    monkeypatch.syspath_prepend(tmp_path / "project")
    monkeypatch.delitem(sys.modules, MODULE, raising=False)
    yield made
    await made.stop()


async def test_a_shuffle_goes_from_member_to_member_and_leaves_the_same_as_local(rig: Rig) -> None:
    spec = workflow(12)
    found = await rig.run(spec, "direct")
    assert found.datasets["weights"] == (await rig.local(spec)).datasets["weights"]
    made = sum(one.block.size for one in rig.outcomes("direct", "groups") if one.block)
    read = rig.read("direct", "weights")
    assert read["store"] == 0
    assert read["peer"] > 0
    assert read["peer"] + read["host"] == made
    assert [info.name for info in rig.engine.site.store.list("runs/direct/blocks/groups")] == []


@pytest.mark.parametrize("meeting", [UNDIALLED], indirect=True)
async def test_members_that_accept_no_connections_exchange_blocks_all_the_same(rig: Rig) -> None:
    """AWS Lambda blocks inbound connections (AWS Lambda FAQs, restrictions of function code)."""
    spec = workflow(12, reading=0.1)
    found = await rig.run(spec, "behind")
    assert found.datasets["weights"] == (await rig.local(workflow(12))).datasets["weights"]
    made = sum(one.block.size for one in rig.outcomes("behind", "groups") if one.block)
    read = rig.read("behind", "weights")
    assert read["store"] == read["peer"] == 0
    assert (far := read["path"] + read["relayed"] + read["stored"]) > 0
    assert far + read["host"] == made
    assert set(rig.counted.outcomes.values()) == {1}, "nothing was made twice"
    assert [info.name for info in rig.engine.site.store.list("runs/behind/blocks")] == []
    blocks = rig.engine.site.open("behind").blocks
    slices = [one.block.slice(part) for one in rig.outcomes("behind", "groups") if one.block for part in range(8)]
    assert await asyncio.to_thread(blocks.lost, slices) == set(), "the driver finds them, too"
    assert await asyncio.to_thread(blocks.get, max(slices, key=lambda one: one.part.length))
    blocks.close()


async def test_members_start_cold_once_where_calls_would_be_many(rig: Rig, functions: LambdaPlace) -> None:
    await rig.run(workflow(40), "warm")
    tasks = sum(rig.counted.outcomes.values())
    assert tasks == 48
    await rig.stop()
    assert len(functions.emulator.invocations) == len(rig.members.slots)


@pytest.mark.parametrize("meeting", [MEETING, UNDIALLED], indirect=True, ids=["dialled", "not dialled"])
async def test_a_member_that_is_killed_costs_its_own_blocks_only(rig: Rig, functions: LambdaPlace) -> None:
    before: dict[int, str] = {}

    def kill(segment: str, _: Outcome) -> None:
        if segment == "weights" and not before:
            before.update({one.partition: host_of(one) for one in rig.outcomes("killed", "groups")})
            functions.emulator.kill_sandbox()

    rig.see = kill
    found = await rig.run(workflow(12, reading=0.2), "killed")
    assert found.datasets["weights"] == (await rig.local(workflow(12))).datasets["weights"]
    again = {
        partition for (segment, partition), count in rig.counted.outcomes.items() if segment == "groups" and count > 1
    }
    assert again, "blocks of the dead one were made again"
    assert again < set(before), "and those of the other one were not"
    assert len({before[partition] for partition in again}) == 1


@pytest.mark.chaos  # 15 s: members live for seconds, each of them twice
@pytest.mark.parametrize("rig", [10.0], indirect=True)
@pytest.mark.parametrize("meeting", [MEETING, UNDIALLED], indirect=True, ids=["dialled", "not dialled"])
async def test_blocks_outlive_the_members_that_made_them(rig: Rig) -> None:
    spec = workflow(16, making=0.5, reading=0.2)
    found = await rig.run(spec, "ending")
    assert found.datasets["weights"] == (await rig.local(workflow(16))).datasets["weights"]
    assert set(rig.counted.outcomes.values()) == {1}, "nothing was made twice"
    hosts = {host_of(one) for one in rig.outcomes("ending", "groups")}
    assert rig.members.usage.calls > 0
    assert len(hosts) >= 2
