"""The events of every run reach the receiver, for any end of the run. An absent receiver delays no run."""

from __future__ import annotations

import asyncio
import base64
import http.server
import json
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from orchestrator.commands import Terminal
from orchestrator.record_histories import ITEMS, TESTS, M, mapped, spec
from orchestrator.temporal.test_history_size import bound, events

from treadle.client.client import Runs
from treadle.client.testing.service import Service, service
from treadle.orchestrator import embedded
from treadle.orchestrator.environment.home import Home
from treadle.orchestrator.environment.profile import load_profile
from treadle.orchestrator.lifecycle import delivery
from treadle.orchestrator.lifecycle.delivery import untold_of
from treadle.orchestrator.run_requests.run_views import RunEnd
from treadle.orchestrator.temporal.connect import connect
from treadle.orchestrator.temporal.driver import Driver, open_announcer, open_site
from treadle.orchestrator.temporal.temporal_runs import TemporalRuns
from treadle.primitives.events.signatures import verify_standard

pytestmark = pytest.mark.asyncio(loop_scope="module")
SHOWN = (("unheard", ()), ("unheard", ("-o", "wide")), ("whole", ()))
SECRET = "whsec_" + base64.b64encode(b"a secret of at least 16 bytes").decode()


class Receiver(http.server.ThreadingHTTPServer):
    """Accepts the events that the test allows, and records them."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.status = 204
        self.requests: list[tuple[dict[str, str], bytes]] = []

    def of(self, run: str) -> list[dict[str, Any]]:
        """The events of a run in the order of arrival. Each had a valid signature."""
        found = []
        for headers, body in self.requests:
            verify_standard(SECRET, headers, body, time.time())
            event = json.loads(body)
            if event["subject"] == run:
                found.append(event)
        return found

    def words(self, run: str) -> list[str]:
        """`run.started`, `parse.completed`, ..."""
        return [_words(event) for event in self.of(run)]


class Answer(http.server.BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.server.status == 204:
            self.server.requests.append(({name.lower(): value for name, value in self.headers.items()}, body))
        self.send_response(self.server.status)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


def _words(event: dict[str, Any]) -> str:
    kind: str = event["type"].removeprefix("dev.treadle.").removesuffix(".v1")
    return kind.replace("stage", str(event["data"].get("stage", "stage")))


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    with Receiver() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def told_home(folder: Path, receiver: Receiver) -> Home:
    """A home whose profile `told` has the receiver in `lifecycle`."""
    home = Home(folder)
    url = f"http://127.0.0.1:{receiver.server_address[1]}/news"
    home.profiles.write_text(f'[told]\nlifecycle = {{ webhook = {{ url = "{url}", secret = "news" }} }}\n')
    (home.secrets / "news").touch(0o600)
    (home.secrets / "news").write_text(SECRET)
    return home


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory, receiver: Receiver) -> Home:
    return told_home(tmp_path_factory.mktemp("home"), receiver)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def here(home: Home) -> AsyncIterator[Service]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TREADLE_PROFILE", "told")
        patch.setattr(delivery, "PAUSES", (0.01, 0.01))
        async with service(home) as found:
            yield found


async def run(here: Service, name: str, document: dict[str, Any], folder: Path) -> RunEnd:
    await here.submit(document, name, folder, TESTS)
    return await here.runs.end(name)


async def test_run_emits_lifecycle_events_and_its_history_stays_small(
    here: Service, receiver: Receiver, tmp_path: Path
) -> None:
    document = spec(
        pairs=mapped(ITEMS, "pair"),
        groups={"type": "shuffle", "input": "pairs", "by": "key"},
        counts={"type": "reduce", "input": "groups", "per": "key", "combine": f"{M}:add"},
        collected={"type": "barrier", "input": "counts"},
        sum=mapped("collected"),
        never=mapped("sum", when="1 > 2"),
        done={"type": "barrier", "input": "sum"},
    ) | {"outputs": {"answer": 42}}
    assert (await run(here, "whole", document, tmp_path)).failure is None
    told = receiver.words("whole")
    assert told[0] == "run.started"
    assert told[-1] == "run.completed"
    stages = ("pairs", "groups", "counts", "collected", "sum", "done")
    wanted = {f"{stage}.{what}" for stage in stages for what in ("started", "completed")}
    assert sorted(told[1:-1]) == sorted(wanted), "each once, and nothing of a stage that is skipped"
    for stage in stages:
        assert told.index(f"{stage}.started") < told.index(f"{stage}.completed")
    assert told.index("counts.completed") < told.index("collected.started") < told.index("sum.completed")
    events_of = receiver.of("whole")
    assert len({event["id"] for event in events_of}) == len(events_of)
    assert events_of[-1]["data"]["outputs"] == {"answer": 42}
    assert events_of[-1]["data"]["skipped"] == ["never"]
    found = await events(here, "whole")
    assert sum(found.values()) <= bound(found, segments=4)
    assert found["EVENT_TYPE_ACTIVITY_TASK_SCHEDULED"] <= 2 + 4, "of all telling, one activity at the end"


async def test_a_run_that_fails_and_is_resumed_tells_both(here: Service, receiver: Receiver, tmp_path: Path) -> None:
    flag = tmp_path / "mended"
    document = spec(
        first=mapped(ITEMS), gate=mapped("first", "needs_flag", needs=["first"], **{"with": {"flag": str(flag)}})
    )
    assert (await run(here, "mended", document, tmp_path)).state == "failed"
    told = receiver.of("mended")
    assert [_words(event) for event in told][-2:] == ["gate.failed", "run.failed"]
    assert told[-1]["data"]["failure"]["class"] == "user error"
    assert "there is no flag" in told[-1]["data"]["failure"]["message"]
    flag.touch()
    await here.runs.resume("mended")
    assert (await here.runs.end("mended")).failure is None
    again = receiver.of("mended")[len(told) :]
    assert [_words(event) for event in again] == ["run.started", "gate.started", "gate.completed", "run.completed"]
    assert {event["data"]["resumption"] for event in again} == {2}
    assert not {event["id"] for event in again} & {event["id"] for event in told}


async def test_a_run_that_is_cancelled_says_so(here: Service, receiver: Receiver, tmp_path: Path) -> None:
    gate = mapped(ITEMS, "slowly", **{"with": {"flag": str(tmp_path / "never")}})
    await here.submit(spec(gate=gate), "stopped", tmp_path, TESTS)
    while "gate.started" not in receiver.words("stopped"):  # noqa: ASYNC110  # another thread hears it
        await asyncio.sleep(0.05)
    await here.runs.cancel("stopped")
    assert (await here.runs.end("stopped")).state == "cancelled"
    assert receiver.words("stopped") == ["run.started", "gate.started", "run.cancelled"]


async def test_a_run_that_cannot_be_planned_fails_aloud(here: Service, receiver: Receiver, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("x")
    document = spec(each=mapped({"uri": "in.txt", "format": "text"}))
    with pytest.MonkeyPatch.context() as patch:  # the file is removed between the submission and the start
        start = here.runs._start  # private: the test delays a start
        patch.setattr(here.runs, "_start", lambda *given, **how: _without(tmp_path / "in.txt", start(*given, **how)))
        assert (await run(here, "unplanned", document, tmp_path)).state == "failed"
    (event,) = receiver.of("unplanned")
    assert _words(event) == "run.failed"
    assert "no such file" in event["data"]["failure"]["message"]


async def _without(file: Path, starting: Awaitable[bool]) -> bool:
    await asyncio.to_thread(file.unlink)
    return await starting


async def test_absent_listener_does_not_delay_the_run_and_gets_events_later(
    here: Service, receiver: Receiver, tmp_path: Path
) -> None:
    flag = tmp_path / "go"
    document = spec(first=mapped(ITEMS), gate=mapped(ITEMS, "slowly", needs=["first"], **{"with": {"flag": str(flag)}}))
    receiver.status = 503
    await here.submit(document, "deaf", tmp_path, TESTS)
    while len(await asyncio.to_thread(untold_of, here.runs.files("deaf"))) < 4:  # noqa: ASYNC110  # no event signals it
        await asyncio.sleep(0.05)
    receiver.status = 204
    flag.touch()
    assert (await here.runs.end("deaf")).failure is None
    told = receiver.words("deaf")
    assert sorted(told) == sorted(set(told)), "each once"
    assert set(told) == {f"{who}.{what}" for who in ("run", "first", "gate") for what in ("started", "completed")}
    assert await asyncio.to_thread(untold_of, here.runs.files("deaf")) == []


async def test_undelivered_events_are_in_the_record_of_the_run(
    here: Service, home: Home, receiver: Receiver, tmp_path: Path
) -> None:
    receiver.status = 410
    try:
        assert (await run(here, "unheard", spec(each=mapped(ITEMS)), tmp_path)).failure is None
    finally:
        receiver.status = 204
    untold = await asyncio.to_thread(untold_of, here.runs.files("unheard"))
    assert [one.event.type for one in untold][-1] == "dev.treadle.run.completed.v1"
    assert {one.reason for one in untold} == {"the receiver answers 410"}
    assert len(untold) == 4
    hand = Terminal(tmp_path, home.path, {"TREADLE_PROFILE": "told"})
    shown, wide, told = [await asyncio.to_thread(hand.run, "show", name, *more) for name, more in SHOWN]
    assert "\n4 lifecycle events untold: the receiver answers 410\n" in shown.out
    assert wide.out.count("  the receiver answers 410\n") == 4
    assert "untold" not in told.out


async def test_another_driver_tells_again_and_the_ids_say_so(
    receiver: Receiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TREADLE_PROFILE", "told")
    home, flag = told_home(tmp_path / "home", receiver), tmp_path / "go"
    gate = mapped(ITEMS, "slowly", **{"with": {"flag": str(flag)}})
    profile = load_profile(home)
    try:
        await asyncio.to_thread(embedded.attach, home)
        await asyncio.to_thread(embedded.ensure_server, home)
        for begun in (1, 2):
            client, site = await asyncio.gather(connect(profile, home), open_site(home, profile, 1))
            async with Driver(client, site, profile, announcer=open_announcer(home, profile)):
                known = Service(client, site, Runs(TemporalRuns(client), site.store, site.key, profile.queue))
                if begun == 1:
                    await known.submit(spec(gate=gate), "moved", tmp_path, TESTS)
                while receiver.words("moved").count("gate.started") < begun:  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
                if begun == 2:
                    flag.touch()
                    assert (await known.runs.end("moved")).failure is None
    finally:
        await asyncio.to_thread(embedded.down, home)
    told = receiver.of("moved")
    assert len({event["id"] for event in told}) == 4 < len(told), "repeats are known by their ids"
    assert {_words(event) for event in told} == {"run.started", "gate.started", "gate.completed", "run.completed"}
