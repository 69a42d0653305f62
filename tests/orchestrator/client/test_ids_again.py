"""A run with the id of an earlier run: its submission is new, and it finds nothing of the earlier run."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import pytest

from treadle.client.client import RunConflict, Runs
from treadle.client.submission import Prepared
from treadle.orchestrator.run_requests.run_views import RunView
from treadle.orchestrator.run_store.run_files import RunFiles, Submission
from treadle.primitives.errors import StoreError
from treadle.primitives.stores.store import Store

COPY = "events/0123456789abcdef"


class Forgetful(Runs):
    """A Temporal that has forgotten every run, and accepts all new ones."""

    async def exists(self, run: str) -> bool:
        return False

    async def _start(self, *_: Any, **__: Any) -> bool:
        return True


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


async def test_new_run_finds_no_data_of_the_former_run_with_its_id(runs: Runs, store: Store) -> None:
    new = submission("r", "new")
    assert await runs.submit(prepared(new))
    assert left(store) == {"runs/r/spec"}
    assert await runs.submission("r") == new


async def test_interrupted_removal_of_the_old_run_is_repeated(
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


# -- two at once ---------------------------------------------------------------------------------------------------


class Behind(Forgetful):
    """Another client starts a run with the same id just before this one, and is not visible yet."""

    async def exists(self, run: str) -> bool:
        self.files(run).create_bytes("plan", b"theirs")
        return False


class TooLate(Forgetful):
    """Another client resumes the run between the look at it and the start."""

    async def view(self, run: str) -> RunView:
        return RunView(run, "new", "failed", datetime.now(UTC), None, 1, (), 0)

    async def _start(self, *_: Any, **__: Any) -> bool:
        return False


async def test_concurrent_submit_of_the_same_run_removes_none_of_its_data(store: Store) -> None:
    nobody: Any = None
    new = submission("new", "new")
    for client in (Forgetful, Behind):
        await client(nobody, store, bytes(32), "queue").submit(prepared(new), if_exists="use")
    assert {info.name for info in store.list("runs/new")} == {"runs/new/spec", "runs/new/plan"}


async def test_concurrent_submit_of_a_different_run_under_one_id_is_refused(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    nobody: Any = None
    runs = Forgetful(nobody, store, bytes(32), "queue")
    await runs.submit(prepared(submission("new", "first")))
    monkeypatch.setattr(RunFiles, "find", lambda *_: None)  # as if it looked before the other client had written
    with pytest.raises(RunConflict, match="being submitted at this moment"):
        await runs.submit(prepared(submission("new", "second")))
    assert (await runs.submission("new")).spec == {"name": "first"}


async def test_of_two_that_resume_a_run_at_the_same_moment_one_finds_it_under_way(store: Store) -> None:
    nobody: Any = None
    runs = TooLate(nobody, store, bytes(32), "queue")
    runs.files("new").create("spec", submission("new", "new"))
    assert not await runs.resume("new")
