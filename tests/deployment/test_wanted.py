"""Wanted resources compared with existing ones. Secrets are not shown."""

from __future__ import annotations

from treadle.orchestrator.deployment.desired_state import Change, compare, surplus


def test_plan_marks_a_missing_function_as_new() -> None:
    assert compare("function f", {"MemorySize": 1}, None) == Change("function f", "new")


def test_plan_leaves_a_matching_function_unchanged_when_it_has_other_settings() -> None:
    assert compare("f", {"MemorySize": 1}, {"MemorySize": 1, "Arn": "x"}).did == "unchanged"


def test_plan_names_each_difference() -> None:
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


def test_prefix_matches_literally_when_it_has_wildcards() -> None:
    assert surplus("a.b", ["axb-1", "a.b-1"], []) == ["a.b-1"]
