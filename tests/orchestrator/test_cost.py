"""The usage and cost of a run: computed by hand, estimated before it, and measured after it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from orchestrator.broken_runs import Broken
from orchestrator.conftest import Breaking
from orchestrator.record_histories import M, mapped, spec

from treadle.cli.view.costs import Running, money, read_assumed, supposing
from treadle.client.attempt_logs import LogFollower
from treadle.dsl.model import Spec
from treadle.executors.interface import Capabilities
from treadle.orchestrator.cost.bill import Bill, BillLine, bill
from treadle.orchestrator.cost.estimate import Assumed, elapsed, estimate
from treadle.orchestrator.cost.measured import Spending, Worked, idle_line
from treadle.orchestrator.cost.prices import Prices, load_prices
from treadle.orchestrator.cost.usage import Usage, memory_given, total
from treadle.orchestrator.environment.home import Home
from treadle.orchestrator.plan.plan import Plan
from treadle.orchestrator.planner import RunLocation, make_plan
from treadle.primitives.errors import UsageError

MIB, GIB = 1 << 20, 1 << 30
LOCAL = Capabilities("local", 4, shares_host=True)
FUNCTIONS = Capabilities(
    "lambda",
    1000,
    shares_host=False,
    time_limit=900,
    files=False,
    sizes=(GIB, 2 * GIB),
    memory_limit=2 * GIB - 128 * MIB,
)
SITE = RunLocation({"local": LOCAL, "fns": FUNCTIONS}, GIB, "s3://bucket")


@pytest.fixture
def prices(tmp_path: Path) -> Prices:
    return load_prices(Home(tmp_path / "home", {}))


def plan(stages: Mapping[str, Any], assumed: int = 0, **document: Any) -> Plan:
    made = Spec.model_validate({"apiVersion": "treadle/v1", "name": "w", "stages": stages, **document})
    site = msgspec.structs.replace(SITE, assumed_bytes=assumed)
    return make_plan(made, {}, {"id": "r", "startTime": "2026-01-01T00:00:00Z"}, {}, Path("/nowhere"), site)


def lines_of(found: Plan, **assumed: Any) -> dict[str, BillLine]:
    return {line.node: line for line in estimate(found, Assumed(**assumed))}


# -- units and prices ----------------------------------------------------------------------------------------------


def test_million_calls_of_a_second_cost_the_listed_price(prices: Prices) -> None:
    """AWS's own example: 1 GB for a million seconds costs 16.67 USD, a million requests cost 0.20 USD."""
    usage = Usage(1_000_000, 1_000_000.0, 0.0, 1_000_000.0)
    [line] = bill([BillLine("n", "fns", "lambda", usage)], prices, "s3://bucket").lines
    assert line.cost == pytest.approx(0.20 + 16.6667 * 1.0005, rel=1e-4)


def test_requests_to_s3_cost_and_those_to_files_do_not(prices: Prices) -> None:
    usage = Usage(puts=1000, gets=10_000)
    line = BillLine("n", "local", "local", usage)
    assert bill([line], prices, "s3://bucket").cost == pytest.approx(0.005 + 0.004)
    assert bill([line], prices, "file:///store").cost == 0


def test_same_units_on_every_executor_at_their_own_prices(prices: Prices) -> None:
    usage = Usage(10, 100.0, 90.0, 50.0)
    made = bill([BillLine("a", "x", "local", usage), BillLine("b", "y", "lambda", usage)], prices, "file:///store")
    assert [line.usage for line in made.lines] == [usage, usage]
    assert made.lines[0].cost == 0 < made.lines[1].cost
    assert made.usage == usage + usage


