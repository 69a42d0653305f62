"""The emulated OpenWhisk behaves as its documents state, tested with actions of a few lines."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import zipfile
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from typing import Any

import httpx
import pytest
from emulators.openwhisk import GENEROUS, openwhisk
from emulators.openwhisk_actions import SystemLimits
from emulators.openwhisk_faults import Fault, Faults
from emulators.openwhisk_server import OpenWhiskEmulator

ACTION = """
import os, sys, time
calls = 0
def main(args):
    global calls
    calls += 1
    print("called", calls)
    print("of", args.get("do", "nothing"), file=sys.stderr)
    match args.get("do"):
        case "raise": raise ValueError("on purpose")
        case "exit": os._exit(3)
        case "sleep": time.sleep(args["seconds"])
        case "environment": return {"environment": dict(os.environ)}
        case "large": return {"text": "x" * args["size"]}
        case "allocate": kept = bytearray(args["size"]); kept[::4096] = b"x" * len(kept[::4096]); time.sleep(5)
        case "number": return 7
    return {"calls": calls, "pid": os.getpid(), **{k: v for k, v in args.items() if k != "do"}}
"""


def zipped(source: str = ACTION) -> str:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(zipfile.ZipInfo("__main__.py"), source)  # without the time
    return base64.b64encode(buffer.getvalue()).decode()


def document(source: str = ACTION, **limits: int) -> dict[str, Any]:
    execute = {"kind": "python:3.11", "code": zipped(source), "binary": True}
    parameters = [{"key": "COLOUR", "value": "red", "init": True}, {"key": "colour", "value": "blue"}]
    return {"exec": execute, "limits": {"timeout": 10_000, "memory": 128, **limits}, "parameters": parameters}


@pytest.fixture(scope="module")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenWhiskEmulator]:
    with openwhisk(tmp_path_factory.mktemp("openwhisk")) as emulator:
        yield emulator


@pytest.fixture
async def api(installation: OpenWhiskEmulator) -> AsyncIterator[httpx.AsyncClient]:
    """The API with the action `a`."""
    base = f"{installation.endpoint}/api/v1/namespaces/_/"
    user, _, password = installation.key.partition(":")
    async with httpx.AsyncClient(base_url=base, auth=(user, password), timeout=60, trust_env=False) as http:
        assert (await http.put("actions/a?overwrite=true", json=document())).status_code == 200
        yield http
    installation.set_faults()
    installation.limits = GENEROUS
    installation.actions.clear()


async def call(api: httpx.AsyncClient, blocking: bool = True, **args: Any) -> httpx.Response:
    return await api.post("actions/a", params={"blocking": str(blocking).lower()}, json=args)


async def result(api: httpx.AsyncClient, **args: Any) -> Any:
    done = await call(api, **args)
    assert done.status_code == 200, done.text
    return done.json()["response"]["result"]


async def record(api: httpx.AsyncClient, activation: str) -> Any:
    while (found := await api.get(f"activations/{activation}")).status_code == 404:  # noqa: ASYNC110 (over HTTP)
        await asyncio.sleep(0.05)
    return found.json()


async def test_parameters_are_merged_and_init_ones_are_the_whole_environment(api: httpx.AsyncClient) -> None:
    assert (await result(api, size=1))["colour"] == "blue"
    assert (await result(api, colour="green"))["colour"] == "green"
    found = (await result(api, do="environment"))["environment"]
    own = {name: value for name, value in found.items() if not name.startswith("__OW_")}
    assert own.keys() - {"LC_CTYPE"} == {"COLOUR", "PYTHONIOENCODING", "TMPDIR"}
    assert {"__OW_ACTIVATION_ID", "__OW_DEADLINE", "__OW_ACTION_NAME"} <= found.keys()


async def test_a_call_replaces_parameters_unless_they_are_final(api: httpx.AsyncClient) -> None:
    other = await result(api, COLOUR="black", do="environment")
    assert other["environment"]["COLOUR"] == "black"
    final = {**document(), "annotations": [{"key": "final", "value": True}]}
    assert (await api.put("actions/a?overwrite=true", json=final)).status_code == 200
    for name in ("COLOUR", "colour"):
        refused = await api.post("actions/a", json={name: "black"})
        assert (refused.status_code, refused.json()["error"].partition(" (")[0]) == (
            400,
            "Request defines parameters that are not allowed",
        )
    assert (await result(api, size=1))["colour"] == "blue"


async def test_a_container_is_kept_warm_and_its_first_call_was_cold(api: httpx.AsyncClient) -> None:
    first, second = [(await call(api)).json() for _ in range(2)]
    assert [each["response"]["result"]["calls"] for each in (first, second)] == [1, 2]
    noted = [{note["key"] for note in each["annotations"]} for each in (first, second)]
    assert ["initTime" in notes for notes in noted] == [True, False]


async def test_logs_come_with_the_record_and_not_with_the_reply(api: httpx.AsyncClient) -> None:
    reply = (await call(api, do="nothing")).json()
    assert reply["logs"] == []
    record = (await api.get(f"activations/{reply['activationId']}")).json()
    said = sorted(line.split(" ", 1)[1] for line in record["logs"])
    assert said == ["stderr: of nothing", "stdout: called 1"]


@pytest.mark.parametrize(
    ("do", "code", "error"),
    [
        ({"do": "raise"}, 1, "on purpose"),
        ({"do": "exit"}, 2, "command exited"),
        ({"do": "number"}, 2, "The action did not return a dictionary or array."),
        ({"do": "large", "size": 2 << 20}, 1, "The action produced a response that exceeded the allowed length"),
        ({"do": "allocate", "size": 300 << 20}, 2, "command exited"),
    ],
    ids=lambda value: value["do"] if isinstance(value, dict) else "",
)
async def test_an_action_that_fails_is_answered_with_its_record(
    api: httpx.AsyncClient, do: dict[str, Any], code: int, error: str
) -> None:
    done = await call(api, **do)
    assert done.status_code == 502
    response = done.json()["response"]
    assert (response["statusCode"], response["success"]) == (code, False)
    assert response["result"]["error"].startswith(error)
    assert (await result(api))["calls"] == 1


async def test_an_action_beyond_its_time_is_ended_with_its_container(api: httpx.AsyncClient) -> None:
    """A blocking call waits no longer than the action's limit, so its reply may be an id."""
    await api.put("actions/a?overwrite=true", json=document(timeout=500))
    found = await record(api, (await call(api, do="sleep", seconds=30)).json()["activationId"])
    assert found["response"]["result"]["error"] == "The action exceeded its time limits of 500 milliseconds."


