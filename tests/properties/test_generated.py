"""For any workflow, executor, store and width: the definition's result."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given

from treadle.client.testing.compare import differences, expected
from treadle.client.testing.strategies import Case, cases
from treadle.dsl.document.workflow_files import from_spec
from treadle.dsl.model import Spec
from treadle.dsl.normalise import normalise
from treadle.dsl.validation.functions import check_functions
from treadle.dsl.validation.validate import validate

from .conftest import TESTS, Site
from .profiles import examples

MODULE = "properties.functions"
pytestmark = pytest.mark.timeout(0)


def check(case: Case, site: Site) -> None:
    """Run the case, and compare."""
    base, run = site.place()
    case.write(base)
    wanted = expected(case, base, run)
    found = site.harness.run(site.engine(), case, base, run)
    assert not differences(wanted, found, base, run)


@examples(100)
@given(cases(MODULE))
def test_generated_workflows_are_valid(case: Case) -> None:
    document = from_spec(case.spec())
    found = [*validate(document), *check_functions(document, [TESTS])]
    assert not [finding for finding in found if finding.severity == "error"]


@examples(30)
@given(cases(MODULE))
def test_normal_form_is_stable(case: Case) -> None:
    normal = normalise(case.spec())
    assert normalise(Spec.model_validate(normal, by_alias=True, by_name=False)) == normal


@pytest.mark.parametrize(("slots", "host"), [(1, True), (2, False), (3, True)])
@examples(20)
@given(case=cases(MODULE))
def test_small_blocks_in_line(sites: Callable[[int, bool], Site], slots: int, host: bool, case: Case) -> None:
    check(case, sites(slots, host))


@pytest.mark.parametrize(("slots", "host"), [(3, False), (2, True)])
@examples(20)
@given(case=cases(MODULE))
def test_every_block_in_files(
    no_inline: None, sites: Callable[[int, bool], Site], slots: int, host: bool, case: Case
) -> None:
    check(case, sites(slots, host))


@examples(15)
@given(case=cases(MODULE, most=4))
def test_every_block_on_s3(no_inline: None, s3_site: Site, case: Case) -> None:
    check(case, s3_site)


@examples(8)
@given(case=cases(MODULE))
def test_nothing_fits_into_memory(no_inline: None, tight_site: Site, case: Case) -> None:
    check(case, tight_site)


@examples(2)
@given(case=cases(MODULE, most=2))
def test_processes_that_share_nothing(no_inline: None, isolated_site: Site, case: Case) -> None:
    check(case, isolated_site)
