"""A session that no client ends."""

from __future__ import annotations

import pytest

from treadle.client.submission import Prepared
from treadle.client.testing.service import Service
from treadle.orchestrator.dispatcher.segments import session
from treadle.orchestrator.plan.plan import CALLS, session_plan
from treadle.orchestrator.run_store.call_log import CallLog, NoMoreCalls, session_submission

pytestmark = pytest.mark.asyncio(loop_scope="module")


def prepared(here: Service, run: str) -> Prepared:
    can = here.site.pools.executors["local"].capabilities
    return Prepared(session_submission(run, "ended", "local"), b"", session_plan("", "local", can))


async def test_session_without_calls_ends_after_a_while(here: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "IDLE", 0.2)
    await here.runs.submit(prepared(here, "idle"))
    assert (await here.runs.end("idle")).state == "succeeded"
    assert CallLog(here.runs.files("idle")).read() == [NoMoreCalls()]
    manifest = here.runs.files("idle").manifest(CALLS)
    assert manifest is not None
    assert manifest.expected == 0


async def test_ended_session_is_resumed_without_work(here: Service) -> None:
    CallLog(here.runs.files("over"), "client").write([NoMoreCalls()])
    await here.runs.submit(prepared(here, "over"))
    assert (await here.runs.end("over")).state == "succeeded"
    assert not await here.runs.resume("over")
