"""Wanted resources compared with existing ones. Secrets are not shown."""

from __future__ import annotations

from treadle.orchestrator.deployment.desired_state import Change, compare, surplus


def test_what_is_not_there_is_new() -> None:
    assert compare("function f", {"MemorySize": 1}, None) == Change("function f", "new")


def test_what_is_as_wanted_is_unchanged_whatever_else_it_has() -> None:
    assert compare("f", {"MemorySize": 1}, {"MemorySize": 1, "Arn": "x"}).did == "unchanged"


def test_each_difference_is_told() -> None:
    found = compare("f", {"Timeout": 900, "Handler": "h"}, {"Timeout": 60})
    assert found == Change("f", "changed", ("Timeout: 60 -> 900", "Handler: nothing -> h"))


def test_values_of_variables_are_never_told() -> None:
    wanted = {"variables": {"A": "new secret", "B": "same", "C": "fresh"}}
    found = {"variables": {"A": "old secret", "B": "same", "D": "gone"}}
    change = compare("f", wanted, found)
    assert change.differs == ("variable A: changed", "variable C: new", "variable D: removed")
    assert "secret" not in repr(change)


def test_long_values_are_cut() -> None:
    (line,) = compare("f", {"policy": "x" * 1000}, {"policy": None}).differs
    assert len(line) < 100


def test_only_own_sizes_are_surplus() -> None:
    known = ["treadle-256", "treadle-512", "treadle-1024x", "treadle-other", "mytreadle-128", "treadle"]
    assert surplus("treadle", known, ["treadle-512"]) == ["treadle-256"]


def test_a_prefix_is_no_pattern() -> None:
    assert surplus("a.b", ["axb-1", "a.b-1"], []) == ["a.b-1"]