def test_prices_of_the_home_take_the_place_of_our_own(tmp_path: Path) -> None:
    home = Home(tmp_path / "home", {})
    head = 'currency = "EUR"\ndate = "2027-01-01"\nsource = "a contract"\naction = 0.001\n'
    own = head + "[executors.local]\ncpu_second = 0.5\n"
    (home.path / "prices.toml").write_text(own)
    made = bill([BillLine("n", "", "local", Usage(cpu_seconds=2.0, actions=3))], load_prices(home), "file:///store")
    assert (made.cost, made.currency, made.prices) == (1.003, "EUR", "2027-01-01, a contract")
    (home.path / "prices.toml").write_text(own + "cpu_secnd = 1\n")
    with pytest.raises(UsageError, match="cpu_secnd"):
        load_prices(home)
    (home.path / "prices.toml").write_bytes(head.encode("utf-16"))
    with pytest.raises(UsageError, match=r"prices\.toml: .*utf-8"):
        load_prices(home)


def test_memory_is_the_size_of_the_function_that_holds_it() -> None:
    assert memory_given(FUNCTIONS, 0) == GIB
    assert memory_given(FUNCTIONS, GIB - 128 * MIB) == GIB
    assert memory_given(FUNCTIONS, GIB) == 2 * GIB
    assert memory_given(FUNCTIONS, 0, peak=GIB + 1) == 2 * GIB, "it grew after running out"
    assert (memory_given(LOCAL, 5, 3), memory_given(LOCAL, 0, 3)) == (5, 3)


@given(st.lists(st.builds(Usage, *[st.integers(0, 9)] * 6, st.dictionaries(st.sampled_from("ab"), st.integers(0, 9)))))
def test_usages_add_up(parts: list[Usage]) -> None:
    whole = total(parts)
    assert whole.attempts == sum(one.attempts for one in parts)
    assert sum(whole.moved.values()) == sum(sum(one.moved.values()) for one in parts)


# -- estimates -----------------------------------------------------------------------------------------------------


def test_ten_thousand_functions_by_hand() -> None:
    """64 MiB each at 64 MiB a second, in and out: 2 s plus half a second to start, in ten waves of a thousand."""
    given = {"uri": "s3://data/*", "format": "text", "split": "64MiB"}
    found = lines_of(plan({"a": mapped(given, executor="fns")}, 10_000 * 64 * MIB), rate=64 * MIB)
    line = found["a"]
    assert (line.partitions, line.waves, line.late) == (10_000, 10, False)
    assert line.elapsed == pytest.approx(25.0)
    usage = line.usage
    assert (usage.attempts, usage.seconds, usage.gigabyte_seconds) == (10_000, 25_000.0, 25_000.0)
    assert usage.gets == 10_000
    assert usage.puts == 10_000 + 2 * 10_000 + 2 + 500, "a block, a call and its reports each; the ledger"
    assert usage.actions == 1 + 25


def test_consumers_of_a_shuffle_read_a_part_of_each_block() -> None:
    stages = {
        "a": mapped({"range": 40, "partitions": 40}, executor="fns"),
        "g": {"type": "shuffle", "input": "a", "by": "key", "partitions": 7, "executor": "fns"},
        "c": {"type": "reduce", "input": "g", "per": "key", "combine": f"{M}:add", "executor": "fns"},
    }
    found = lines_of(plan(stages))
    assert found["c"].usage.gets == 7 * 40
    assert found["c"].usage.moved == {"store": found["g"].usage.attempts * 16}


def test_blocks_in_shared_memory_count_no_requests() -> None:
    found = lines_of(plan({"a": mapped({"range": 8, "partitions": 4}), "b": mapped("a", timeout="1s")}))
    assert found["a"].usage.puts == 2 + 4, "the ledger alone"
    assert (found["b"].usage.gets, list(found["b"].usage.moved)) == (0, ["host"])


def test_a_stage_that_leaves_nothing_but_its_files_puts_a_part_for_each_partition() -> None:
    written = mapped({"range": 8, "partitions": 8}, executor="fns", output={"uri": "s3://out", "format": "jsonl"})
    calls, ledger = 2 * 8, 2 + 8
    assert lines_of(plan({"a": written}))["a"].usage.puts == 8 + calls + ledger


