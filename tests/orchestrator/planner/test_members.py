"""A call for each task or resident functions: the plan's choice, its reason, and its refusals."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from orchestrator.places.test_places import FUNCTIONS, GIB, LOCAL, mapped, plan, refusal, segments

from treadle.executors.interface import Capabilities
from treadle.executors.program import EventSplit
from treadle.orchestrator.plan.plan import EventsFeed, FilesFeed, Graph, Segment
from treadle.orchestrator.planner import RunLocation
from treadle.orchestrator.planner.placement import PlacementRefused, settle
from treadle.primitives.formats import FileSplit, ReadOptions

CALLS = msgspec.structs.replace(FUNCTIONS, slots=10, sizes=(GIB,))
MEMBERS = msgspec.structs.replace(CALLS, time_limit=860.0, peers=True)
SOURCE = {"range": 40, "partitions": 20}


def site(members: Capabilities | None = MEMBERS, calls: Capabilities = CALLS) -> RunLocation:
    there = {"local": LOCAL, "fns": calls}
    return RunLocation(there | ({"fns/members": members} if members else {}), GIB, "s3://bucket", default="fns")


def shuffled(**more: Any) -> dict[str, Any]:
    return {
        "pairs": mapped(SOURCE, **more),
        "groups": {"type": "shuffle", "input": "pairs", "by": "key", "partitions": 4, **more},
        "sums": {"type": "reduce", "input": "groups", "per": "key", "combine": "m:add"},
    }


def where(one: Segment) -> tuple[str, str]:
    return one.policy.executor, one.put


def test_blocks_of_a_shuffle_stay_with_members_and_results_go_to_the_store() -> None:
    found = segments(plan(shuffled(), site()))
    assert where(found["groups"]) == ("fns/members", "host")
    assert found["groups"].reasons[-2:] == (
        "functions stay: what they make is read by fns only",
        "blocks stay with the functions that make them, and fns pulls them over TCP",
    )
    assert where(found["sums"]) == ("fns/members", "store")
    assert found["sums"].reasons[-2] == "functions stay: they read what others of them hold"


def test_without_a_coordinator_everything_is_a_call() -> None:
    found = segments(plan(shuffled(), site(None)))
    assert {where(one) for one in found.values()} == {("fns", "store")}


def test_few_tasks_that_exchange_nothing_are_calls() -> None:
    few, many = {"range": 4, "partitions": 4}, {"range": 40, "partitions": 11}
    found = segments(plan({"a": mapped(few), "b": mapped(many)}, site()))
    assert (where(found["a"]), found["a"].reasons[-2]) == (
        ("fns", "store"),
        "a call for each task: 4 partitions on 10 slots",
    )
    assert (where(found["b"]), found["b"].reasons[-2]) == (
        ("fns/members", "store"),
        "functions stay: 11 partitions on 10 slots: each starts once",
    )


def test_data_read_by_other_executors_goes_through_the_store() -> None:
    stages = shuffled() | {"here": mapped("pairs", executor="local")}
    found = segments(plan(stages, site()))
    assert where(found["pairs"])[1] == "store"
    assert found["groups"].put == "host"


@pytest.mark.parametrize(
    ("more", "members", "why"),
    [
        ({"exchange": "storage"}, MEMBERS, "exchange: storage"),
        ({"durability": "segment"}, MEMBERS, ""),
        ({}, msgspec.structs.replace(MEMBERS, peers=False), ""),
        ({"timeout": "870s"}, MEMBERS, "a function that stays works for 860s, and `timeout` is 870s"),
    ],
    ids=["storage", "durability", "out of reach", "timeout"],
)
def test_blocks_go_through_the_store_where_members_cannot_hold_them(
    more: dict[str, Any], members: Capabilities, why: str
) -> None:
    found = segments(plan(shuffled(**more), site(members)))["groups"]
    assert found.put == "store"
    assert any(why in reason for reason in found.reasons)


def test_blocks_go_through_the_store_when_a_reader_outlasts_the_members() -> None:
    """Only members can read the blocks that members hold, and a call is not a member."""
    stages = shuffled()
    stages["sums"]["timeout"] = "870s"
    found = segments(plan(stages, site()))
    assert (found["groups"].put, where(found["sums"])) == ("store", ("fns", "store"))
    stages["groups"]["exchange"] = "direct"
    error = refusal(stages, site())
    assert error.message.endswith(
        "a stage that reads its blocks has a `timeout` for which functions of fns do not stay"
    )


def looped(timeout: str) -> dict[str, Segment]:
    loop = {
        "type": "loop",
        "state": {"x": "a"},
        "maxIterations": 3,
        "stages": {"near": mapped("state.x"), "far": mapped("near", timeout=timeout)},
        "next": {"x": "far"},
    }
    return segments(plan({"a": mapped(SOURCE), "l": loop}, site()))


def test_loops_of_functions_only_keep_their_blocks_with_members() -> None:
    found = looped("1s")
    assert {name: where(one) for name, one in found.items()} == dict.fromkeys(
        ("a", "near", "far"), ("fns/members", "host")
    )
    assert {one.put for one in looped("870s").values()} == {"store"}


TOTAL = {"type": "reduce", "per": "all", "uses": "m:f"}


def test_readers_of_loop_data_held_by_members_run_on_members() -> None:
    """Even with few partitions: inside the loop, if it reads a state or outer data, and after the loop."""
    body = {
        "far": {**TOTAL, "input": "state.x"},
        "aside": mapped("state.x", exchange="storage"),
        "around": mapped("few", exchange="storage"),
    }
    loop = {"type": "loop", "state": {"x": "total"}, "maxIterations": 3, "stages": body, "next": {"x": "far"}}
    few = mapped({"range": 4, "partitions": 4})
    stages = {"few": few, "total": {**TOTAL, "input": "few"}, "l": loop, "last": mapped("l.state.x")}
    assert {where(one)[0] for one in segments(plan(stages, site())).values()} == {"fns/members"}
    unreached = site(msgspec.structs.replace(MEMBERS, peers=False))
    assert where(segments(plan(stages, unreached))["last"]) == ("fns", "store"), "where they hold nothing it is a call"


@pytest.mark.parametrize(
    ("members", "more", "why"),
    [
        (None, {}, "functions of fns have no coordinator to join"),
        (
            msgspec.structs.replace(MEMBERS, peers=False),
            {},
            "functions of fns do not reach each other (members.direct)",
        ),
        (MEMBERS, {"timeout": "870s"}, "a function that stays works for 860s, and `timeout` is 870s"),
    ],
)
def test_direct_exchange_that_cannot_be_is_refused(
    members: Capabilities | None, more: dict[str, Any], why: str
) -> None:
    error = refusal(shuffled(exchange="direct", **more), site(members))
    assert error.message.endswith(f"exchange: direct cannot be: {why}")
    assert error.paths[0] == ("stages", "groups", "exchange")


def test_plan_says_what_members_could_do() -> None:
    assert plan(shuffled(), site()).executors == {"fns/members": MEMBERS}


# -- libraries ----------


LACKING = msgspec.structs.replace(CALLS, lacks=("pyarrow", "confluent_kafka"))


def test_parquet_on_functions_without_arrow_is_refused() -> None:
    error = refusal({"a": mapped(SOURCE, output={"uri": "s3://b/x", "format": "parquet"})}, site(None, LACKING))
    assert error.message == "a: functions of fns have Parquet only when they are deployed with `arrow = true`"
    assert error.paths[0] == ("stages", "a", "output")


def test_text_as_tables_on_functions_without_arrow_is_refused() -> None:
    (segment,) = segments(plan({"a": mapped(SOURCE)}, site(None))).values()
    split = FileSplit("s3://b/x", 0, 9, 9, "1", ReadOptions("text", table=True))
    reading = msgspec.structs.replace(segment, feed=FilesFeed((split,)))
    with pytest.raises(PlacementRefused, match="have text as tables only when they are deployed with `arrow = true`"):
        settle(Graph((reading,)), site(None, LACKING))


def test_events_on_functions_without_the_client_are_refused() -> None:
    (segment,) = segments(plan({"a": mapped(SOURCE)}, site(None))).values()
    split = EventSplit("c", "t", "AAAAAAAAAAAAAAAAAAAAAA", 0, 0, (9,), "json")
    reading = msgspec.structs.replace(segment, feed=EventsFeed(split, ((0, 9),)))
    with pytest.raises(PlacementRefused, match="only when they are deployed with `kafka = true`"):
        settle(Graph((reading,)), site(None, LACKING))
    copied = EventsFeed(msgspec.structs.replace(split, copied="events/1"), ((0, 9),))
    assert settle(Graph((msgspec.structs.replace(segment, feed=copied),)), site(None, LACKING))
