"""A request is answered once its run exists. Any other request starts no run, and its answer names the remedy."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import logging
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
import pytest_asyncio
from hypothesis import given
from hypothesis import strategies as st
from properties.profiles import examples
from triggers.deployed import deploy, document

from treadle.client.submission import RUN_ID
from treadle.orchestrator.environment.connection_errors import Unreachable
from treadle.orchestrator.environment.home import Home
from treadle.orchestrator.environment.profile import Profile, WebhookSettings
from treadle.orchestrator.run_store.uri_policy import check_allowed
from treadle.primitives.events.signatures import sign_standard
from treadle.primitives.stores.store import Store
from treadle.triggers import run_limit
from treadle.triggers.registry.registry import Registry
from treadle.triggers.start_requests import RunStarted, StartOrder
from treadle.triggers.trigger_runner import TriggerSite
from treadle.triggers.webhook.runner import WebhookRunner

pytestmark = pytest.mark.asyncio(loop_scope="module")
SECRET = "whsec_" + base64.b64encode(b"a secret of at least 16 bytes").decode()
INPUTS = {"amount": {"type": "integer"}, "source": {"type": "uri"}}
HOOKS: dict[str, dict[str, Any]] = {
    "open": {"with": {"amount": "${{ event.data.amount }}"}, "filter": "event.data.amount > 0"},
    "signed": {"secret": "hook", "with": {"amount": "${{ event.data.amount }}"}},
    "github": {"secret": "hub", "scheme": "github", "filter": "event.type == 'com.github.webhook'"},
    "body": {"dedupe": "body"},
    "any": {"dedupe": "none"},
    "by_value": {"dedupe": "event.data.order"},
    "ce": {"format": "cloudevents"},
    "ce_signed": {"format": "cloudevents", "secret": "hook"},
    "shaped": {"dedupe": "body", "schema": {"type": "object", "required": ["amount"]}},
    "costly": {"dedupe": "body", "schema": {"properties": {"a": {"pattern": "^(a+)+$"}, "b": {"uniqueItems": True}}}},
    "small": {"dedupe": "body", "maxBody": "100B"},
    "one": {"dedupe": "body", "maxActive": 1},
    "paused": {"dedupe": "body"},
    "places": {"dedupe": "body", "with": {"source": "${{ event.data.uri }}"}},
    "no_secret": {"secret": "missing"},
    "bad_secret": {"secret": "hub"},
    "empty_secret": {"secret": "empty", "scheme": "github"},
}


class Starts:
    """A Starter that records its calls, checks inputs like the real one, and fails on request."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self.runs: dict[str, StartOrder] = {}
        self.away = False
        self.listed = 0
        self.over = asyncio.Event()

    async def start(self, order: StartOrder) -> RunStarted:
        if self.away:
            raise Unreachable("nobody is there", "password=geheim")
        submission = self._registry.deployment(order.workflow, order.version).submission(order.run, order.inputs)
        check_allowed(None, submission)
        assert RUN_ID.fullmatch(order.run)
        new = self.runs.setdefault(order.run, order) is order
        return RunStarted(order.run, new)

    async def active(self, workflow: str, trigger: str) -> int:
        return self.listed

    async def wait(self, run: str) -> None:
        await self.over.wait()


