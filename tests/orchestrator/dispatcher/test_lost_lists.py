"""One report names all lost blocks, is short, and does not depend on their number."""

from __future__ import annotations

import asyncio
import shutil
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio
from eventually import eventually_async
from orchestrator.record_histories import TESTS, M, mapped, spec
from temporalio.api.common.v1 import Payload
from temporalio.converter import ActivitySerializationContext

from treadle.client.testing.service import Service, service
from treadle.executors.program import Keep
from treadle.orchestrator.dispatcher.blocks import lost_blocks
from treadle.orchestrator.dispatcher.blocks.lost_blocks import FEW, condense, expand
from treadle.orchestrator.dispatcher.tasks import arguments
from treadle.orchestrator.environment.home import Home
from treadle.orchestrator.plan.plan import Graph, ItemsFeed, Policy, Segment
from treadle.orchestrator.planner import task_groups
from treadle.orchestrator.run_store.run_files import RunFiles
from treadle.orchestrator.scheduler.instructions import NodeDone, NodeLost, RunNode, Summary
from treadle.orchestrator.scheduler.scheduler import Scheduler
from treadle.orchestrator.scheduler.task_groups import OpenTaskGroups, partition_of
from treadle.primitives.errors import CorruptError
from treadle.primitives.stores.store import Store

SIZE = 5000
MANY = 100_000


def segment(name: str, *data: str, group: int = 0) -> Segment:
    return Segment(name, (name,), ItemsFeed((), ()), (), Keep(), Policy(), data=data, group=group)


GRAPH = Graph((segment("wide", group=SIZE), segment("narrow"), segment("reader", "wide", "narrow")))


@pytest.fixture
def files(tmp_path: Path) -> RunFiles:
    return RunFiles(Store.open(f"file://{tmp_path}"), "r", bytes(32))


def blocks(segment: str, count: int) -> set[str]:
    return {f"{segment}/{number}.1.{number:012x}" for number in range(count)}


def test_a_few_names_travel_as_they_are(files: RunFiles) -> None:
    few = blocks("narrow", FEW)
    assert condense(files, GRAPH, few) == few
    assert expand(files, few) == tuple(few)
    assert not list(files.store.list())


def test_a_hundred_thousand_names_are_a_list_for_each_task_group(files: RunFiles) -> None:
    lost = blocks("wide", MANY) | blocks("narrow", 2000) | blocks("lloyd-3/assign", 7)
    names = condense(files, GRAPH, lost)
    assert len(msgspec.json.encode(sorted(names))) < 5000
    assert Counter(name.rsplit("/", 1)[0] for name in names) == {"wide": 20, "narrow": 1, "lloyd-3/assign": 1}
    assert set(expand(files, names)) == lost
    assert condense(files, GRAPH, lost) == names, "whoever reports it again says the same"
    parts = OpenTaskGroups(range(20), 20, repair=tuple(names), size=SIZE)
    for group in range(20):
        mine = expand(files, [name for name in parts.repair_of(group) if name.startswith("wide/")])
        assert {partition_of(block) // SIZE for block in mine} == {group}
        assert len(mine) == SIZE


def test_the_scheduler_takes_a_list_for_a_block_of_its_segment(files: RunFiles) -> None:
    graph = Scheduler(GRAPH, {}, {"wide": Summary(), "narrow": Summary()})
    graph.start()
    names = tuple(sorted(condense(files, GRAPH, blocks("wide", MANY) | blocks("narrow", 1))))
    assert graph.handle(NodeLost("reader", names)) == [
        RunNode("wide", {}, tuple(name for name in names if name.startswith("wide/"))),
        RunNode("narrow", {}, tuple(name for name in names if name.startswith("narrow/"))),
    ]
    graph.handle(NodeDone("wide", Summary()))
    assert graph.handle(NodeDone("narrow", Summary())) == [RunNode("reader", {})]


def test_list_of_another_writer_is_refused(files: RunFiles) -> None:
    (name,) = (one for one in condense(files, GRAPH, blocks("narrow", FEW + 1)))
    (info,) = files.store.list()
    files.store.put(info.name, files.store.get(info.name).replace(b"narrow", b"secret"))
    with pytest.raises(CorruptError):
        expand(files, [name])


# -- through Temporal ------------------------------------------------------------------------------------------------


@pytest_asyncio.fixture
async def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Service]:
    """A service in which five names are many, 50 partitions are wide, and no block travels inline."""
    monkeypatch.setattr(lost_blocks, "FEW", 5)
    monkeypatch.setattr(task_groups, "GROUP_TASKS", 50)
    monkeypatch.setattr(arguments, "INLINE_LIMIT", 0)
    async with service(Home(tmp_path / "home")) as found:
        yield found


async def test_all_lost_blocks_are_recomputed_in_one_round(here: Service, tmp_path: Path) -> None:
    flag = tmp_path / "flag"
    document = spec(
        wide=mapped({"range": 120}, batch={"maxItems": 1}),
        gate=mapped({"items": [1]}, "slowly", needs=["wide"], **{"with": {"flag": str(flag)}}),
        sum={"type": "reduce", "input": "wide", "per": "all", "uses": f"{M}:total", "needs": ["gate"]},
    )
    document["stages"]["sum"] |= {"metrics": {"total": "integer"}}
    document["outputs"] = {"total": "${{ stages.sum.metrics.total }}"}
    await here.submit(document, "lossy", tmp_path, TESTS)
    files = here.runs.files("lossy")

    async def closed() -> bool:
        return await asyncio.to_thread(files.closing, "wide") is not None

    await eventually_async(closed, 120)
    assert here.site.host is not None
    shutil.rmtree(here.site.host.path("lossy/wide"))
    flag.touch()
    end = await here.runs.end("lossy")
    assert end.outputs == {"total": sum(range(120))}
    ran: Counter[str] = Counter()
    for event in (await here.history("lossy")).events:
        if event.HasField("activity_task_scheduled_event_attributes"):
            scheduled = event.activity_task_scheduled_event_attributes
            order = await argument(here, "lossy", scheduled.activity_type.name, scheduled.input.payloads[0])
            ran[order.get("node", "")] += 1
            assert str(order).count("wide/") <= 3, "lists, not names"
    assert ran["sum"] + ran["sum.leaves"] <= 3, "the reader of what was lost ran twice"
    assert len(list(files.store.list("runs/lossy/lost"))) == 3


async def argument(here: Service, run: str, kind: str, payload: Payload) -> dict[str, Any]:
    """The first argument of an activity, from the history."""
    namespace = here.client.namespace
    context = ActivitySerializationContext(namespace, None, kind, None, run, None, False)
    (found,) = await here.client.data_converter.with_context(context).decode([payload])
    assert isinstance(found, dict)
    return found
