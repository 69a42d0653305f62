"""The first order of an execution runs in the driver that has the workflow task, without a request to the server.

Work that is not short is handed over, still running, to an activity.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from eventually import eventually_async
from orchestrator.record_histories import ITEMS, TESTS, mapped, spec
from temporalio.api.enums.v1 import EventType

from treadle.client.testing.service import Service
from treadle.orchestrator.dispatcher.ledger.ledger import Epoch, Record, Started, read
from treadle.orchestrator.temporal import activities
from treadle.orchestrator.temporal.activities import Activities
from treadle.primitives.errors import StoreError

pytestmark = pytest.mark.asyncio(loop_scope="module")
SCHEDULED = EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED
LONG = 60.0


async def scheduled(here: Service, run: str) -> int:
    return sum(event.event_type == SCHEDULED for event in (await here.history(run)).events)


def records(here: Service, run: str) -> list[Record]:
    files = here.runs.files(run)
    return read(here.site.store, files.segment("slow"), files.key)


def most_starts(known: list[Record]) -> int:
    """The number of attempts of the partition that had the most."""
    starts = Counter(number for one in known if isinstance(one, Started) for number in one.attempts)
    return max(starts.values())


async def waits_for_its_activity(here: Service, run: str, folder: Path) -> None:
    """Runs a stage that goes on until an activity is scheduled."""
    flag = folder / "go"
    await here.submit(spec(slow=mapped(ITEMS, "slowly", **{"with": {"flag": str(flag)}})), run, folder, TESTS)
    await eventually_async(lambda: scheduled(here, run))
    flag.touch()
    assert (await here.runs.end(run)).failure is None


async def test_short_work_schedules_no_activity(here: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(activities, "BRIEF", LONG)
    await here.submit(spec(first=mapped(ITEMS), then=mapped("first")), "short", tmp_path, TESTS)
    assert (await here.runs.end("short")).failure is None
    assert await scheduled(here, "short") == 0


async def test_nodes_that_begin_together_are_activities(
    here: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the second would wait for the end of the first."""
    monkeypatch.setattr(activities, "BRIEF", LONG)
    flag = tmp_path / "go"
    slow = mapped({"range": 1}, "slowly", **{"with": {"flag": str(flag)}})
    await here.submit(spec(slow=slow, other=mapped(ITEMS)), "together", tmp_path, TESTS)
    await eventually_async(lambda: here.runs.files("together").manifest("other"))
    flag.touch()
    assert (await here.runs.end("together")).failure is None
    assert await scheduled(here, "together") == 2


async def test_handed_over_work_continues_in_an_activity(
    here: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(activities, "BRIEF", 0.0)
    monkeypatch.setattr(activities, "HANDED_OVER", LONG)
    await waits_for_its_activity(here, "handed-over", tmp_path)
    known = records(here, "handed-over")
    assert sum(isinstance(one, Epoch) for one in known) == 1, "one dispatcher"
    assert most_starts(known) == 1


async def test_handed_over_work_without_an_activity_begins_anew(
    here: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after the death of the driver between the two."""
    monkeypatch.setattr(activities, "BRIEF", 0.0)
    monkeypatch.setattr(activities, "HANDED_OVER", 0.0)
    await waits_for_its_activity(here, "dropped", tmp_path)
    assert here.runs.files("dropped").manifest("slow") is not None


async def test_passing_error_of_short_work_is_retried_in_an_activity(
    here: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(activities, "BRIEF", LONG)
    # private: the store fails between two requests of the same activity, which nothing public does
    monkeypatch.setattr(Activities, "_report", once_failing(Activities._report))
    await here.submit(spec(slow=mapped(ITEMS)), "fenced", tmp_path, TESTS)
    assert (await here.runs.end("fenced")).failure is None
    assert await scheduled(here, "fenced") == 1


async def test_passing_error_of_the_opening_is_retried_in_an_activity(
    here: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(activities, "BRIEF", LONG)
    # private: the store fails while the run is opened, and not before
    monkeypatch.setattr(Activities, "_open", once_failing(Activities._open))
    await here.submit(spec(slow=mapped(ITEMS)), "opened-twice", tmp_path, TESTS)
    assert (await here.runs.end("opened-twice")).failure is None
    assert await scheduled(here, "opened-twice") == 1


def once_failing(method: Callable[..., Any]) -> Callable[..., Any]:
    """The method, which raises a passing error at its first call."""
    left = [StoreError("the store is away", "Try again.", retryable=True)]

    def call(*arguments: Any) -> Any:
        if left:
            raise left.pop()
        return method(*arguments)

    return call


async def test_failure_of_short_work_fails_the_run(
    here: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(activities, "BRIEF", LONG)
    document = spec(slow=mapped(ITEMS, "needs_flag", **{"with": {"flag": str(tmp_path / "none")}}))
    await here.submit(document, "fails", tmp_path, TESTS)
    failure = (await here.runs.end("fails")).failure
    assert failure is not None
    assert (failure.failure, "there is no flag" in failure.message) == ("user error", True)
    assert await scheduled(here, "fails") == 0


async def test_short_work_is_cancelled_like_any_other(
    here: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(activities, "BRIEF", LONG)
    flag = tmp_path / "never"
    await here.submit(spec(slow=mapped(ITEMS, "slowly", **{"with": {"flag": str(flag)}})), "held", tmp_path, TESTS)
    await eventually_async(lambda: any(isinstance(one, Started) for one in records(here, "held")))
    await here.runs.cancel("held")
    assert (await here.runs.end("held")).state == "cancelled"
    assert await scheduled(here, "held") == 0