class Hooks:
    """The hooks of HOOKS, served on a port."""

    def __init__(self, folder: Path) -> None:
        home = Home(folder / "home")
        for name, text in (("hook", SECRET), ("hub", "geheim"), ("objects", "token"), ("empty", "\n")):
            (home.secrets / name).touch(0o600)
            (home.secrets / name).write_text(text)
        store = Store.open(home.store.as_uri())
        self.registry = Registry(store, b"k" * 32)
        self.starts = Starts(self.registry)
        profile = Profile(webhook=WebhookSettings(address="127.0.0.1:0"))
        nobody = cast(Any, None)
        self.site = TriggerSite(home, profile, nobody, store, b"k" * 32, self.registry, self.starts, "test")
        triggers = {name: {"type": "webhook", **hook} for name, hook in HOOKS.items()}
        triggers["objects"] = {"type": "object", "webhook": {"secret": "objects"}, "with": {"source": "in/x"}}
        self.deployment = deploy(self.registry, document(triggers, inputs=INPUTS), folder)
        self.runners: dict[str, WebhookRunner] = {}

    async def start(self) -> None:
        for name in self.deployment.spec.triggers:
            self.runners[name] = runner = WebhookRunner(self.site, "orders", name)
            await runner.update(self.deployment, paused=name == "paused")
            await runner.start()

    async def stop(self) -> None:
        for runner in self.runners.values():
            await runner.stop()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.runners['open'].server.port}"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def hooks(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Hooks]:
    found = Hooks(tmp_path_factory.mktemp("hooks"))
    await found.start()
    yield found
    await found.stop()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def http(hooks: Hooks) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=hooks.url, trust_env=False, timeout=30) as client:
        yield client


async def post(http: httpx.AsyncClient, name: str, data: Any, **headers: str) -> httpx.Response:
    body = data if isinstance(data, bytes) else json.dumps(data).encode()
    known = {"content-type": "application/json", **{key.replace("_", "-"): value for key, value in headers.items()}}
    return await http.post(f"/hooks/orders/{name}", content=body, headers=known)


async def signed(http: httpx.AsyncClient, name: str, data: Any, id_: str, **headers: str) -> httpx.Response:
    body = json.dumps(data).encode()
    return await post(http, name, body, **sign_standard(SECRET, id_, time.time(), body), **headers)


def check_problem(answer: httpx.Response, status: int, word: str) -> None:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    found = answer.json()
    assert (found["status"], found["type"]) == (status, "about:blank")
    assert word in found["detail"]


# -- accepted requests


async def test_a_signed_request_starts_one_run_however_often_it_is_sent(hooks: Hooks, http: httpx.AsyncClient) -> None:
    first = await signed(http, "signed", {"amount": 3}, "msg_1")
    assert first.status_code == 202
    (run,) = first.json()["runs"]
    assert run["new"] is True
    order = hooks.starts.runs[run["run"]]
    assert (order.workflow, order.trigger, order.inputs) == ("orders", "signed", {"amount": 3})
    again = await signed(http, "signed", {"amount": 4}, "msg_1")
    assert again.status_code == 200
    assert again.json() == {"runs": [{"run": run["run"], "new": False}]}
    other = await signed(http, "signed", {"amount": 3}, "msg_2")
    assert other.status_code == 202


async def test_github_is_known_by_its_body_and_by_nothing_unsigned(hooks: Hooks, http: httpx.AsyncClient) -> None:
    body = b'{"action": "opened"}'
    sign = {"x-hub-signature-256": "sha256=" + hmac.new(b"geheim", body, hashlib.sha256).hexdigest()}
    first = await post(http, "github", body, **sign, **{"X-GitHub-Delivery": "1", "X-GitHub-Event": "pull_request"})
    assert first.status_code == 202
    again = await post(http, "github", body, **sign, **{"X-GitHub-Delivery": "2", "X-GitHub-Event": "push"})
    assert again.status_code == 200
    assert again.json()["runs"][0]["run"] == first.json()["runs"][0]["run"]


async def test_what_makes_two_requests_one(http: httpx.AsyncClient) -> None:
    for name, first, second, same in [
        ("body", {"a": 1}, {"a": 1}, True),
        ("body", {"a": 2}, {"a": 3}, False),
        ("any", {"a": 1}, {"a": 1}, False),
        ("by_value", {"order": 7, "a": 1}, {"order": 7, "a": 2}, True),
        ("by_value", {"order": 8}, {"order": "8"}, False),
    ]:
        answers = [await post(http, name, one) for one in (first, second)]
        runs = {answer.json()["runs"][0]["run"] for answer in answers}
        assert len(runs) == (1 if same else 2), (name, first, second)
        assert [answer.status_code for answer in answers] == [202, 200 if same else 202]


