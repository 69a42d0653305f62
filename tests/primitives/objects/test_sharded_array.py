"""Sharded arrays beside NumPy, over keepers that are killed, and from several processes."""

from __future__ import annotations

import gc
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from eventually import eventually
from hypothesis import given
from hypothesis import strategies as st
from primitives.objects.local import Local

from treadle.primitives.errors import UsageError
from treadle.primitives.objects import (
    Adagrad,
    Adam,
    GradientDescent,
    Keepers,
    ObjectMissing,
    ShardedArray,
    StaleClock,
    UpdateRule,
    sharded_array,
)

ROWS = 23
PUSHER = Path(__file__).parent / "callers.py"


@pytest.fixture(scope="module")
def keepers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Keepers]:
    with Keepers(tmp_path_factory.mktemp("arrays"), shards=3, keepers=2) as found:
        yield found


@pytest.fixture(scope="module", params=[1, 3, 5])
def array(request: pytest.FixtureRequest, keepers: Keepers) -> ShardedArray:
    return keepers.array(f"of {request.param} parts", (ROWS, 2), dtype="float64", parts=request.param)


def at() -> st.SearchStrategy[Any]:
    bounds = st.none() | st.integers(-ROWS, ROWS)
    return st.lists(st.integers(0, ROWS - 1), max_size=2 * ROWS) | st.builds(slice, bounds, bounds)


@given(st.lists(st.tuples(st.sampled_from(["push", "put"]), at(), st.integers(1, 9)), max_size=5), at())
def test_array_changes_as_one_in_memory(array: ShardedArray, steps: list[tuple[str, Any, int]], last: Any) -> None:
    expected = array.pull()
    for name, indices, factor in steps:
        values = factor * np.arange(2.0 * len(np.arange(ROWS)[indices])).reshape(-1, 2)
        getattr(array, name)(indices, values)
        if name == "push":
            np.add.at(expected, np.asarray(indices, int) if isinstance(indices, list) else indices, values)
        else:
            expected[np.asarray(indices, int) if isinstance(indices, list) else indices] = values
    np.testing.assert_array_equal(array.pull(), expected)
    rows = last if isinstance(last, slice) else np.asarray(last, int)
    np.testing.assert_array_equal(array.pull(last), expected[rows])


def test_many_rows_travel_in_pieces(array: ShardedArray, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharded_array, "_PIECE", 3 * 16)
    shuffled, values = np.random.default_rng(7).permutation(ROWS), np.random.default_rng(8).random((ROWS, 2))
    array.put(slice(None), values)
    np.testing.assert_array_equal(array.pull(), values)
    array.put(shuffled, values)
    np.testing.assert_array_equal(array.pull(shuffled), values)


def test_prefetch_has_the_pushes_before_it_and_none_after_it(array: ShardedArray) -> None:
    array.put(slice(None), 1.0)
    ahead = array.prefetch([3, 22])
    array.put(slice(None), 2.0)
    assert ahead.result().tolist() == [[1, 1], [1, 1]]
    assert ahead.result().tolist() == [[1, 1], [1, 1]], "it may be asked twice"


class _Descent:
    """Independent of the rules: one number, and each step written out."""

    def __init__(self, rule: UpdateRule) -> None:
        self.rule, self.value, self.sum, self.mean, self.steps = rule, 1.0, 0.0, 0.0, 0

    def push(self, gradient: float) -> None:
        rule, self.steps = self.rule, self.steps + 1
        if isinstance(rule, Adagrad):
            self.sum += gradient * gradient
            self.value -= rule.rate * gradient / (np.sqrt(self.sum) + rule.epsilon)
        elif isinstance(rule, Adam):
            self.mean = rule.first * self.mean + (1 - rule.first) * gradient
            self.sum = rule.second * self.sum + (1 - rule.second) * gradient * gradient
            mean, second = self.mean / (1 - rule.first**self.steps), self.sum / (1 - rule.second**self.steps)
            self.value -= rule.rate * mean / (np.sqrt(second) + rule.epsilon)
        else:
            assert isinstance(rule, GradientDescent)
            self.value -= rule.rate * gradient


@pytest.mark.parametrize("rule", [GradientDescent(0.1), Adagrad(0.1), Adam(0.1)], ids=lambda rule: type(rule).__name__)
def test_rule_takes_the_steps_of_its_algorithm(keepers: Keepers, rule: UpdateRule) -> None:
    array = keepers.array(type(rule).__name__, 4, dtype="float64", fill=1.0, rule=rule)
    rows = [_Descent(rule) for _ in range(4)]
    random = np.random.default_rng(3)
    for _ in range(20):
        indices, gradients = random.integers(0, 4, 3), random.normal(size=3)
        array.push(indices, gradients)
        for index in set(indices.tolist()):
            rows[index].push(float(gradients[indices == index].sum()))
    np.testing.assert_allclose(array.pull(), [one.value for one in rows], rtol=1e-12)


def test_error_of_a_push_is_raised_once_by_the_next_call(keepers: Keepers) -> None:
    class Faulty:  # within a function, so that it is sent by value
        kept = 0

        def change(self, pushed: Any) -> Any:
            if (pushed < 0).any():
                raise ValueError("a negative gradient")
            return pushed

    array = keepers.array("faulty", 10, rule=Faulty())
    array.push([1, 9], 5)
    array.push([1, 9], -1)
    with pytest.raises(ValueError, match="a negative gradient"):
        array.flush()
    with pytest.raises(ValueError, match="a negative gradient"):
        array.flush()
    array.flush()  # one error for each of the two parts
    assert array.pull([1, 9]).tolist() == [5, 5]


