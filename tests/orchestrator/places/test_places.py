"""Executors by name: the known ones, the refusals of plans, and the place of blocks between two executors."""

from __future__ import annotations

import io
import sys
import zipfile
from collections.abc import Callable, Mapping
from importlib.metadata import EntryPoint
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from treadle.cli.common.environment import Environment
from treadle.dsl.model import Spec
from treadle.dsl.units import Bytes
from treadle.executors.interface import Capabilities, Executor
from treadle.executors.plugin import Place
from treadle.orchestrator.environment.home import Home
from treadle.orchestrator.environment.profile import Profile, load_profile
from treadle.orchestrator.executor_registry import registry as places_module
from treadle.orchestrator.executor_registry.registry import ExecutorRegistry, find_kind, open_places
from treadle.orchestrator.plan.plan import LoopNode, Plan, Segment
from treadle.orchestrator.planner import RunLocation, make_plan
from treadle.orchestrator.planner.placement import PlacementRefused, check_code
from treadle.primitives.errors import UsageError

MIB, GIB = 2**20, 2**30
LOCAL = Capabilities("local", 4, shares_host=True, memory_limit=16 * GIB, gangs=True)
FUNCTIONS = Capabilities(
    "lambda", 100, shares_host=False, memory_limit=10 * GIB, time_limit=900, files=False, temporary=512 * MIB
)
ALONE = Capabilities("isolated", 2, shares_host=False, payload_limit=6 * MIB)
SITE = RunLocation({"local": LOCAL, "fns": FUNCTIONS, "alone": ALONE}, GIB, "s3://bucket")
SOURCE = {"range": 8, "partitions": 4}


def mapped(given: Any, **more: Any) -> dict[str, Any]:
    return {"type": "map", "input": given, "uses": "m:f", **more}


def plan(stages: Mapping[str, Any], site: RunLocation = SITE, base: Path = Path("/nowhere"), **document: Any) -> Plan:
    spec = Spec.model_validate({"apiVersion": "treadle/v1", "name": "w", "stages": stages, **document})
    return make_plan(spec, {}, {"id": "r", "startTime": "2026-01-01T00:00:00Z"}, {}, base, site)


def segments(found: Plan) -> dict[str, Segment]:
    nodes = [*found.graph.nodes]
    nodes += [inner for node in found.graph.nodes if isinstance(node, LoopNode) for inner in node.body.nodes]
    return {node.id: node for node in nodes if isinstance(node, Segment)}


def refusal(
    stages: Mapping[str, Any], site: RunLocation = SITE, base: Path = Path("/nowhere"), **document: Any
) -> PlacementRefused:
    with pytest.raises(PlacementRefused) as refused:
        plan(stages, site, base, **document)
    return refused.value


# -- the place of blocks -------------------------------------------------------------------------------------------


def test_stages_on_two_executors_are_two_segments_joined_by_the_store() -> None:
    found = segments(plan({"a": mapped(SOURCE), "b": mapped("a", executor="fns"), "c": mapped("b")}))
    assert [(one.stages, one.policy.executor, one.put) for one in found.values()] == [
        (("a",), "local", "store"),
        (("b",), "fns", "store"),
        (("c",), "local", "store"),
    ]
    assert "b is apart from a: executor differs" in found["b"].reasons
    assert found["a"].reasons[-1] == "blocks go to store: fns reads them too"
    assert found["b"].reasons[-1] == "blocks go to store: lambda workers do not share this host's memory"


def test_data_read_only_by_local_stages_stays_in_memory() -> None:
    found = segments(plan({"a": mapped(SOURCE), "b": mapped("a", timeout="1s"), "c": mapped("b", executor="fns")}))
    assert [found[name].put for name in "abc"] == ["host", "store", "store"]


def test_data_of_a_loop_with_a_function_in_it_goes_through_the_store() -> None:
    loop = {
        "type": "loop",
        "state": {"x": "a"},
        "maxIterations": 3,
        "stages": {"near": mapped("state.x"), "far": mapped("near", executor="fns")},
        "next": {"x": "far"},
    }
    found = segments(plan({"a": mapped(SOURCE), "l": loop, "b": mapped("l.state.x"), "c": mapped("b", timeout="1s")}))
    assert {name: one.put for name, one in found.items() if name != "c"} == {
        "a": "store",
        "near": "store",
        "far": "store",
        "b": "host",
    }