async def test_an_unsigned_hook_goes_by_the_id_that_is_sent(http: httpx.AsyncClient) -> None:
    answers = [await post(http, "open", {"amount": one}, webhook_id="a") for one in (1, 2)]
    assert [answer.status_code for answer in answers] == [202, 200]
    check_problem(await post(http, "open", {"amount": 1}), 400, "no id")


CE: dict[str, Any] = {
    "specversion": "1.0",
    "id": "7",
    "source": "/shop",
    "type": "order.created",
    "data": {"amount": 1},
}


async def test_cloudevents_in_both_modes_are_one_event(http: httpx.AsyncClient) -> None:
    structured = await post(http, "ce", CE, content_type="application/cloudevents+json; charset=utf-8")
    assert structured.status_code == 202
    attributes = {f"ce-{name}": value for name, value in CE.items() if name != "data"}
    binary = await post(http, "ce", CE["data"], **attributes)
    assert binary.status_code == 200
    assert binary.json()["runs"][0]["run"] == structured.json()["runs"][0]["run"]


async def test_unsigned_attributes_of_a_signed_event_do_not_count(http: httpx.AsyncClient) -> None:
    kind = {"content_type": "application/cloudevents+json"}
    assert (await signed(http, "ce_signed", CE, "m1", **kind)).status_code == 202
    attributes = {f"ce-{name}": value for name, value in CE.items() if name != "data"}
    check_problem(await signed(http, "ce_signed", CE["data"], "m2", **attributes), 400, "does not cover")


async def test_an_event_that_is_not_wanted_is_taken_and_starts_nothing(hooks: Hooks, http: httpx.AsyncClient) -> None:
    before = len(hooks.starts.runs)
    answer = await post(http, "open", {"amount": 0}, webhook_id="zero")
    assert (answer.status_code, answer.json()) == (200, {"runs": []})
    assert len(hooks.starts.runs) == before


async def test_notification_may_name_several_objects(hooks: Hooks, http: httpx.AsyncClient) -> None:
    def record(key: str) -> dict[str, Any]:
        about = {"bucket": {"name": "lake"}, "object": {"key": key, "size": 1, "eTag": "e", "sequencer": "1"}}
        return {"eventName": "s3:ObjectCreated:Put", "eventTime": "2026-11-21T10:00:00Z", "s3": about}

    told = {"Records": [record("a"), record("b"), {**record("c"), "eventName": "ObjectRemoved:Delete"}]}
    check_problem(await post(http, "objects", told), 401, "token")
    answer = await post(http, "objects", told, authorization="Bearer token")
    assert answer.status_code == 202
    assert [run["new"] for run in answer.json()["runs"]] == [True, True]
    again = await post(http, "objects", {"Records": [record("b"), record("d")]}, authorization="Bearer token")
    assert [run["new"] for run in again.json()["runs"]] == [False, True]
    odd = {"Records": [record("e"), {**record("f"), "eventTime": "yesterday"}]}
    check_problem(await post(http, "objects", odd, authorization="Bearer token"), 400, "RFC 3339")


# -- refused requests


async def test_unsigned_request_is_refused(hooks: Hooks, http: httpx.AsyncClient) -> None:
    before = len(hooks.starts.runs)
    check_problem(await post(http, "signed", {"amount": 1}), 401, "needed")
    body = b'{"amount": 1}'
    old = sign_standard(SECRET, "m", time.time() - 400, body)
    check_problem(await post(http, "signed", body, **old), 401, "5 minutes")
    changed = sign_standard(SECRET, "m", time.time(), b'{"amount": 2}')
    check_problem(await post(http, "signed", body, **changed), 401, "no v1 signature fits")
    assert len(hooks.starts.runs) == before


