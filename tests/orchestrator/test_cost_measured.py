"""Measured usage and its cost: charges of calls, requests to stores."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace
from orchestrator.conftest import Breaking
from orchestrator.record_histories import mapped, spec
from orchestrator.test_cost import FUNCTIONS, GIB

from treadle.executors.program import Charge, Outcome
from treadle.orchestrator.cost.bill import BillLine, bill
from treadle.orchestrator.cost.measured import Spending, _Sum  # private: the test builds a sum by hand
from treadle.orchestrator.cost.prices import Prices, load_prices
from treadle.orchestrator.cost.usage import Usage, temporary_given
from treadle.orchestrator.environment.home import Home
from treadle.orchestrator.plan.plan import Plan
from treadle.orchestrator.run_store.run_files import RunFiles, keep_requests
from treadle.primitives.stores.request_counts import of_run
from treadle.primitives.stores.store import Store


@pytest.fixture
def prices(tmp_path: Path) -> Prices:
    return load_prices(Home(tmp_path / "home", {}))


def test_lists_cost_as_writes_and_calls_cost_instead_of_attempts(prices: Prices) -> None:
    line = BillLine("n", "x", "lambda", Usage(attempts=100, calls=10, puts=1, lists=2, gets=3), measured=True)
    expected = 10 * 0.20e-6 + 3 * 0.005e-3 + 3 * 0.0004e-3
    assert bill([line], prices, "s3://bucket").cost == pytest.approx(expected)


def test_arm_and_temporary_folders_have_prices_of_their_own(prices: Prices) -> None:
    usage = Usage(gigabyte_seconds=1000.0, temporary=1000.0)
    x86, arm = (
        bill([BillLine("n", "x", kind, usage)], prices, "file:///").cost for kind in ("lambda", "lambda/aarch64")
    )
    assert (x86, arm) == pytest.approx((0.0166667 + 0.0000309, 0.0133334 + 0.0000309))
    other = replace(prices, executors={"lambda": prices.executors["lambda"]})
    assert bill([BillLine("n", "x", "lambda/aarch64", usage)], other, "file:///").cost == pytest.approx(x86)


def test_temporary_folder_is_charged_beyond_512_mb() -> None:
    can = replace(FUNCTIONS, temporary=1536 << 20)
    assert (temporary_given(can, 10.0), temporary_given(replace(can, temporary=512 << 20), 10.0)) == (10.0, 0.0)


def test_charge_of_a_call_counts_instead_of_its_attempts() -> None:
    known = _Sum()
    first = Outcome(0, 1, "objects", 1, seconds=1.0, requests={"put": 1}, charge=Charge(1, 3.0, GIB))
    known.add(first, 2 * GIB)
    known.add(replace(first, partition=1, charge=Charge()), 2 * GIB)
    assert (known.calls, known.given, known.charged, known.seconds) == (1, 3 * GIB, 3.0, 2.0)
    assert known.requests == {"put": 2}


def test_requests_that_nothing_counted_are_named(breaking: Breaking) -> None:
    run = breaking(spec(first=mapped({"range": 8, "partitions": 8})))
    run.go()
    files = run.engine(run.executor).site.files(run.run)
    found = files.find(Plan, "plan")
    assert found is not None
    assert Spending(files, found, {}).unknown == [], "a folder of this machine has no price"
    bucket = RunFiles(Store.open("memory://bucket"), run.run, files.key)
    assert Spending(bucket, found, {}).unknown == ["requests of the driver"]
    made = of_run(run.run)["put"]
    keep_requests(bucket)
    assert Spending(bucket, found, {}).unknown == []
    assert Spending(bucket, found, {}).lines()[0].usage.puts == made + 1, "its own write is among them"
