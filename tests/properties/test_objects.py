"""Workflows with shared objects have the result of the definition, with every kind of failure."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from treadle.client.testing.compare import differences, expected
from treadle.client.testing.faults import CallFault, Faults, faults
from treadle.client.testing.strategies import Case
from treadle.orchestrator.planner import task_groups

from .conftest import Site
from .object_cases import MODULE, cases_with_objects, document_with_objects
from .profiles import examples
from .test_faults import Writes, check_deaths, check_faults, writes_of_death

pytestmark = pytest.mark.timeout(0)


@st.composite
def cases_with_faults(draw: DrawFn) -> tuple[Case, Faults]:
    case = draw(cases_with_objects())
    return case, draw(faults(case))


@pytest.mark.parametrize(("slots", "host"), [(2, True), (3, False)])
@examples(25)
@given(both=cases_with_faults())
def test_objects_count_each_partition_once(
    no_inline: None, sites: Callable[[int, bool], Site], slots: int, host: bool, both: tuple[Case, Faults]
) -> None:
    check_faults(*both, sites(slots, host))


@examples(25)
@given(case=cases_with_objects(), writes=writes_of_death)
def test_objects_survive_a_driver_that_dies_around_a_write(
    sites: Callable[[int, bool], Site], case: Case, writes: Writes
) -> None:
    check_deaths(case, writes, sites(2, True))


@pytest.mark.parametrize("lost", range(5))
def test_lost_state_and_lost_calls_are_made_once_more(
    no_inline: None, sites: Callable[[int, bool], Site], lost: int
) -> None:
    """Of the first state, of both partitions of `a` with their calls, of the next state, and of `b`."""
    used = {"uses": f"{MODULE}:each", "objects": ["log"], "with": {"names": ["log"], "only": []}}
    count = {"type": "map", "input": {"range": 4, "partitions": 2}, **used}
    document = document_with_objects({"a": count, "b": {**count, "input": "a", "needs": ["a"]}})
    check_faults(Case(document), Faults((), {lost: "delete"}), sites(1, False))


def test_record_that_is_set_aside_has_no_effect(sites: Callable[[int, bool], Site]) -> None:
    used = {"objects": ["hits", "log"], "with": {"names": ["hits", "log"], "only": []}}
    records = {"type": "map", "input": {"range": 12, "partitions": 2}, "toleratedFailures": 12}
    document = document_with_objects({"a": {**records, "uses": f"{MODULE}:picky", **used}})
    check_faults(Case(document), Faults(), sites(1, True))


@pytest.mark.parametrize("action", ["raise", "kill"])
def test_gang_counts_once(sites: Callable[[int, bool], Site], action: CallFault) -> None:
    gang = {"type": "map", "input": {"range": 4, "partitions": 2}, "uses": f"{MODULE}:each", "gang": 2}
    used = {"objects": ["log"], "with": {"names": ["log"], "only": []}}
    document = document_with_objects({"a": {**gang, **used}, "b": {**gang, **used, "needs": ["a"]}})
    case, site = Case(document), sites(2, True)
    base, run = site.place()
    wanted = expected(case, base, run)
    Faults((("a", 1, 1, action), ("b", 0, 1, action))).write(site.scripts, run)
    assert not differences(wanted, site.harness.run(site.engine(), case, base, run), base, run)


@examples(8)
@given(both=cases_with_faults())
def test_objects_count_each_partition_of_task_groups_once(
    no_inline: None, monkeypatch: pytest.MonkeyPatch, sites: Callable[[int, bool], Site], both: tuple[Case, Faults]
) -> None:
    monkeypatch.setattr(task_groups, "GROUP_TASKS", 2)
    check_faults(*both, sites(2, True))
