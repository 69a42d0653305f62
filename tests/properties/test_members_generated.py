"""Generated workflows on resident functions that hold their blocks, with calls and local slots: the definition's
result, also when their provider fails."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from emulators.lambda_faults import Fault
from emulators.lambda_place import LambdaPlace, lambda_place
from hypothesis import given
from hypothesis import strategies as st

from treadle.client.testing.compare import differences, expected
from treadle.client.testing.harness import Harness
from treadle.client.testing.strategies import Case
from treadle.executors.interface import Executor
from treadle.executors.resident import MEMBERS
from treadle.executors.resident.coordinator_host import Meeting
from treadle.executors.resident.executor import MemberExecutor
from treadle.primitives.stores.store import Store

from .conftest import Site
from .functions import FAULTS
from .profiles import examples
from .test_functions_generated import spread

pytestmark = [pytest.mark.timeout(0), pytest.mark.chaos]
SLOTS = 2


@dataclass
class Members(Site):
    """Called and resident functions, local slots, and a store that all reach."""

    place_: LambdaPlace | None = None
    local: Executor | None = field(default=None)
    staying: Executor | None = field(default=None)

    def engine(self, executor: Executor | None = None, store: Store | None = None) -> Any:
        all_: Any = {
            "local": self.local,
            "functions": executor or self.executor,
            f"functions{MEMBERS}": self.staying,
        }
        return self.harness.engine(store or self.store, all_, self.host_root)


@pytest.fixture(scope="session", params=[True, False], ids=["dialled", "not dialled"])
def members_site(
    harness: Harness,
    host_folder: Path,
    numbers: Iterator[int],
    tmp_path_factory: pytest.TempPathFactory,
    request: pytest.FixtureRequest,
) -> Iterator[Members]:
    key_file = str(harness.folder / "key")
    with (
        lambda_place(tmp_path_factory.mktemp("members"), concurrency=8) as place,
        pytest.MonkeyPatch.context() as patch,
    ):
        for name, value in place.emulator.credentials.items():
            patch.setenv(name, value)
        place.deploy(key_file, environment={FAULTS: str(harness.folder / "faults")})
        calls = place.executor(key_file, slots=SLOTS)
        staying = MemberExecutor(
            calls.means, Meeting("tcp://127.0.0.1:0", inbound=request.param), key_file=key_file, slots=SLOTS
        )
        host_root = host_folder / "beside-members"
        store = Store.open(f"file://{harness.folder}/store")
        local = harness.local(1, host_root)
        yield Members(harness, calls, store, host_root, harness.folder, numbers, place, local, staying)
        harness.wait(staying.stop())
        harness.wait(calls.stop())


def check(case: Case, site: Members, *faults: Fault) -> None:
    base, run = site.place()
    case.write(base)
    wanted = expected(case, base, run)
    assert site.place_ is not None
    site.place_.emulator.faults.set(*faults)
    try:
        found = site.harness.run(site.engine(), case, base, run)
    finally:
        site.place_.emulator.faults.set()
    assert not differences(wanted, found, base, run)


@examples(2)
@given(case=spread(3))
def test_members_calls_and_local_slots_together(no_inline: None, members_site: Members, case: Case) -> None:
    check(case, members_site)


FAULT: Any = st.builds(
    Fault,
    st.sampled_from(
        ["throttle", "service error", "kill at start", "kill under way", "lose the answer", "two at once", "twice"]
    ),
    share=st.sampled_from([0.2, 0.5]),
    times=st.integers(1, 3),
    after=st.sampled_from([0.1, 0.5]),
)


@examples(1)
@given(case=spread(3), faults=st.lists(FAULT, min_size=1, max_size=2))
def test_faults_of_the_provider_change_nothing(
    no_inline: None, members_site: Members, case: Case, faults: list[Fault]
) -> None:
    check(case, members_site, *faults)
