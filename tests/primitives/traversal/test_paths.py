from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from properties.profiles import examples

from treadle.primitives.traversal import Paths


def test_a_pair_that_never_failed_may_try() -> None:
    assert Paths().may_try("a", "b", 0.0)


def test_a_failed_pair_is_remembered_in_either_order() -> None:
    paths = Paths(first=10.0)
    assert paths.failed("b", "a", 100.0) == 110.0
    assert not paths.may_try("a", "b", 109.9)
    assert not paths.may_try("b", "a", 109.9)
    assert paths.may_try("a", "b", 110.0)
    assert paths.may_try("a", "c", 100.0)


def test_pauses_double_up_to_the_longest() -> None:
    paths = Paths(first=10.0, longest=45.0)
    now, pauses = 0.0, []
    for _ in range(4):
        until = paths.failed("a", "b", now)
        pauses.append(until - now)
        now = until
    assert pauses == [10.0, 20.0, 40.0, 45.0]


def test_both_sides_reporting_one_failure_count_once() -> None:
    paths = Paths(first=10.0)
    assert paths.failed("a", "b", 0.0) == paths.failed("b", "a", 0.5) == 10.0
    assert paths.failed("a", "b", 10.0) == 30.0


def test_an_opened_path_is_forgiven() -> None:
    paths = Paths(first=10.0)
    paths.failed("a", "b", 0.0)
    paths.opened("b", "a")
    assert paths.may_try("a", "b", 0.0)
    assert paths.failed("a", "b", 0.0) == 10.0


@examples(100)
@given(st.lists(st.tuples(st.integers(0, 50), st.floats(0, 500)), max_size=200))
def test_memory_holds_only_recent_pairs(failures: list[tuple[int, float]]) -> None:
    paths = Paths(first=10.0, longest=100.0)
    now, latest = 0.0, {}
    for pair, pause in failures:
        now += pause
        latest[pair] = paths.failed(f"a{pair}", "b", now)
        assert latest[pair] <= now + 100.0
        assert len(paths) == sum(now < until + 100.0 for until in latest.values())
