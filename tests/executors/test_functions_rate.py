"""The rate of calls: a state machine without a clock."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.executors.functions.rate_limiter import Rate, RateLimiter


def calls(rate: Rate, since: float, until: float) -> list[float]:
    """The times of calls by a caller that always has another one."""
    made, clock = [], since
    while (clock := clock + rate.due(clock)) < until:
        rate.made(clock)
        made.append(clock)
    return made


def test_calls_are_spread_by_the_rate() -> None:
    made = calls(Rate(10, add=0), 0, 10)
    assert 99 <= len(made) <= 101
    assert min(b - a for a, b in itertools.pairwise(made)) >= 0.099


def test_the_rate_grows_by_a_constant_each_second_while_it_holds_calls_back() -> None:
    rate = Rate(10, add=5)
    calls(rate, 0, 4)
    assert 28 <= rate.now <= 31


def test_a_rate_that_is_not_used_does_not_grow() -> None:
    rate = Rate(10, add=5)
    for second in range(100):
        rate.made(float(second))
    assert rate.now == 10


def test_a_throttled_call_halves_the_rate_once_for_all_calls_made_before() -> None:
    rate = Rate(64, add=0)
    made = calls(rate, 0, 1)
    for moment in made:
        rate.throttled(moment, 1.0)
    assert rate.now == 32
    rate.made(1.5)
    rate.throttled(1.5, 1.6)
    assert rate.now == 16


def test_a_run_that_waits_for_a_provider_says_so_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    clock = [0.0]
    gate = RateLimiter(Rate(10), lambda: clock[0])
    for clock[0] in (0.0, 1.0, 59.0, 60.0, 61.0):
        gate.throttled(clock[0], "TooManyRequestsException", 0.0)
    assert [record.getMessage() for record in caplog.records] == [
        "calls are refused (TooManyRequestsException); 5.0 are made a second now",
        "calls are refused (TooManyRequestsException); 1.0 are made a second now",
    ]


def test_no_call_is_made_before_the_provider_said() -> None:
    rate = Rate(100)
    rate.made(0.0)
    rate.throttled(0.0, 0.1, retry_after=3.0)
    assert rate.due(0.1) == 3.0


@given(st.floats(5, 300), st.floats(1, 1000), st.integers(0, 1000))
def test_rate_converges_to_the_limit_of_a_provider(capacity: float, start: float, seed: int) -> None:
    """The provider accepts `capacity` calls in each second. Any start rate converges."""
    rate = Rate(start, add=max(1.0, capacity / 10), least=1, most=5000)
    taken: dict[int, int] = {}
    randomly = random.Random(seed)
    clock, refused = 0.0, 0
    while (clock := clock + rate.due(clock)) < 60:
        rate.made(clock)
        second = int(clock)
        if taken.get(second, 0) < capacity:
            taken[second] = taken.get(second, 0) + 1
        else:
            refused += second >= 30
            rate.throttled(clock, clock + randomly.uniform(0, 0.05))
    late = [taken.get(second, 0) for second in range(30, 60)]
    assert sum(late) >= 0.6 * 30 * capacity - 30
    assert refused <= 0.25 * sum(late) + 30


@given(st.lists(st.tuples(st.floats(0, 5), st.booleans(), st.floats(0, 2)), max_size=60))
def test_the_rate_stays_within_its_bounds_and_never_waits_for_ever(steps: list[tuple[float, bool, float]]) -> None:
    rate = Rate(20, add=50, least=2, most=90)
    clock = 0.0
    for pause, refused, after in steps:
        clock += pause + rate.due(clock + pause)
        rate.made(clock)
        if refused:
            rate.throttled(clock, clock, after)
        assert 2 <= rate.now <= 90
        assert rate.due(clock) <= max(after, 0.5) + 1e-9
