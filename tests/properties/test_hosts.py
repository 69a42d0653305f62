"""Hosts without shared memory: the definition's result for any route of each block."""

from __future__ import annotations

import pytest
from hypothesis import given

from treadle.client.testing.faults import Faults
from treadle.client.testing.strategies import Case, cases, mixed

from .conftest import Hosts
from .profiles import examples
from .test_faults import cases_with_faults, check_faults
from .test_generated import MODULE, check

pytestmark = pytest.mark.timeout(0)


@examples(20)
@given(case=cases(MODULE, most=5))
def test_every_block_between_hosts_over_tcp(no_inline: None, hosts_site: Hosts, case: Case) -> None:
    check(case, hosts_site)


@examples(15)
@given(case=mixed(MODULE))
def test_every_stage_its_own_way(no_inline: None, hosts_site: Hosts, case: Case) -> None:
    check(case, hosts_site)


@examples(15)
@given(case=mixed(MODULE, most=4))
def test_hosts_in_network_namespaces_over_tls(no_inline: None, namespaces_site: Hosts, case: Case) -> None:
    check(case, namespaces_site)


@examples(15)
@given(both=cases_with_faults(most=3))
def test_faults_between_hosts_change_nothing(no_inline: None, hosts_site: Hosts, both: tuple[Case, Faults]) -> None:
    check_faults(*both, hosts_site)
