"""Generated workflows on emulated providers of functions, with and without local slots: the definition's result.

Platform faults come from the emulators. Every fault must be survived, or end as an error with a class.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import pytest
from emulators import lambda_faults, openwhisk_faults
from emulators.lambda_place import LambdaPlace, lambda_place
from emulators.openwhisk import EmulatedExecutor, deploy, openwhisk
from emulators.openwhisk_server import OpenWhiskEmulator
from hypothesis import given
from hypothesis import strategies as st

from treadle.client.testing.compare import differences, expected
from treadle.client.testing.harness import Harness
from treadle.client.testing.strategies import Case, cases
from treadle.executors.functions.rate_limiter import Rate
from treadle.executors.interface import Executor
from treadle.primitives.stores.store import Store

from .conftest import Site
from .functions import FAULTS
from .object_cases import cases_with_objects
from .profiles import examples

MODULE = "properties.functions"
pytestmark = pytest.mark.timeout(0)


class Provider(Protocol):
    """An emulator with settable faults."""

    def strike(self, faults: Sequence[Any]) -> None: ...


@dataclass
class Functions(Site):
    """A provider, local slots, and a store that both reach."""

    provider: Provider | None = None
    local: Executor | None = field(default=None)

    def engine(self, executor: Executor | None = None, store: Store | None = None) -> Any:
        both: Any = {"local": self.local, "functions": executor or self.executor}
        return self.harness.engine(store or self.store, both, self.host_root)


class _Lambda:
    def __init__(self, place: LambdaPlace) -> None:
        self._place = place

    def strike(self, faults: Sequence[Any]) -> None:
        self._place.emulator.faults.set(*faults)


class _OpenWhisk:
    def __init__(self, emulator: OpenWhiskEmulator) -> None:
        self._emulator = emulator

    def strike(self, faults: Sequence[Any]) -> None:
        self._emulator.faults = openwhisk_faults.Faults(faults)


@pytest.fixture(scope="session")
def lambda_site(
    harness: Harness, host_folder: Path, numbers: Iterator[int], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Functions]:
    key_file = str(harness.folder / "key")
    with lambda_place(tmp_path_factory.mktemp("lambda")) as place, pytest.MonkeyPatch.context() as patch:
        for name, value in place.emulator.credentials.items():
            patch.setenv(name, value)
        place.deploy(key_file, environment={FAULTS: str(harness.folder / "faults")})
        executor = place.executor(key_file, slots=3)
        yield _site(harness, executor, host_folder / "beside-lambda", numbers, _Lambda(place))
        harness.wait(executor.stop())


@pytest.fixture(scope="session")
def openwhisk_site(
    harness: Harness, host_folder: Path, numbers: Iterator[int], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Functions]:
    key_file = str(harness.folder / "key")
    with openwhisk(tmp_path_factory.mktemp("openwhisk")) as emulator:
        deploy(emulator, key_file)
        executor = EmulatedExecutor(emulator, key_file, 3, Rate(200, least=50))
        yield _site(harness, executor, host_folder / "beside-openwhisk", numbers, _OpenWhisk(emulator))
        harness.wait(executor.stop())


def _site(
    harness: Harness, executor: Executor, host_root: Path, numbers: Iterator[int], provider: Provider
) -> Functions:
    store = Store.open(f"file://{harness.folder}/store")
    local = harness.local(1, host_root)
    return Functions(harness, executor, store, host_root, harness.folder, numbers, provider, local)


@st.composite
def spread(draw: st.DrawFn, most: int) -> Case:
    """A case in which each stage runs on functions or on local slots."""
    case = draw(cases(MODULE, most=most))
    _place(draw, case.document["stages"])
    return case


def _place(draw: st.DrawFn, stages: dict[str, Any]) -> None:
    for stage in stages.values():
        if stage["type"] == "loop":
            _place(draw, stage["stages"])
        elif stage["type"] != "barrier":
            stage["executor"] = "local" if stage.get("gang") else draw(st.sampled_from(["functions", "local"]))


@st.composite
def spread_with_objects(draw: st.DrawFn) -> Case:
    case = draw(cases_with_objects())
    _place(draw, case.document["stages"])
    return case


def check(case: Case, site: Functions, faults: Sequence[Any] = ()) -> None:
    base, run = site.place()
    case.write(base)
    wanted = expected(case, base, run)
    assert site.provider is not None
    site.provider.strike(faults)
    try:
        found = site.harness.run(site.engine(), case, base, run)
    finally:
        site.provider.strike(())
    assert not differences(wanted, found, base, run)


@examples(4)
@given(case=spread(3))
def test_lambda_and_local_slots_together(no_inline: None, lambda_site: Functions, case: Case) -> None:
    check(case, lambda_site)


@examples(2)
@given(case=spread(3))
def test_openwhisk_and_local_slots_together(no_inline: None, openwhisk_site: Functions, case: Case) -> None:
    check(case, openwhisk_site)


LAMBDA: Any = st.builds(
    lambda_faults.Fault,
    st.sampled_from(["throttle", "service error", "twice", "two at once", "kill at start", "lose the answer"]),
    share=st.sampled_from([0.2, 0.5]),
    times=st.integers(1, 6),
)
OPENWHISK: Any = st.builds(
    openwhisk_faults.Fault,
    st.sampled_from(["throttle minute", "unavailable", "run twice", "kill before run", "lose response", "late record"]),
    share=st.sampled_from([0.2, 0.5]),
    times=st.integers(1, 6),
)


@examples(3)
@given(case=spread(3), faults=st.lists(LAMBDA, min_size=1, max_size=3))
def test_faults_of_lambda_change_nothing(lambda_site: Functions, case: Case, faults: list[Any]) -> None:
    check(case, lambda_site, faults)


@examples(2)
@given(case=spread(3), faults=st.lists(OPENWHISK, min_size=1, max_size=3))
def test_faults_of_openwhisk_change_nothing(openwhisk_site: Functions, case: Case, faults: list[Any]) -> None:
    check(case, openwhisk_site, faults)


@examples(3)
@given(case=spread_with_objects(), faults=st.lists(LAMBDA, max_size=3))
def test_objects_count_each_partition_on_lambda_once(lambda_site: Functions, case: Case, faults: list[Any]) -> None:
    check(case, lambda_site, faults)