def test_assumed_output_of_a_stage_scales_its_successors() -> None:
    given = {"uri": "s3://data/*", "format": "text"}
    document = {"a": mapped(given, executor="fns"), "b": mapped("a", executor="fns", timeout="1m")}
    full, small = (lines_of(plan(document, GIB), **more) for more in ({}, {"made": {"a": MIB}}))
    assert full["b"].usage.moved == {"store": GIB}
    assert small["b"].usage.moved == {"store": MIB}
    assert small["b"].usage.seconds < full["b"].usage.seconds


def test_assumption_for_a_stage_holds_for_its_tasks_and_successors() -> None:
    stages = {
        "a": mapped({"uri": "s3://data/*", "format": "text"}, executor="fns"),
        "b": mapped("a", executor="fns"),
        "c": mapped("b", executor="fns", timeout="1m"),
        "d": mapped("c", executor="fns", timeout="2m"),
    }
    found = lines_of(plan(stages, GIB), made={"a": MIB})
    assert [found[name].usage.moved for name in "cd"] == [{"store": MIB}, {"store": MIB}]


def test_task_beyond_the_time_of_a_function_is_marked() -> None:
    document = {"a": {"type": "reduce", "input": "b", "per": "all", "uses": "m:f", "executor": "fns"}}
    document["b"] = mapped({"uri": "s3://data/*", "format": "text"}, executor="fns")
    assert [line.late for line in lines_of(plan(document, 1000 * GIB)).values()] == [False, False, True]


def test_body_of_a_loop_counts_for_each_iteration() -> None:
    loop = {
        "type": "loop",
        "state": {"x": "a"},
        "maxIterations": 5,
        "stages": {"inner": mapped("state.x")},
        "next": {"x": "inner"},
    }
    found = lines_of(plan({"a": mapped({"range": 8, "partitions": 4}), "l": loop}))
    once = lines_of(plan({"a": mapped({"range": 8, "partitions": 4}), "l": {**loop, "maxIterations": 1}}))
    assert found["inner"].usage.attempts == 5 * once["inner"].usage.attempts
    assert found["inner"].elapsed == pytest.approx(5 * once["inner"].elapsed)
    assert found["inner"].usage.actions == once["inner"].usage.actions, "a loop is one activity"


def test_run_takes_as_long_as_its_longest_way() -> None:
    source = {"range": 8, "partitions": 8}
    stages = {"a": mapped(source), "b": mapped(source), "c": mapped("b", needs=["a"])}
    found = plan(stages)
    lines = estimate(found, Assumed(start=1.0))
    assert elapsed(found, lines) == pytest.approx(4.0, abs=0.01), "8 over 4 slots, twice; a and b side by side"


def test_run_time_includes_the_slower_input_loops_and_child_workflows() -> None:
    eight = mapped({"range": 8, "partitions": 8})
    loop = {"type": "loop", "state": {"x": "a"}, "maxIterations": 5, "stages": {"in": mapped("state.x")}}
    inner = {"apiVersion": "treadle/v1", "name": "inner", "stages": {"b": eight, "c": mapped("b", timeout="1m")}}
    stages = {
        "a": mapped({"range": 4, "partitions": 4}),
        "eight": eight,
        "both": mapped("a", needs=["eight"], timeout="1m"),
        "l": {**loop, "next": {"x": "in"}},
        "sub": {"type": "workflow", "uses": inner, "needs": ["l"]},
        "c": mapped({"range": 4, "partitions": 4}, needs=["sub"]),
    }
    for last, seconds in (("both", 2 + 1), ("l", 1 + 5), ("sub", 1 + 5 + 2 + 2), ("c", 11)):
        found = plan({name: stages[name] for name in [*stages][: [*stages].index(last) + 1]})
        assert elapsed(found, estimate(found, Assumed(start=1.0))) == pytest.approx(seconds, abs=0.01), last