async def test_a_blocking_call_turns_into_an_id_and_its_record_comes(
    api: httpx.AsyncClient, installation: OpenWhiskEmulator
) -> None:
    installation.limits = replace(GENEROUS, blocking_seconds=0.1)
    taken = await call(api, do="sleep", seconds=1.0)
    assert taken.status_code == 202
    activation = taken.json()["activationId"]
    assert (await api.get(f"activations/{activation}")).status_code == 404
    assert (await record(api, activation))["response"]["success"]


async def test_an_action_that_does_not_load_fails_to_initialise(api: httpx.AsyncClient) -> None:
    await api.put("actions/a?overwrite=true", json=document("import nothing_there"))
    done = await call(api)
    assert done.status_code == 502
    assert done.json()["response"]["result"]["error"] == "Cannot start action. Check logs for details."


async def test_action_sees_only_the_packages_of_its_zip(api: httpx.AsyncClient) -> None:
    source = "from importlib.util import find_spec\ndef main(args): return {'found': bool(find_spec('msgspec'))}\n"
    await api.put("actions/a?overwrite=true", json=document(source))
    assert await result(api) == {"found": False}


async def test_limits_of_the_system_are_kept(api: httpx.AsyncClient, installation: OpenWhiskEmulator) -> None:
    assert (await api.post("actions/a", json={"x": "x" * (1 << 20)})).status_code == 413
    assert (await api.put("actions/b", json=document(memory=64))).status_code == 400
    assert (await api.put("actions/b", json=document(timeout=300_001))).status_code == 400
    installation.limits = SystemLimits(code=100)
    assert (await api.put("actions/b", json=document())).status_code == 413
    assert (await api.put("actions/a", json=document())).status_code == 409
    assert (await api.get("actions/b")).status_code == 404


async def test_calls_per_minute_and_at_once_are_limited(
    api: httpx.AsyncClient, installation: OpenWhiskEmulator
) -> None:
    installation.limits = SystemLimits(concurrent=0)
    assert "Too many concurrent requests in flight (count: 0, allowed: 0)." in (await call(api)).text
    installation.limits = SystemLimits(per_minute=0)
    refused = await call(api)
    assert refused.status_code == 429
    assert refused.json()["error"].startswith("Too many requests in the last minute (count: ")


async def test_code_is_shown_unless_it_is_not_asked_for(api: httpx.AsyncClient) -> None:
    assert (await api.get("actions/a")).json()["exec"]["code"] == zipped()
    assert "code" not in (await api.get("actions/a?code=false")).json()["exec"]


async def test_a_strangers_key_is_refused(installation: OpenWhiskEmulator) -> None:
    async with httpx.AsyncClient(auth=("a", "b"), trust_env=False) as http:
        answer = await http.get(f"{installation.endpoint}/api/v1/namespaces/_/actions")
    assert answer.status_code == 401
    assert json.loads(answer.text)["error"]


def test_faults_strike_the_same_calls_of_the_same_order() -> None:
    asked = [Fault("throttle minute", share=0.5, after=2, times=3), Fault("lose call", after=1)]
    first, second = (Faults(asked, seed=7) for _ in range(2))
    drawn = [set(first.next_call()) for _ in range(50)]
    assert drawn == [set(second.next_call()) for _ in range(50)]
    assert first.struck() == {"throttle minute": 3, "lose call": 49}
    assert drawn[0] == set()
    assert all("throttle minute" not in each for each in drawn[:2])