def test_function_after_a_loop_reads_the_loops_data_from_the_store() -> None:
    loop = {
        "type": "loop",
        "state": {"x": "a"},
        "maxIterations": 3,
        "stages": {"near": mapped("state.x")},
        "next": {"x": "near"},
    }
    assert segments(plan({"a": mapped(SOURCE), "l": loop, "b": mapped("l.state.x")}))["near"].put == "host"
    found = segments(plan({"a": mapped(SOURCE), "l": loop, "b": mapped("l.state.x", executor="fns")}))
    assert [found[name].put for name in ("a", "near")] == ["store", "store"]


def test_plan_says_what_its_executors_could_do() -> None:
    found = plan({"a": mapped(SOURCE), "b": mapped("a", executor="fns")})
    assert found.executors == {"local": LOCAL, "fns": FUNCTIONS}


def test_stage_wins_over_defaults_and_they_over_the_profile() -> None:
    site = msgspec.structs.replace(SITE, default="fns")
    stages = {"a": mapped(SOURCE), "b": mapped("a", executor="alone")}
    assert [one.policy.executor for one in segments(plan(stages, site)).values()] == ["fns", "alone"]
    found = plan(stages, site, defaults={"executor": "local"})
    assert [one.policy.executor for one in segments(found).values()] == ["local", "alone"]


# -- refusals ------------------------------------------------------------------------------------------------------


def test_unknown_executor_is_refused_with_those_there_are() -> None:
    error = refusal({"a": mapped(SOURCE, executor="elsewhere")})
    assert error.message == "a: there is no executor 'elsewhere' here"
    assert error.hint == "The profile has: local, fns, alone."
    assert error.paths[0] == ("stages", "a", "executor")


def test_timeout_beyond_the_time_of_a_function_is_refused() -> None:
    error = refusal({"a": mapped(SOURCE, timeout="20m", executor="fns")})
    assert error.message == "a: an attempt on fns ends after 15m, and `timeout` is 20m"
    assert error.paths[0] == ("stages", "a", "timeout")
    assert plan({"a": mapped(SOURCE, timeout="15m", executor="fns")})


def test_memory_beyond_the_largest_function_is_refused_and_growth_ends_there() -> None:
    assert (
        "has at most 10GiB, and `memory` is 11GiB"
        in refusal({"a": mapped(SOURCE, memory="11GiB", executor="fns")}).message
    )
    grown = segments(plan({"a": mapped(SOURCE, memory={"start": "1GiB", "max": "64GiB"}, executor="fns")}))["a"].policy
    assert (grown.memory_start, grown.memory_max) == (GIB, 10 * GIB)


def test_gang_on_functions_is_refused() -> None:
    with pytest.raises(UsageError, match="cannot connect to each other"):
        plan({"a": mapped(SOURCE, gang=4, executor="fns")})


def test_setting_inside_a_loop_or_of_the_defaults_is_found_where_it_stands() -> None:
    loop = {
        "type": "loop",
        "state": {"n": 0},
        "maxIterations": 3,
        "stages": {"inner": mapped(SOURCE, timeout="1h", executor="fns")},
        "next": {},
    }
    assert refusal({"l": loop}).paths[0] == ("stages", "l", "stages", "inner", "timeout")
    error = refusal({"a": mapped(SOURCE, executor="fns")}, defaults={"timeout": "1h"})
    assert ("defaults", "timeout") in error.paths