def test_a_barrier_takes_nothing_and_assumed_slots_make_the_waves() -> None:
    eight = mapped({"range": 8, "partitions": 8})
    found = plan({"a": eight, "wait": {"type": "barrier", "input": "a"}, "b": mapped("wait")})
    lines = estimate(found, Assumed(start=1.0, slots=2))
    assert [(line.node, line.waves) for line in lines] == [("(run)", 0), ("a", 4), ("b", 4)]
    assert elapsed(found, lines) == pytest.approx(8.0, abs=0.01)
    waves = [lines_of(plan({"a": {**eight, "maxConcurrency": most}}))["a"].waves for most in (1, 3, 9)]
    assert waves == [8, 3, 2], "never more at once than there are slots"


def test_a_run_and_each_workflow_in_it_are_three_actions() -> None:
    inner = {"apiVersion": "treadle/v1", "name": "inner", "stages": {"b": mapped({"range": 1})}}
    lines = lines_of(plan({"sub": {"type": "workflow", "uses": inner}}))
    assert (lines["(run)"].usage, lines["sub"].usage) == (Usage(actions=3), Usage(actions=3))


class Hidden(dict[str, Capabilities]):
    """Capabilities with resident functions, as the registry has them: found, and not listed."""

    def __missing__(self, name: str) -> Capabilities:
        return self[{"fns/members": "fns"}[name]]


def test_assumptions_are_read_with_their_units() -> None:
    found = read_assumed(["bytes=1.5TB", "slots=10000", "rate=50MiB", "start=250ms", "sample=2GB"])
    assert found == Assumed(1_500 * 10**9, 10_000, 50 * MIB, 0.25, {"sample": 2 * 10**9})
    assert supposing(SITE, found).executors["fns"].slots == 10_000
    hidden = msgspec.structs.replace(SITE, executors=Hidden(SITE.executors))
    resized = supposing(hidden, found).executors
    assert list(resized) == ["local", "fns"]
    assert resized["fns/members"].slots == 10_000, "it is there without being listed"
    assert resized.get("local/members") is None
    for wrong in ("bytes=12", "slots=many", "rate=0MiB", "sample"):
        with pytest.raises(UsageError, match="--assume"):
            read_assumed([wrong])


@pytest.mark.parametrize(
    ("cost", "text"), [(0.0, "0 X"), (12.345, "12.35 X"), (1234.5, "1,234.50 X"), (0.00123, "0.0012 X")]
)
def test_money_shows_digits_that_count(cost: float, text: str) -> None:
    assert money(cost, "X") == text


# -- measured usage ------------------------------------------------------------------------------------------------


def bill_of(run: Broken, prices: Prices) -> Bill:
    files = run.engine(run.executor).site.files(run.run)
    found = files.find(Plan, "plan")
    assert found is not None
    lines = Spending(files, found, {}).lines(LogFollower(files).new(), 35, 2.0)
    return bill(lines, prices, "s3://bucket")


def test_every_attempt_of_a_run_is_counted(breaking: Breaking, prices: Prices, tmp_path: Path) -> None:
    """The second stage fails at first. Its flag is set later."""
    flag = tmp_path / "flag"
    document = spec(
        first=mapped({"range": 8, "partitions": 8}),
        only=mapped("first", "needs_flag", needs=["first"], **{"with": {"flag": str(flag)}}),
    )
    run = breaking(document)
    run.go()
    before = {line.node: line.usage for line in bill_of(run, prices).lines}
    assert before["first"].attempts >= 8
    assert before["only"].attempts >= 1, "failed attempts cost too"
    flag.touch()
    breaking(spec(other=mapped({"range": 8, "partitions": 8}))).go()  # workers cache the blocks of one run only
    run.go(resumption=2)
    made = bill_of(run, prices)
    after = {line.node: line.usage for line in made.lines}
    assert after["first"] == before["first"]
    assert after["only"].attempts >= before["only"].attempts + 8
    assert after["only"].moved.keys() == {"store"}
    assert after["only"].puts >= 8
    assert after["(run)"].actions == math.ceil(35 / 6) + 2
    assert made.cost == pytest.approx(sum(line.cost for line in made.lines))
    assert made.cost > 0


