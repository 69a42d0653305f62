"""The number of strangers that a listener keeps, and the order and time of their removal."""

from __future__ import annotations

import resource
import subprocess
import sys

import pytest

from treadle.primitives.wire.unauthenticated import GRACE, Strangers, allowance


def test_oldest_stranger_goes_first_once_it_has_had_its_grace() -> None:
    strangers: Strangers[str] = Strangers(2, 10.0)
    strangers.add("a", 0.0)
    strangers.add("b", GRACE / 2)
    assert strangers.past_grace(GRACE / 2) is None
    assert strangers.next_grace(GRACE / 2) == pytest.approx(GRACE / 2)
    assert strangers.past_grace(GRACE) == "a"
    assert len(strangers) == 1
    assert strangers.past_grace(GRACE) is None


def test_stranger_expires_at_its_time_and_no_other_does() -> None:
    strangers: Strangers[str] = Strangers(10, 5.0)
    for number, name in enumerate("abc"):
        strangers.add(name, float(number))
    assert strangers.due == 5.0
    assert strangers.expire(6.0) == ["a", "b"]
    assert strangers.due == 7.0
    strangers.remove("c")
    assert strangers.due == float("inf")
    assert strangers.expire(100.0) == []


def test_stranger_keeps_its_place_when_it_is_added_again() -> None:
    strangers: Strangers[str] = Strangers(10, 5.0)
    strangers.add("a", 0.0)
    strangers.add("b", 1.0)
    strangers.add("a", 2.0)
    assert strangers.oldest() == "a"
    strangers.add("a", 3.0)
    assert strangers.oldest() == "b"


def test_allowance_leaves_most_descriptors_for_other_work() -> None:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert allowance(10**9) == soft // 8
    assert allowance(10**9, parts=4) == soft // 4
    assert allowance(9) == 9


def test_descriptor_limit_is_raised_to_the_hard_one_and_not_beyond() -> None:
    code = """
import resource
from treadle.primitives.wire.unauthenticated import raise_descriptor_limit
resource.setrlimit(resource.RLIMIT_NOFILE, (100, 300))
raise_descriptor_limit()
raise_descriptor_limit()
print(resource.getrlimit(resource.RLIMIT_NOFILE))
"""
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "(300, 300)\n"