@pytest.mark.parametrize("indices", [[ROWS], [-1], [0.5], [[1]], slice(0, 9, 2)], ids=str)
def test_indices_that_name_no_rows_are_refused(array: ShardedArray, indices: Any) -> None:
    for method in (array.pull, lambda found: array.push(found, 1)):
        with pytest.raises(IndexError):
            method(indices)


def test_values_of_another_shape_are_refused(array: ShardedArray) -> None:
    before = array.pull()
    for values in (np.ones((3, 2)), np.ones((2, 3)), "text"):
        with pytest.raises(ValueError):
            array.push([1, 2], values)
    np.testing.assert_array_equal(array.pull(), before)


def test_array_with_other_settings_is_refused(keepers: Keepers) -> None:
    keepers.array("same", 100).push([5], [1.5])
    assert keepers.array("same", 100).pull([5]) == [1.5]
    for settings in ({"dtype": "float64"}, {"rule": Adagrad(0.1)}):
        with pytest.raises(UsageError, match="exists, and is"):
            keepers.array("same", 100, **settings)
    with pytest.raises(UsageError, match="exists, and is"):
        keepers.array("same", 101)


def test_array_that_no_part_can_hold_is_refused_with_the_number_of_parts(keepers: Keepers) -> None:
    with pytest.raises(UsageError) as found:
        keepers.array("large", 1 << 26, rule=Adam())
    assert found.value.hint == "Give parts=18 or more."
    for shape, parts in ((0, 1), ((5, 0), 1), (5, -1)):
        with pytest.raises(UsageError, match="at least 1"):
            keepers.array("empty", shape, parts=parts)


def test_parts_use_all_shards(keepers: Keepers) -> None:
    keepers.array("spread", 60, parts=6)
    names = [sharded_array._name(keepers.access, "spread", part) for part in range(6)]  # private: a handle hides names
    assert [keepers.access.shard_of(name) for name in names] == [0, 1, 2, 0, 1, 2]


def test_dropped_array_is_missing(keepers: Keepers) -> None:
    array = keepers.array("gone", 10)
    array.drop()
    with pytest.raises(ObjectMissing):
        array.pull()


def test_pushes_of_processes_count_once_while_keepers_die(tmp_path: Path) -> None:
    """Each process pushes 1 to each row 200 times; the primary of a shard is killed meanwhile."""
    with Keepers(tmp_path, shards=2, replicas=2) as keepers:
        array = keepers.array("sums", 64, dtype="int64")
        pushers = [subprocess.Popen([sys.executable, str(PUSHER), "push"], stdin=subprocess.PIPE) for _ in range(3)]
        for one in pushers:
            assert one.stdin is not None
            with one.stdin:
                one.stdin.write(pickle.dumps(array))
        eventually(lambda: array.pull([0])[0] > 50)
        primary = keepers.access.chain(0).newest().primary
        os.kill(keepers.processes[primary], signal.SIGKILL)
        assert [one.wait(90) for one in pushers] == [0, 0, 0]
        assert array.pull().tolist() == [600] * 64


def test_pushes_arrive_although_their_process_ends_at_once(tmp_path: Path) -> None:
    with Keepers(tmp_path, durability="store") as keepers:
        array = keepers.array("ends", 4, parts=2)
        code = "import pickle, sys; pickle.load(sys.stdin.buffer).push([0, 3], 1)"
        subprocess.run([sys.executable, "-c", code], input=pickle.dumps(array), check=True)
        array.push([0], 1)
    with Keepers(tmp_path, durability="store") as keepers:
        assert keepers.array("ends", 4, parts=2).pull().tolist() == [2, 0, 0, 1]


def test_threads_share_an_array(array: ShardedArray) -> None:
    array.put(slice(None), 0)

    def change() -> None:
        for row in range(ROWS):
            array.push([row], 1)
            assert array.prefetch([row]).result()[0, 0] >= 1

    with ThreadPoolExecutor(4) as pool:
        for one in [pool.submit(change) for _ in range(4)]:
            one.result()
    assert array.pull().tolist() == [[4, 4]] * ROWS


def test_prefetch_outlives_its_array(keepers: Keepers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharded_array, "_PIECE", 3 * 8)
    ahead = keepers.array("gone ahead", 20, dtype="int64", fill=5, parts=2).prefetch()
    gc.collect()
    assert ahead.result().tolist() == [5] * 20


def test_signal_handler_that_calls_an_array_during_a_call_is_refused(keepers: Keepers) -> None:
    array, refused = keepers.array("signalled", 200_000), list[str]()

    def handler(*_: object) -> None:
        try:
            array.pull([1])
        except UsageError as error:
            refused.append(str(error))

    before = signal.signal(signal.SIGALRM, handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
        for _ in range(200):
            assert array.pull([0])[0] == 0
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert refused
    assert array.pull([1])[0] == 0


def test_stale_clock_lets_workers_run_ahead_as_far_as_allowed() -> None:
    it = Local(StaleClock, 2, 1)
    fast, slow = it.session(), it.session()
    assert it.call(fast, "reach", 0, 1) is None
    assert it.call(fast, "reach", 0, 2) is Local.WAITS
    assert it.call(slow, "reach", 1, 1) is None
    assert it.value(fast) is None
    assert it.call(slow, "reach", 1, 1) is None, "a worker that runs again repeats its calls"
    assert it.call(slow, "slowest") == 1
