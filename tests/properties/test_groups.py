"""Task groups: the definition's result for any workflow. A segment of more than two partitions is wide here."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given

from treadle.client.testing.faults import Faults
from treadle.client.testing.strategies import Case, cases
from treadle.orchestrator.planner import task_groups

from .conftest import Site
from .profiles import examples
from .test_faults import cases_with_faults, check_faults
from .test_generated import MODULE, check

pytestmark = pytest.mark.timeout(0)


@pytest.fixture
def small_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_groups, "GROUP_TASKS", 2)


@examples(7)
@given(case=cases(MODULE))
def test_groups_change_nothing(
    small_groups: None, no_inline: None, sites: Callable[[int, bool], Site], case: Case
) -> None:
    check(case, sites(2, True))


@examples(6)
@given(both=cases_with_faults())
def test_faults_within_groups_change_nothing(
    small_groups: None, no_inline: None, sites: Callable[[int, bool], Site], both: tuple[Case, Faults]
) -> None:
    check_faults(*both, sites(3, False))
