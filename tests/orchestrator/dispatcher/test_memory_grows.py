"""Memory of attempts in whole runs: it grows after it ran out, with a message, but not where spilling suffices."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from orchestrator.broken_runs import Broken, values
from orchestrator.conftest import Breaking
from orchestrator.record_histories import spec

from treadle.client.attempt_logs import LogFollower, lines_of
from treadle.executors.program import Outcome

M = "orchestrator.memory_functions"
MIB = 1 << 20


def told(run: Broken) -> list[str]:
    """The messages of `treadle logs`."""
    follower = LogFollower(run.engine(run.executor).site.files(run.run))
    return [line for record in follower.new() for line in lines_of(record)]


def test_memory_grows_for_the_partition_that_ran_out_of_it_and_the_log_says_so(breaking: Breaking) -> None:
    stage = {
        "type": "map",
        "input": {"items": [1, 300 * MIB, 2, 3], "partitions": 4},
        "uses": f"{M}:allocate",
        "memory": {"start": "128MiB", "max": "1GiB"},
        "retry": {"maximumAttempts": 3, "initialInterval": "1ms"},
    }
    run = breaking(spec(big=stage))
    found, _ = run.go()
    limits = [bound for (bound,) in values(found, "big")]
    assert limits[1] > 512 * MIB
    assert max(limits[0], *limits[2:]) < 400 * MIB
    (first, second) = [line for line in told(run) if "out of memory" in line]
    assert "it had 128MiB of memory; the next attempt has 256MiB" in first
    assert "it had 256MiB of memory; the next attempt has 512MiB" in second


def test_spilled_partition_needs_no_second_attempt(breaking: Breaking) -> None:
    """60 MB of records in one partition, sorted with 48 MiB."""
    stages: dict[str, Any] = {
        "made": {"type": "map", "input": {"range": 60_000, "partitions": 2}, "uses": f"{M}:reverse"},
        "sorted": {"type": "shuffle", "input": "made", "by": "key", "partitions": 1, "sort": True},
        "checked": {"type": "reduce", "input": "sorted", "per": "partition", "uses": f"{M}:ascending"},
    }
    for name in ("made", "checked"):
        stages[name]["memory"] = "48MiB"
    run = breaking(spec(**stages))
    spilled: list[int] = []

    def see(_segment: str, outcome: Outcome) -> None:
        spilled.append(outcome.spilled)

    found, _ = run.go(see=see)
    assert values(found, "checked") == [[[60_000, True]]]
    assert sum(spilled) > 90 * MIB
    assert not told(run)


def test_task_fits_into_a_new_process_as_into_a_used_one(breaking: Breaking, tmp_path: Path) -> None:
    """Sorting and the last function need NumPy, whose import takes 44 MiB. Parts come from tasks with more memory."""

    def replaced(after: str) -> dict[str, Any]:
        items = [f"{tmp_path}/{after}-{number}" for number in range(2)]
        source = {"input": {"items": items, "partitions": 2}, "needs": [after]}
        retry = {"maximumAttempts": 2, "initialInterval": "1ms"}
        return {"type": "map", "uses": f"{M}:replace_worker", "retry": retry, **source}

    last = {"input": {"range": 4, "partitions": 2}, "needs": ["new"], "uses": "orchestrator.numpy_function:double"}
    stages: dict[str, Any] = {
        "made": {"type": "map", "input": {"range": 60_000, "partitions": 2}, "uses": f"{M}:reverse"},
        "sorted": {"type": "shuffle", "input": "made", "by": "key", "partitions": 1, "sort": True},
        "renewed": replaced("sorted"),
        "checked": {"type": "reduce", "input": "sorted", "per": "partition", "uses": f"{M}:ascending"},
        "new": replaced("checked"),
        "last": {"type": "map", "memory": "16MiB", **last},
    }
    stages["checked"] |= {"memory": "48MiB", "needs": ["renewed"]}
    run = breaking(spec(**stages))
    found, _ = run.go()
    assert values(found, "checked") == [[[60_000, True]]]
    assert values(found, "last") == [[0, 2], [4, 6]]
    assert not [line for line in told(run) if "out of memory" in line]