async def test_each_problem_has_its_status(http: httpx.AsyncClient) -> None:
    check_problem(await post(http, "nowhere", {}), 404, "no such hook")
    check_problem(await http.post("/other"), 404, "Not Found")
    got = await http.get("/hooks/orders/open")
    check_problem(got, 405, "Method Not Allowed")
    assert got.headers["allow"] == "POST"
    check_problem(await post(http, "body", b"{"), 400, "no JSON")
    check_problem(await post(http, "body", b"[" * 100_000), 400, "JSON")
    check_problem(await post(http, "body", {}, content_type="text/plain"), 415, "text/plain")
    check_problem(await post(http, "ce", {}), 415, "no CloudEvent")
    check_problem(await post(http, "ce", [], content_type="application/cloudevents-batch+json"), 415, "not read")
    check_problem(await post(http, "ce", {}, content_type="application/cloudevents+json"), 400, "specversion")
    check_problem(await post(http, "shaped", {"other": 1}), 422, "schema")
    check_problem(await post(http, "open", {}, webhook_id="x"), 422, "filter")
    check_problem(await signed(http, "signed", {"amount": "many"}, "bad"), 422, "amount")
    check_problem(await post(http, "by_value", {"order": None}), 422, "dedupe")
    check_problem(await post(http, "places", {"uri": "s3://private/x"}), 403, "s3://private/x")
    check_problem(await post(http, "places", {"uri": "/etc/passwd"}), 403, "/etc/passwd")
    check_problem(await post(http, "objects", {"hello": 1}, authorization="token"), 400, "no notification")
    assert (await http.get("/healthz")).json() == {"status": "ok"}


@pytest.mark.parametrize(("name", "trouble"), [("no", "no secret"), ("bad", "whsec_"), ("empty", "is empty")])
async def test_unusable_secret_is_reported_and_the_sender_retries(
    hooks: Hooks, http: httpx.AsyncClient, name: str, trouble: str
) -> None:
    check_problem(await post(http, f"{name}_secret", {}), 503, "not ready")
    check_problem(await signed(http, f"{name}_secret", {}, "a"), 503, "not ready")
    status = hooks.runners[f"{name}_secret"].status()
    assert (status.state, trouble in status.error) == ("failed", True)


async def test_a_body_that_is_too_long_is_not_read_to_its_end(hooks: Hooks, http: httpx.AsyncClient) -> None:
    check_problem(await post(http, "small", b" " * 101), 413, "100 bytes")
    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        while True:
            sent += 10_000
            yield b" " * 10_000
            await asyncio.sleep(0)

    try:
        answer = await http.post("/hooks/orders/small", content=endless(), headers={"content-type": "application/json"})
        check_problem(answer, 413, "100 bytes")
    except httpx.TransportError:
        pass  # the server hung up during the request
    assert sent < 50_000_000
    reader, writer = await asyncio.open_connection("127.0.0.1", hooks.runners["small"].server.port)
    head = (
        "POST /hooks/orders/small HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 999\r\n\r\n"
    )
    writer.write(head.encode())
    assert b"413" in await reader.readline(), "answered without a byte of the body"
    writer.close()


async def test_at_the_limit_the_sender_is_asked_to_come_again(hooks: Hooks, http: httpx.AsyncClient) -> None:
    assert (await post(http, "one", {"a": 1})).status_code == 202
    full = await post(http, "one", {"a": 2})
    check_problem(full, 503, "as many runs")
    assert int(full.headers["retry-after"]) > 0
    assert hooks.runners["one"].status().active == 1
    hooks.starts.over.set()
    await hooks.runners["one"].gate.room(10)
    hooks.starts.over.clear()
    assert (await post(http, "one", {"a": 2})).status_code == 202


async def test_of_many_at_once_no_more_than_the_limit_start(hooks: Hooks, http: httpx.AsyncClient) -> None:
    hooks.starts.over.set()
    while hooks.runners["one"].status().active:
        await hooks.runners["one"].gate.room(10)
    hooks.starts.over.clear()
    answers = await asyncio.gather(*(post(http, "one", {"many": number}) for number in range(20)))
    assert sorted(answer.status_code for answer in answers) == [202] + [503] * 19