def test_files_of_this_machine_are_refused_for_functions(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("x\n")
    files = {"uri": "*.txt", "format": "text"}
    error = refusal({"a": mapped(files, executor="fns")}, base=tmp_path)
    assert f"runs on fns and reads {tmp_path}/a.txt" in error.message
    assert "fns cannot reach the files of this machine: use s3://" in error.hint
    output = {"uri": "out", "format": "jsonl"}
    assert (
        f"writes to {tmp_path}/out"
        in refusal({"a": mapped(SOURCE, output=output, executor="fns")}, base=tmp_path).message
    )
    here = msgspec.structs.replace(SITE, store="file:///store")
    assert "the store is file:///store" in refusal({"a": mapped(SOURCE, executor="fns")}, here).message
    assert plan({"a": mapped(files, executor="alone")}, here, tmp_path), "isolated attempts see the same files"


def test_items_that_fill_a_payload_are_refused() -> None:
    items = {"items": ["x" * 5 * MIB, "y"], "partitions": 2}
    assert "bytes of items in one partition" in refusal({"a": mapped(items, executor="alone")}).message


def test_broadcast_that_an_attempt_cannot_hold_is_refused() -> None:
    small = msgspec.structs.replace(FUNCTIONS, memory_limit=128 * MIB)
    site = RunLocation({"local": LOCAL, "fns": small}, GIB, "s3://bucket")
    stages = {
        "all": {"type": "broadcast", "input": {"range": 3}, "executor": "fns"},
        "b": mapped(SOURCE, executor="fns", **{"with": {"value": "${{ stages.all }}"}}),
    }
    assert "its value may be 256MiB, and an attempt on fns has 128MiB" in refusal(stages, site).message


def test_code_beyond_the_temporary_folder_is_refused_with_its_largest_files() -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("modules/small.py", "x")
        archive.writestr("modules/model.bin", b"\0" * 3 * MIB)
    small = msgspec.structs.replace(FUNCTIONS, temporary=2 * MIB)
    check_code({"fns": FUNCTIONS, "local": LOCAL}, packed.getvalue())
    with pytest.raises(UsageError, match=r"fns has a temporary folder of 2,097,152(.|\n)*model.bin \(3,145,728 bytes"):
        check_code({"local": LOCAL, "fns": small}, packed.getvalue())


# -- profiles ------------------------------------------------------------------------------------------------------

TABLES = """
[lab]
slots = 3
memory = "3GiB"
executor = "apart"
[lab.executors.apart]
kind = "isolated"
slots = 5
memory = "1GiB"
[lab.executors.isolated]
[lab.executors.wrong]
kind = "isolated"
slotz = 5
[lab.executors.other]
kind = "elsewhere"
"""


@pytest.fixture
def lab(tmp_path: Path) -> ExecutorRegistry:
    home = Home(tmp_path / "home", {})
    home.profiles.write_text(TABLES)
    profile = load_profile(home, "lab", {"XDG_CONFIG_HOME": str(tmp_path), "TEMPORAL_CONFIG_FILE": "/nonexistent"})
    assert profile.executor == "apart"
    return open_places(home, profile)


def test_profile_gives_its_executors_beside_local(lab: ExecutorRegistry) -> None:
    assert list(lab) == ["local", "apart", "isolated", "wrong", "other"]
    local, apart, isolated = (lab[name].capabilities for name in ("local", "apart", "isolated"))
    assert (local.name, local.slots, local.memory_limit, local.shares_host) == ("local", 3, GIB, True)
    assert (apart.name, apart.slots, apart.memory_limit) == ("isolated", 5, GIB)
    assert (isolated.name, isolated.slots) == ("isolated", 2)
    assert lab["apart"] is lab["apart"]


def test_memory_is_shared_by_the_processors_of_this_process(
    lab: ExecutorRegistry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {1, 3, 5})
    home = Home(tmp_path / "home", {})
    local = open_places(home, Profile(memory=Bytes(3 * GIB)))["local"].capabilities
    assert (local.slots, local.memory_limit) == (3, GIB)


def test_a_plan_is_made_for_the_hosts_of_its_profile(tmp_path: Path) -> None:
    home = Home(tmp_path / "home", {})
    there = 'temporal = {address = "127.0.0.1:1"}\n'
    home.profiles.write_text(f'[here]\n[hosts]\n{there}[reached]\npeers = "tcp://127.0.0.1:0"\n{there}')
    for name, seen in {"here": (True, 1, False), "hosts": (False, 0, False), "reached": (False, 0, True)}.items():
        site = Environment(name, home.path).plan_site()
        assert (site.one_host, site.drivers, site.peers) == seen


def test_wrong_table_is_reported_when_its_executor_is_needed(lab: ExecutorRegistry) -> None:
    with pytest.raises(UsageError, match="executor 'wrong' of the profile: slotz: there is no such key"):
        lab["wrong"]
    with pytest.raises(UsageError, match="there is no kind of executor 'elsewhere'"):
        lab["other"]
    with pytest.raises(KeyError):
        lab["nobody"]


PROVIDERS = """
[cloud]
store = "s3://bucket"
[cloud.executors.lambda]
region = "eu-central-1"
concurrency = 500
sizes = [1024, 3072]
deploy = { temporary = 2048 }
[cloud.executors.ow]
kind = "openwhisk"
endpoint = "http://127.0.0.1:3233"
timeout = "2m"
[cloud.executors.local]
emulate = "lambda"
sizes = [2048, 512]
slots = 3
[here.executors.local]
emulate = "openwhisk"
[wrong.executors.local]
emulate = "lambda"
memory = "1GiB"
"""


@pytest.fixture
def providers(tmp_path: Path) -> Callable[[str], ExecutorRegistry]:
    home = Home(tmp_path / "home", {"TREADLE_SECRET_OPENWHISK": "user:password"})
    home.profiles.write_text(PROVIDERS)
    nowhere = {"XDG_CONFIG_HOME": str(tmp_path), "TEMPORAL_CONFIG_FILE": "/nonexistent"}
    return lambda name: open_places(home, load_profile(home, name, nowhere))


def test_functions_state_what_their_provider_allows(providers: Callable[[str], ExecutorRegistry]) -> None:
    cloud = providers("cloud")
    there, ow = cloud["lambda"].capabilities, cloud["ow"].capabilities
    assert (there.name, there.slots, there.sizes) == ("lambda", 500, (GIB, 3 * GIB))
    assert there.temporary == 2 * GIB, "as it is deployed"
    assert (there.shares_host, there.files, there.gangs) == (False, False, False)
    assert GIB < there.memory_limit < 3 * GIB
    assert 800 < there.time_limit <= 900
    assert (ow.name, ow.slots, ow.files) == ("openwhisk", 30, False)
    assert 100 < ow.time_limit <= 120


def test_parity_mode_takes_the_place_of_local_and_has_the_limits_of_the_provider(
    providers: Callable[[str], ExecutorRegistry],
) -> None:
    cloud, here = providers("cloud")["local"].capabilities, providers("here")["local"].capabilities
    assert (cloud.name, cloud.slots, cloud.sizes) == ("lambda", 3, (GIB // 2, 2 * GIB))
    assert (cloud.shares_host, cloud.gangs, cloud.temporary) == (False, False, 512 * MIB)
    assert cloud.time_limit == providers("cloud")["lambda"].capabilities.time_limit
    assert not cloud.files, "with a store that the provider reaches, files of this machine are refused here too"
    assert (here.name, here.files) == ("openwhisk", True)


def test_parity_mode_has_no_memory_of_its_own(providers: Callable[[str], ExecutorRegistry]) -> None:
    with pytest.raises(UsageError, match="the sizes of the functions say it"):
        providers("wrong")["local"]


def test_plug_in_is_one_object_of_an_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[Any] = []

    def open_(settings: Any, place: Place) -> Executor:
        opened.append((settings, place.store))
        return SimpleNamespace(capabilities=ALONE)

    plugin = SimpleNamespace(settings=lambda table: dict(table), open=open_)
    monkeypatch.setitem(sys.modules, "a_plugin", plugin)
    monkeypatch.setitem(sys.modules, "no_plugin", SimpleNamespace())
    points = [EntryPoint(name, f"{module}", "treadle.executors") for name, module in POINTS.items()]
    monkeypatch.setattr(places_module, "entry_points", lambda group: points)
    place = Place("memory://", "", "")
    made = ExecutorRegistry({"mine": {"kind": "theirs", "size": 3}}, place)
    assert made["mine"].capabilities == ALONE
    assert opened == [({"size": 3}, "memory://")]
    for name, what in (("empty", "is no kind of executor"), ("gone", "cannot be imported")):
        with pytest.raises(UsageError, match=what):
            find_kind(name)


POINTS = {"theirs": "a_plugin", "empty": "no_plugin", "gone": "a_module_that_is_not_there"}
