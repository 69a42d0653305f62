from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from properties.profiles import examples

from treadle.primitives.hole_punching import Paths


def test_peer_without_failures_may_be_tried() -> None:
    assert Paths().may_try("a", 0.0)


def test_a_failure_is_remembered_for_its_member() -> None:
    paths = Paths(first=10.0)
    assert paths.failed("a", 100.0) == 110.0
    assert not paths.may_try("a", 109.9)
    assert paths.may_try("a", 110.0)
    assert paths.may_try("b", 100.0)


def test_pauses_double_up_to_the_longest() -> None:
    paths = Paths(first=10.0, longest=45.0)
    now, pauses = 0.0, []
    for _ in range(4):
        until = paths.failed("a", now)
        pauses.append(until - now)
        now = until
    assert pauses == [10.0, 20.0, 40.0, 45.0]


def test_a_failure_told_twice_counts_once() -> None:
    paths = Paths(first=10.0)
    assert paths.failed("a", 0.0) == paths.failed("a", 0.5) == 10.0
    assert paths.failed("a", 10.0) == 30.0


def test_an_opened_path_is_forgiven() -> None:
    paths = Paths(first=10.0)
    paths.failed("a", 0.0)
    paths.opened("a")
    assert paths.may_try("a", 0.0)
    assert paths.failed("a", 0.0) == 10.0


@examples(100)
@given(st.lists(st.tuples(st.integers(0, 50), st.floats(0, 500)), max_size=200))
def test_memory_holds_only_recent_members(failures: list[tuple[int, float]]) -> None:
    paths = Paths(first=10.0, longest=100.0)
    now, latest = 0.0, {}
    for member, pause in failures:
        now += pause
        latest[member] = paths.failed(f"a{member}", now)
        assert latest[member] <= now + 100.0
        assert len(paths) == sum(now < until + 100.0 for until in latest.values())
