"""Users' schemas and expressions end within their budget for any data, and the next evaluation works."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from treadle.dsl.evaluation import EvaluatorLost, Unfit, evaluate_within_budget, jobs, pool
from treadle.dsl.evaluation.budget import SMALL, is_small
from treadle.primitives.errors import UsageError

UNIQUE = {"uniqueItems": True}
MANY = [{"n": number} for number in range(20_000)]
BACKTRACKING = {"pattern": "^(a+)+$"}
BRANCHES = {
    "$ref": "#/$defs/n0",
    "$defs": {
        **{f"n{k}": {"anyOf": [{"$ref": f"#/$defs/n{k + 1}"}, {"$ref": f"#/$defs/n{k + 1}"}]} for k in range(40)},
        "n40": False,
    },
}


@pytest.fixture(autouse=True)
def workers() -> Iterator[None]:
    yield
    pool.POOL.close()


def check(schema: Any, data: Any) -> None:
    evaluate_within_budget(jobs.check, json.dumps(schema).encode(), data, always=True)


@pytest.mark.parametrize(
    ("schema", "data"),
    [(UNIQUE, MANY), (BACKTRACKING, "a" * 100 + "!"), (BRANCHES, 1)],
    ids=["quadratic", "backtracking", "exponential"],
)
def test_schema_ends_within_its_budget(schema: Any, data: Any) -> None:
    with pytest.raises(Unfit, match=r"schema: timed out: .* took more than 2 s of processor time"):
        check(schema, data)
    check({}, data)


def test_filter_ends_within_its_budget_on_large_data() -> None:
    condition = " && ".join(["event==event"] * 90)
    env = {"event": {"data": [[number] for number in range(200_000)]}}
    with pytest.raises(Unfit, match="filter: timed out"):
        evaluate_within_budget(jobs.holds, condition, env)


def test_evaluation_gives_the_same_value_in_a_worker_and_here() -> None:
    env = {"event": {"data": {"n": 10**400, "list": [1.5, None, True, "ä"]}}}
    for job, arguments in [
        (jobs.holds, ("size(event.data.list) == 4", env)),
        (jobs.fill, ({"a": "${{ event.data }}", "b": ["x ${{ event.data.list }}"]}, env)),
        (jobs.fill, ({"a": "${{ event.data }}"}, env)),
        (jobs.identity, ("event.data.n", env)),
        (jobs.identity, ("event.data.list", env)),
        (jobs.schema_defect, (b'{"type": "nonsense"}',)),
        (jobs.check, (b'{"type": "string"}', 5)),
        (jobs.holds, ("((", env)),
    ]:
        assert outcome(job, arguments, always=True) == outcome(job, arguments, always=False)


def outcome(job: Any, arguments: tuple[Any, ...], *, always: bool) -> Any:
    try:
        return evaluate_within_budget(job, *arguments, always=always)
    except UsageError as error:
        return isinstance(error, Unfit), error.message, error.hint


def test_evaluation_is_tried_again_when_a_worker_was_killed() -> None:
    check({}, 1)
    (worker,) = pool.POOL._idle  # private: the pool shows no workers
    os.kill(worker._process.pid, signal.SIGKILL)  # private: the test kills a worker
    check({}, 1)


def test_evaluation_gives_no_verdict_when_workers_do_not_answer() -> None:
    check({}, 1)
    (worker,) = pool.POOL._idle
    worker._socket.settimeout(0.2)  # private: the time limit is not a setting
    os.kill(worker._process.pid, signal.SIGSTOP)
    with pytest.raises(EvaluatorLost, match="did not end"):
        worker.ask(b"x")


def test_pool_has_no_more_workers_than_its_limit_however_many_ask() -> None:
    threads = [threading.Thread(target=check, args=(BACKTRACKING, "a")) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert 1 <= len(pool.POOL._idle) <= pool.MOST
    assert pool.POOL._count == len(pool.POOL._idle)  # private: the pool shows no workers


@pytest.mark.parametrize("small", [0, "a", [0] * (SMALL // 2), {"a": {"b": "c"}}])
def test_small_data_is_evaluated_here(small: Any) -> None:
    assert is_small(small)
    evaluate_within_budget(jobs.holds, "event == event", {"event": small})
    assert pool.POOL._count == 0


@pytest.mark.parametrize("large", [[0] * SMALL, "a" * 2**20, [[[0] * 400] * 3], {str(n): n for n in range(SMALL)}])
def test_large_data_is_not_small(large: Any) -> None:
    assert not is_small(large)
