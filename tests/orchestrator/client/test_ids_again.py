"""An id that another run had: what the new one is made of, and that nothing of the old one is left to be found."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from treadle.orchestrator.client.client import Runs
from treadle.orchestrator.client.submission import Prepared
from treadle.orchestrator.runfiles import Submission
from treadle.primitives.errors import StoreError
from treadle.primitives.stores.store import Store

COPY = "events/0123456789abcdef"


class Forgetful(Runs):
    """Where Temporal has forgotten every run, and takes all that are new."""

    async def _exists(self, run: str) -> bool:
        return False

    async def _start(self, *_: Any, **__: Any) -> None:
        return


@pytest.fixture
def store(request: pytest.FixtureRequest) -> Store:
    return Store.open(f"memory://{request.node.name}")


@pytest.fixture
def runs(store: Store) -> Runs:
    nobody: Any = None
    found = Forgetful(nobody, store, bytes(32), "queue")
    files = found.files("r")
    files.create("spec", submission("r", "old"))
    files.create_bytes("plan", b"old")
    store.create(f"{files.segment('s')}/ledger/00000000", b"old")
    return found


def submission(run: str, name: str, **inputs: Any) -> Submission:
    return Submission(run, {"name": name}, inputs, "", {}, "/")


def prepared(made: Submission) -> Prepared:
    plan: Any = None
    return Prepared(made, b"", plan)


def left(store: Store) -> set[str]:
    return {info.name for info in store.list("runs/r")}


async def test_new_run_finds_nothing_of_the_one_that_had_its_id(runs: Runs, store: Store) -> None:
    new = submission("r", "new")
    assert await runs.submit(prepared(new))
    assert left(store) == {"runs/r/spec"}
    assert await runs.submission("r") == new


async def test_removal_of_the_old_run_that_was_cut_off_is_begun_again(
    runs: Runs, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    delete = store.delete

    def cut_off(names: Iterable[str]) -> None:
        delete([next(iter(names))])
        raise StoreError("the client is dead", "This is a test.")

    with monkeypatch.context() as patched:
        patched.setattr(store, "delete", cut_off)
        for _ in range(2):
            with pytest.raises(StoreError):
                await runs.submit(prepared(submission("r", "new")))
            assert "runs/r/spec" in left(store), "by that the next submission knows that there was a run"
    assert await runs.submit(prepared(submission("r", "new")))
    assert left(store) == {"runs/r/spec"}


async def test_copied_events_reach_a_run_that_repeats_another_under_an_id_that_was_used(runs: Runs) -> None:
    owner = runs.files("owner")
    owner.create_bytes(COPY, b"records")
    again = prepared(submission("r", "new", orders={"kafka": {"copied": COPY}}))
    again.again = owner
    assert await runs.submit(again)
    assert bytes(runs.files("r").load_bytes(COPY)) == b"records"
