"""Any fault gives the definition's result, or an error with a class, never silence."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.client.testing import EngineFailure, EngineResult
from treadle.client.testing.compare import differences, expected
from treadle.client.testing.faults import CrashingStore, Damage, Faults, FaultyExecutor, faults
from treadle.client.testing.strategies import Case, cases
from treadle.dsl.reference import ReferenceFailure
from treadle.orchestrator.dispatcher.ledger.ledger import Fenced
from treadle.primitives.errors import CorruptError, MissingError, StoreError

from .conftest import Site
from .profiles import examples

MODULE = "properties.functions"
pytestmark = pytest.mark.timeout(0)


Writes = list[tuple[int, bool]]
"""Drivers that die: number of the write, and whether it is done."""
writes_of_death: st.SearchStrategy[Writes] = st.lists(
    st.tuples(st.integers(1, 30), st.booleans()), min_size=1, max_size=3
)


@st.composite
def cases_with_faults(draw: st.DrawFn, most: int = 4) -> tuple[Case, Faults]:
    case = draw(cases(MODULE, most=most))
    return case, draw(faults(case))


def check_faults(case: Case, what: Faults, site: Site) -> None:
    base, run = site.place()
    case.write(base)
    what.write(site.scripts, run)
    damage = Damage(site.store, run, *site.host_roots)
    engine = site.engine(FaultyExecutor(site.executor, what.reports, damage))
    wanted = expected(case, base, run)
    try:
        found = site.harness.run(engine, case, base, run)
    except (MissingError, CorruptError) as error:
        if error.block in damage.blocks:  # no task reads it, so it is missed only now
            return
        raise
    assert not differences(wanted, found, base, run)


def check_deaths(case: Case, writes: Writes, site: Site) -> None:
    """Drivers die around these writes, one after the other; the last one lives."""
    base, run = site.place()
    case.write(base)
    wanted = expected(case, base, run)
    refused = site.harness.submit(site.engine(), case, base, run)
    for number, after in writes if refused is None else ():
        store = CrashingStore(site.store, number, after=after)
        try:
            site.harness.result(site.engine(store=store), run)
        except StoreError:
            assert store.crashed
    found = refused or site.harness.result(site.engine(), run)
    assert not differences(wanted, found, base, run)


@pytest.mark.parametrize(("slots", "host"), [(1, True), (2, True), (3, False)])
@examples(15)
@given(both=cases_with_faults())
def test_faults_change_nothing(
    no_inline: None, sites: Callable[[int, bool], Site], slots: int, host: bool, both: tuple[Case, Faults]
) -> None:
    check_faults(*both, sites(slots, host))


@examples(10)
@given(both=cases_with_faults(most=3))
def test_faults_change_nothing_on_s3(no_inline: None, s3_site: Site, both: tuple[Case, Faults]) -> None:
    check_faults(*both, s3_site)


@examples(25)
@given(case=cases(MODULE, most=4), writes=writes_of_death)
def test_driver_that_dies_before_or_after_a_write(
    sites: Callable[[int, bool], Site], case: Case, writes: Writes
) -> None:
    check_deaths(case, writes, sites(2, True))


@examples(25)
@given(case=cases(MODULE, most=4), delays=st.lists(st.integers(0, 40), min_size=1, max_size=2))
def test_dispatchers_that_do_not_know_of_each_other(
    sites: Callable[[int, bool], Site], case: Case, delays: list[int]
) -> None:
    """The later one takes over. An earlier one that still runs commits nothing more."""
    here = [sites(1, True), sites(2, True), sites(3, True)]
    harness = here[0].harness
    base, run = here[0].place()
    case.write(base)
    wanted = expected(case, base, run)
    refused = harness.submit(here[0].engine(), case, base, run)
    if refused is not None:
        assert isinstance(wanted, ReferenceFailure)
        return

    async def later(site: Site, delay: int) -> Any:
        await asyncio.sleep(delay / 1000)
        return await site.harness.engine(site.store, site.executor, site.host_root).run(run)

    async def together() -> list[Any]:
        starts = zip(here, [0, *delays], strict=False)
        return await asyncio.gather(*(later(site, delay) for site, delay in starts), return_exceptions=True)

    found = harness.wait(together())
    ended = [one for one in found if not isinstance(one, Fenced)]
    if not ended:  # each took over from another; the next has no rival
        ended = [harness.result(here[0].engine(), run)]
    for one in ended:
        assert isinstance(one, EngineResult | EngineFailure), one
        assert not differences(wanted, one, base, run)
