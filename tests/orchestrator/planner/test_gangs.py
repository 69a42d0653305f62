"""Gangs in a plan: tasks of their own, or a refusal."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from orchestrator.planner.test_planner import LOCAL, SITE, SOURCE, mapped, plan, segments

from treadle.executors.interface import Capabilities
from treadle.orchestrator.plan.plan import Segment
from treadle.orchestrator.planner import RunLocation
from treadle.orchestrator.planner.placement import PlacementRefused
from treadle.primitives.errors import UsageError


def test_gang_has_tasks_of_its_own_and_says_so() -> None:
    stages = {"a": mapped(SOURCE), "b": mapped("a", gang=4), "c": mapped("b")}
    found = segments(plan(stages))
    assert {name: segment.stages for name, segment in found.items()} == {"a": ("a",), "b": ("b",), "c": ("c",)}
    assert [found[name].policy.gang for name in "abc"] == [0, 4, 0]
    assert "b is apart from a: a gang has tasks of its own" in found["b"].reasons
    assert "a gang: its 4 partitions run together, each in a slot of its own, or not at all" in found["b"].reasons
    assert "c is apart from b: a gang has tasks of its own" in found["c"].reasons


def test_two_gangs_are_not_one() -> None:
    found = segments(plan({"a": mapped(SOURCE, gang=4), "b": mapped("a", gang=4)}))
    assert [segment.stages for segment in found.values()] == [("a",), ("b",)]


def test_partitioning_for_a_gang_is_not_a_gang_itself() -> None:
    found = segments(plan({"a": mapped({"range": 8}, batch={"maxBytes": "1KiB"}, gang=4)}))
    assert {name: segment.policy.gang for name, segment in found.items()} == {"a.cut": 0, "a": 4}


def test_gang_that_cannot_start_is_refused(tmp_path: Path) -> None:
    def refusal(stage: Mapping[str, Any], site: RunLocation = SITE) -> str:
        with pytest.raises(UsageError) as refused:
            plan({"a": stage}, site=site, base=tmp_path)
        return str(refused.value)

    (tmp_path / "one.txt").write_text("a\n")
    assert "its input has 4 partitions, and `gang: 3` needs exactly 3" in refusal(mapped(SOURCE, gang=3))
    files = mapped({"uri": "*.txt", "format": "text"}, gang=2)
    assert "Write `gang: 1`, choose another `split`, or shuffle to `partitions: 2` before it." in refusal(files)
    eight = mapped({"range": 8}, gang=8)
    assert "`gang: 8` needs 8 slots at once, and there are 4" in refusal(eight)
    limited = mapped(SOURCE, gang=4, maxConcurrency="${{ 3 }}")
    assert "`gang: 4` needs 4 slots at once, and maxConcurrency is 3" in refusal(limited)
    alone = RunLocation({"local": msgspec.structs.replace(LOCAL, gangs=False)}, 2**30, "file:///store")
    assert "workers of this executor cannot connect to each other" in refusal(mapped(SOURCE, gang=4), alone)


def test_gang_may_take_the_slots_of_several_hosts() -> None:
    eight = {"a": mapped({"range": 8}, gang=8)}
    hosts = RunLocation({"local": LOCAL}, 2**30, "file:///store", one_host=False, peers=True)
    where = "a gang: its 8 partitions run together, each in a slot of its own"
    reason = f"{where} (4 here, the rest on other hosts), or none, if not all are idle after 1m"
    for lent in (0, 8):  # 0: `treadle plan` does not ask the drivers
        assert reason in segments(plan(eight, site=msgspec.structs.replace(hosts, lent=lent)))["a"].reasons
    with pytest.raises(UsageError, match="needs 8 slots at once, and all drivers of this queue together have 7"):
        plan(eight, site=msgspec.structs.replace(hosts, lent=7))
    with pytest.raises(UsageError, match="give each driver `peers`, so that they lend each other slots"):
        plan(eight, site=msgspec.structs.replace(hosts, peers=False))


CALLS = msgspec.structs.replace(LOCAL, name="lambda", slots=4, shares_host=False, gangs=False, sizes=(2**30,))
MEMBERS = msgspec.structs.replace(CALLS, gangs=True, time_limit=860.0)


def on_functions(stage: Mapping[str, Any], members: Capabilities | None) -> Segment:
    there = {"local": LOCAL, "fns": CALLS} | ({"fns/members": members} if members else {})
    return segments(plan({"a": stage}, site=RunLocation(there, 2**30, "s3://bucket", default="fns")))["a"]


def test_gang_on_functions_runs_in_resident_ones() -> None:
    found = on_functions(mapped(SOURCE, gang=4), MEMBERS)
    assert (found.policy.executor, found.put) == ("fns/members", "store")
    assert found.reasons[0] == (
        "a gang: its 4 partitions run together, each in a function of its own, or none, if not all have started after "
        "1m"
    )
    assert "functions stay: a gang's members exchange values while they run" in found.reasons


@pytest.mark.parametrize(
    ("size", "members", "more", "key", "why"),
    [
        (4, None, {}, "executor", "a: functions of fns have no coordinator to join, and a gang meets at one"),
        (8, MEMBERS, {}, "gang", "a: `gang: 8` needs 8 functions at once, and `concurrency` of fns is 4"),
        (
            4,
            MEMBERS,
            {"timeout": "870s"},
            "timeout",
            "a: a gang on fns runs in functions that stay; each works for 860s, and `timeout` is 870s",
        ),
    ],
)
def test_gang_that_cannot_start_on_functions_is_refused(
    size: int, members: Capabilities | None, more: dict[str, Any], key: str, why: str
) -> None:
    with pytest.raises(PlacementRefused) as refused:
        on_functions(mapped({"range": 8, "partitions": size}, gang=size, **more), members)
    assert refused.value.message == why
    assert refused.value.paths[0] == ("stages", "a", key)