def test_iterations_of_a_loop_are_one_line_for_each_segment(breaking: Breaking, prices: Prices) -> None:
    loop = {
        "type": "loop",
        "state": {"x": "first"},
        "maxIterations": 3,
        "stages": {"inner": mapped("state.x")},
        "next": {"x": "inner"},
    }
    run = breaking(spec(first=mapped({"range": 4, "partitions": 4}), l=loop))
    run.go()
    found = {line.node: line for line in bill_of(run, prices).lines}
    assert found["inner"].usage.attempts == 12
    assert found["inner"].partitions == 4


def test_a_small_broadcast_makes_its_readers_no_smaller() -> None:
    files = {"uri": "s3://data/*", "format": "text"}
    stages = {
        "few": mapped(files, executor="fns"),
        "all": {"type": "broadcast", "input": "few", "executor": "fns", "limit": "1GiB"},
        "a": {**mapped(files, executor="fns"), "with": {"value": "${{ stages.all }}"}},
        "b": mapped("a", executor="fns", timeout="1m"),
    }
    assert lines_of(plan(stages, GIB), made={"few": MIB})["b"].usage.moved == {"store": GIB}


def test_workers_that_stay_cost_while_they_wait(breaking: Breaking, prices: Prices) -> None:
    """Between their tasks and after the last one, for as long as a worker without a task is kept."""
    attempts = [
        Worked("a", 0.0, 10.0, GIB),
        Worked("a", 15.0, 20.0, 2 * GIB),
        Worked("a", 100.0, 101.0, GIB),
        Worked("b", 0.0, 120.0, GIB),
    ]
    line = idle_line("fns/members", "lambda", attempts, 30.0, 125.0)
    assert line is not None
    assert line.node == "(idle, fns/members)"
    assert line.usage == Usage(seconds=5 + 30 + 24 + 5, gigabyte_seconds=5 + 2 * 30 + 24 + 5)
    assert bill([line], prices, "file:///store").cost > 0
    assert idle_line("fns/members", "lambda", attempts[3:], 30.0, 120.0) is None
    run = breaking(spec(first=mapped({"range": 8, "partitions": 8})))
    run.go()
    files = run.engine(run.executor).site.files(run.run)
    found = files.find(Plan, "plan")
    assert found is not None
    assert "(idle" not in {line.node[:5] for line in Spending(files, found, {}).lines()}
    can = msgspec.structs.replace(found.executors["local"], kept=0.001)
    lines = Spending(files, msgspec.structs.replace(found, executors={"local": can}), {}).lines()
    assert lines[-1].node == "(idle, local)"
    assert 0 < lines[-1].usage.seconds <= 8 * 0.001 + 0.0001


def test_watched_run_shows_its_running_total_where_something_has_a_price(breaking: Breaking, tmp_path: Path) -> None:
    run = breaking(spec(first=mapped({"range": 8, "partitions": 8})))
    home = Home(tmp_path / "home", {})
    files = run.engine(run.executor).site.files(run.run)
    settings = SimpleNamespace(store="file:///store")
    env: Any = SimpleNamespace(home=home, settings=settings, files=lambda _: files, plan_site=lambda: SITE)
    found = files.find(Plan, "plan")
    run.go()
    free = Running(env, run.run)
    assert free.text(found) == "", "local slots cost nothing"
    head = 'currency = "EUR"\ndate = "d"\nsource = "s"\n'
    (home.path / "prices.toml").write_text(head + "[executors.local]\ncall = 0.5\n")
    watched = Running(env, run.run)
    assert watched.text(None) == "", "a run that no driver has opened yet"
    assert watched.text(found) == "4.00 EUR"
    assert free.text(found) == "", "not every look asks for prices"
    (home.path / "prices.toml").write_text(head + "[executors.local]\ncall = 1.0\n")
    assert watched.text(found) == "4.00 EUR", "not every look lists the ledgers"
    assert watched.text(found, last=True) == "8.00 EUR"
