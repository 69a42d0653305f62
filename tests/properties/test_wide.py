"""Shuffles of two levels: the definition's result for any workflow. Every shuffle counts as wide here."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given

from treadle.client.testing.faults import Faults
from treadle.client.testing.strategies import Case, cases
from treadle.orchestrator.planner import exchanges

from .conftest import Hosts, Site
from .profiles import examples
from .test_faults import cases_with_faults, check_faults
from .test_generated import MODULE, check

pytestmark = pytest.mark.timeout(0)


@pytest.fixture
def two_levels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchanges, "WIDE", 0)


@pytest.mark.parametrize(("slots", "host"), [(1, True), (3, False)])
@examples(18)
@given(case=cases(MODULE))
def test_two_levels_change_nothing(
    two_levels: None, no_inline: None, sites: Callable[[int, bool], Site], slots: int, host: bool, case: Case
) -> None:
    check(case, sites(slots, host))


@examples(10)
@given(both=cases_with_faults())
def test_faults_on_either_level_change_nothing(
    two_levels: None, no_inline: None, sites: Callable[[int, bool], Site], both: tuple[Case, Faults]
) -> None:
    check_faults(*both, sites(2, True))


@examples(8)
@given(case=cases(MODULE, most=4))
def test_two_levels_between_hosts_change_nothing(
    two_levels: None, no_inline: None, hosts_site: Hosts, case: Case
) -> None:
    check(case, hosts_site)