async def test_runs_that_others_started_count_too(
    hooks: Hooks, http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_limit, "FRESH", -1.0)
    hooks.starts.over.set()
    while hooks.runners["one"].status().active:
        await hooks.runners["one"].gate.room(10)
    hooks.starts.over.clear()
    hooks.starts.listed = 1
    check_problem(await post(http, "one", {"others": 1}), 503, "as many runs")
    hooks.starts.listed = 0
    assert (await post(http, "one", {"others": 1})).status_code == 202


async def test_nothing_is_lost_while_temporal_is_away(
    hooks: Hooks, http: httpx.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    hooks.starts.away = True
    away = await signed(http, "signed", {"amount": 5}, "later")
    hooks.starts.away = False
    check_problem(away, 503, "now")
    assert int(away.headers["retry-after"]) > 0
    assert "geheim" not in away.text
    assert (await signed(http, "signed", {"amount": 5}, "later")).status_code == 202


async def test_a_paused_hook_asks_the_sender_to_wait(hooks: Hooks, http: httpx.AsyncClient) -> None:
    check_problem(await post(http, "paused", {}), 503, "paused")
    await hooks.runners["paused"].update(hooks.deployment, paused=False)
    assert (await post(http, "paused", {})).status_code == 202


async def test_no_secret_is_in_any_log(
    hooks: Hooks, http: httpx.AsyncClient, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("treadle.triggers.webhook"), "filters", [])  # its rate limit for lines
    with caplog.at_level(logging.DEBUG, "treadle"), caplog.at_level(logging.DEBUG, "uvicorn"):
        await post(http, "objects", {}, authorization="Bearer token-wrong")
        await post(http, "objects", {}, authorization="Bearer token")
        await signed(http, "signed", {"amount": 1}, "log")
        await post(http, "no_secret", {}, webhook_signature="v1,SIGNATURE")
    assert "missing" in caplog.text
    for text in (SECRET, SECRET.removeprefix("whsec_"), "Bearer", "token-wrong", "SIGNATURE", "v1,"):
        assert text not in caplog.text


# -- arbitrary requests

HEADERS = st.dictionaries(
    st.sampled_from(["webhook-id", "webhook-timestamp", "webhook-signature", "ce-specversion", "ce-id", "ce-source"])
    | st.sampled_from(["ce-type", "ce-time", "ce-x", "authorization", "x-hub-signature-256", "content-type"]),
    st.sampled_from(["1.0", "application/json", "application/cloudevents+json", "v1,AAAA", "1760000000", "sha256=00"])
    | st.text(st.characters(codec="ascii", categories=["L", "N", "P"]), max_size=20),
    max_size=6,
)
BODIES = (
    st.binary(max_size=60)
    | st.recursive(
        st.none() | st.booleans() | st.floats(allow_nan=False) | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["amount", "data", "Records"]), inner)
        ),
    ).map(lambda value: json.dumps(value).encode())
    | st.sampled_from(
        [json.dumps(CE).encode(), b'{"amount": 1}', b'{"Records": [{"eventName": 1}]}', b'{"amount": 1e999}']
    )
)


@examples(25)
@given(st.data())
async def test_every_request_is_answered_and_never_with_a_defect(
    hooks: Hooks, http: httpx.AsyncClient, data: st.DataObject
) -> None:
    name = data.draw(st.sampled_from([*HOOKS, "objects", "nowhere"]))
    headers = data.draw(HEADERS)
    before = len(hooks.starts.runs)
    answer = await http.post(f"/hooks/orders/{name}", content=data.draw(BODIES), headers=headers)
    assert answer.status_code in (200, 202, 400, 401, 403, 404, 413, 415, 422, 503)
    assert len(hooks.starts.runs) - before == (answer.status_code == 202)
    if name in ("signed", "github", "ce_signed", "objects"):
        assert answer.status_code == 401, "nobody signed it"
