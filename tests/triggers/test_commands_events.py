"""Commands for events that need no broker: samples, deployment, and pauses of schedules."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from orchestrator.commands import Done, Terminal

from treadle.cli.doctor_triggers import retention
from treadle.orchestrator import embedded
from treadle.orchestrator.environment.home import Home
from treadle.primitives.sealing import load_or_create_key
from treadle.primitives.stores.store import Store
from treadle.triggers.status_store import write_statuses
from treadle.triggers.trigger_runner import TriggerStatus

KAFKA = {"type": "kafka", "connection": "nowhere", "topics": ["orders.v1"], "with": {"orders": "${{ trigger.events }}"}}
HOOK = {"type": "webhook", "secret": "partner", "with": {"orders": {"items": ["${{ event.data }}"]}}}
NIGHTLY = {
    "type": "schedule",
    "cron": "0 2 * * *",
    "timezone": "Europe/Paris",
    "with": {"orders": {"items": [1]}, "day": "${{ trigger.time.date }}"},
}
FILES = {
    "type": "object",
    "poll": {"uri": "s3://lake/in/"},
    "with": {"orders": {"uri": "${{ event.data.uri }}", "format": "jsonl"}},
}
EVENT = {"specversion": "1.0", "id": "7", "source": "/shop", "type": "created", "data": {"amount": 12}}
PROFILE = '[tests]\nallow = ["s3://lake/in/"]\n[tests.kafka.nowhere]\nbootstrap.servers = "127.0.0.1:1"\n'


@pytest.fixture(scope="module")
def terminal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Terminal]:
    yield from opened(tmp_path_factory.mktemp("events"))


def opened(root: Path) -> Iterator[Terminal]:
    """A terminal whose profile has a Kafka cluster that does not answer."""
    work = root / "work"
    work.mkdir()
    (work / "functions.py").write_text("def same(order, day):\n    return order\n")
    home = Home(root / "home")
    home.profiles.write_text(PROFILE)
    try:
        yield Terminal(work, root / "home", {"TREADLE_PROFILE": "tests"})
    finally:
        embedded.down(home)


def write(terminal: Terminal, name: str, folder: Path | None = None, **triggers: Any) -> Path:
    """Write a workflow with these triggers."""
    inputs = {"orders": {"type": "dataset", "required": True}, "day": {"type": "string", "default": "today"}}
    uses = {"type": "map", "input": "inputs.orders", "uses": "functions:same", "with": {"day": "${{ inputs.day }}"}}
    spec = {"apiVersion": "treadle/v1", "name": name, "inputs": inputs, "stages": {"each": uses}}
    path = (folder or terminal.folder) / f"{name}.yaml"
    path.write_text(yaml.safe_dump({**spec, **({"triggers": triggers} if triggers else {})}))
    return path


def sample(terminal: Terminal, value: Any) -> Path:
    path = terminal.folder / "sample.json"
    path.write_text(value if isinstance(value, str) else json.dumps(value))
    return path


def tried(terminal: Terminal, file: Path, target: str, *options: object) -> tuple[int, Any]:
    done = terminal.run("trigger", "test", target, "--file", file, "-o", "json", *options)
    return done.code, json.loads(done.out)[0]


def told(done: Done, code: int = 0) -> Any:
    assert done.code == code, done
    return json.loads(done.out)


# -- samples -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("filter", "value", "verdict", "reason"),
    [
        ("event.data.amount > 3", EVENT, "starts", ""),
        ("event.data.amount > 30", EVENT, "passed over", ""),
        ("event.data.amont > 3", EVENT, "dead letter", "filter: there is no event.data.amont"),
        ("event.data.amount > 3", "no json", "dead letter", "the record is no CloudEvent"),
        ("event.data.amount > 3", {**EVENT, "id": None}, "dead letter", "id"),
    ],
)
def test_sample_fares_as_the_event_would(
    terminal: Terminal, filter: str, value: Any, verdict: str, reason: str
) -> None:
    file = write(terminal, "orders", live={**KAFKA, "filter": filter})
    code, trial = tried(terminal, file, "orders.live", "--event", sample(terminal, value))
    assert (code, trial["verdict"]) == (2 if verdict == "dead letter" else 0, verdict)
    assert reason in trial["reason"]
    if verdict == "starts":
        assert trial["inputs"] == {"orders": {"items": [{"amount": 12}]}, "day": "today"}
        assert trial["run"] == "orders.live.TOPIC-UUID.0.0"
    else:
        assert (trial["inputs"], trial["run"]) == (None, "")
    assert embedded.running_server(Home(terminal.home)) is None


def test_sample_goes_the_way_that_the_service_would_choose(terminal: Terminal) -> None:
    large = sample(terminal, EVENT | {"data": {"link": "https://shop/7", "text": "x" * 70_000}})
    code, trial = tried(terminal, write(terminal, "orders", live=KAFKA), "orders.live", "--event", large)
    assert (code, trial["verdict"], trial["inputs"]["orders"]["kafka"]["runs"]) == (0, "starts", [1])
    inline = write(terminal, "orders", live={**KAFKA, "events": "inline"})
    code, trial = tried(terminal, inline, "orders.live", "--event", large)
    assert (code, trial["inputs"]["orders"]["items"][0]["link"]) == (0, "https://shop/7")


def test_sample_in_binary_mode_has_its_attributes_in_headers(terminal: Terminal) -> None:
    file = write(terminal, "orders", live={**KAFKA, "filter": "event.subject == 'a'", "dedupe": "event"})
    given = {"ce_specversion": "1.0", "ce_id": "7", "ce_source": "/s", "ce_type": "t", "ce_subject": "a"}
    headers = [part for name, text in given.items() for part in ("--header", f"{name}={text}")]
    headers += ["-H", "content-type=application/json"]
    code, trial = tried(terminal, file, "orders.live", "-e", sample(terminal, {"amount": 1}), *headers)
    assert (code, trial["event"]["subject"], trial["inputs"]["orders"]) == (0, "a", {"items": [{"amount": 1}]})


def test_raw_sample_is_shown_as_text(terminal: Terminal) -> None:
    file = write(terminal, "orders", live={**KAFKA, "format": "raw", "filter": "event.subject == 'k'"})
    code, trial = tried(terminal, file, "orders.live", "-e", sample(terminal, "a line"), "--key", "k")
    assert (code, trial["event"]["data"], trial["inputs"]["orders"]["kafka"]["format"]) == (0, "a line", "raw")


def test_sample_that_inputs_do_not_take_would_be_a_range(terminal: Terminal) -> None:
    text = sample(terminal, {"wei": 2**64})
    live = {**KAFKA, "format": "json"}
    code, trial = tried(terminal, write(terminal, "orders", live=live), "orders.live", "-e", text)
    assert (code, trial["inputs"]["orders"]["kafka"]["topicId"]) == (0, "TOPIC-UUID")
    inline = write(terminal, "orders", live={**live, "events": "inline"})
    code, trial = tried(terminal, inline, "orders.live", "-e", text)
    assert (code, trial["verdict"]) == (2, "dead letter")


def test_request_and_notification_are_samples_too(terminal: Terminal) -> None:
    file = write(terminal, "orders", hook={**HOOK, "filter": "event.data.n > 1"}, files=FILES)
    assert tried(terminal, file, "orders.hook", "-e", sample(terminal, {"n": 1}))[1]["verdict"] == "passed over"
    code, trial = tried(terminal, file, "orders.hook", "-e", sample(terminal, {"n": 2}))
    assert (code, trial["inputs"]["orders"]) == (0, {"items": [{"n": 2}]})
    for key, verdict in (("in/a.jsonl", "starts"), ("secret/a.jsonl", "dead letter")):
        found = {"bucket": {"name": "lake"}, "object": {"key": key, "size": 3}}
        notification = {"Records": [{"eventName": "ObjectCreated:Put", "s3": found}]}
        _, trial = tried(terminal, file, "orders.files", "-e", sample(terminal, notification))
        assert trial["verdict"] == verdict
    assert "s3://lake/secret/a.jsonl" in trial["reason"]


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("test", "orders.live"), 4, "no workflow 'orders' is deployed"),
        (("test", "orders"), 2, "names no trigger"),
        (("show", "orders"), 4, "treadle deploy FILE"),
        (("pause", "orders.live"), 4, "no workflow"),
        (("list", "orders"), 4, "no workflow"),
        (("seek", "orders.live", "--to", "soon"), 4, "no workflow"),
    ],
)
def test_undeployed_name_is_reported_with_the_next_step(
    terminal: Terminal, arguments: tuple[str, ...], code: int, said: str
) -> None:
    done = terminal.run("trigger", *arguments)
    assert done.code == code
    assert said in done.err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), "give a sample or a time"),
        (("--event", "absent.json"), "absent.json"),
        (("--time", "2026-01-01"), "has no schedule 'live'\n  Only schedules have times; it has: nightly."),
        (("--event", "functions.py", "--header", "x"), "gives no value"),
    ],
)
def test_sample_that_is_none_is_refused(terminal: Terminal, options: tuple[str, ...], said: str) -> None:
    file = write(terminal, "orders", live=KAFKA, nightly=NIGHTLY)
    done = terminal.run("trigger", "test", "orders.live", "--file", file, *options)
    assert done.code == 2
    assert said in done.err


# -- deploying ---------------------------------------------------------------------------------------------------


def test_deploy_says_what_changed_and_keeps_equal_files_as_one_version(terminal: Terminal) -> None:
    folder = terminal.folder / "deploys"
    folder.mkdir()
    (folder / "functions.py").write_text("def same(order, day):\n    return order\n")
    file = write(terminal, "deploys", folder, hook=HOOK, files=FILES)
    planned = told(terminal.run("deploy", file, "--dry-run", "-o", "json"))
    assert told(terminal.run("trigger", "list", "-o", "json")) == []
    first = told(terminal.run("deploy", file, "--paused", "-o", "json"))
    assert planned["workflows"][0]["did"] == first["workflows"][0]["did"] == "new"
    assert first["workflows"][0]["paused"] == ["files", "hook"]
    again = terminal.run("deploy", file, "--diff", "-o", "json")
    assert [told(again)["workflows"][0][key] for key in ("version", "did")] == [1, "unchanged"]
    assert "@@" not in again.err
    write(terminal, "deploys", folder, hook={**HOOK, "maxActive": 3})
    shown = terminal.run("deploy", file, "--diff")
    assert "+    maxActive: 3" in shown.err
    assert "nothing was changed" in shown.err
    assert len(told(terminal.run("trigger", "show", "deploys", "-o", "json"))) == 1
    (done,) = told(terminal.run("deploy", file, "-o", "json"))["workflows"]
    assert {one["trigger"]: one["did"] for one in done["triggers"]} == {"files": "removed", "hook": "changed"}
    assert done["paused"] == ["hook"]
    (folder / "functions.py").write_text("def same(order, day):\n    return [order]\n")
    assert "the code changed" in terminal.run("deploy", file, "--diff").err
    assert "deploys@3 deployed, changed" in terminal.run("deploy", file).out
    versions = told(terminal.run("trigger", "show", "deploys", "-o", "json"))
    assert [one["triggers"] for one in versions] == [["files", "hook"], ["hook"], ["hook"]]


def test_prune_undeploys_workflows_missing_from_the_folder(terminal: Terminal) -> None:
    folder = terminal.folder / "prunes"
    folder.mkdir()
    (folder / "functions.py").write_text("def same(order, day):\n    return order\n")
    one, other = (write(terminal, name, folder, hook=HOOK) for name in ("one", "other"))
    elsewhere = write(terminal, "elsewhere", hook=HOOK)
    assert terminal.run("deploy", one, other).code == 0
    assert terminal.run("deploy", elsewhere).code == 0
    told_before = told(terminal.run("deploy", one, "--prune", "--dry-run", "-o", "json"))
    assert [(each["workflow"], each["did"]) for each in told_before["workflows"]] == [
        ("one", "unchanged"),
        ("other", "undeployed"),
    ]
    assert told(terminal.run("trigger", "list", "other", "-o", "json"))
    assert terminal.run("deploy", one, "--prune").code == 0
    assert terminal.run("trigger", "list", "other").code == 4
    assert told(terminal.run("trigger", "list", "elsewhere", "-o", "json"))
    assert terminal.run("undeploy", "one").code == 0
    assert terminal.run("undeploy", "one").code == 4


def test_deploy_refuses_an_unusable_trigger_and_changes_nothing(terminal: Terminal) -> None:
    wrong = write(terminal, "refused", hook={**HOOK, "filter": "event.typ == 1"})
    done = terminal.run("deploy", wrong)
    assert done.code == 3
    assert "did you mean type?" in done.err
    nowhere = write(terminal, "refused", live={**KAFKA, "connection": "unknown"})
    done = terminal.run("deploy", nowhere)
    assert (done.code, "no Kafka connection 'unknown'" in done.err) == (2, True)
    assert done.err.endswith('  [PROFILE.kafka.unknown]\n  bootstrap.servers = "HOST:PORT"\n')
    nowhere.write_text(nowhere.read_text() + "defaults: {executor: cluster}\n")
    done = terminal.run("deploy", nowhere)
    assert (done.code, "there is no executor 'cluster' here" in done.err) == (2, True)
    assert re.search(r"refused\.yaml:\d+:\d+: ", done.err)
    parts = terminal.folder / "parts"
    parts.mkdir()
    far = write(terminal, "far", parts)
    far.write_text(far.read_text() + "defaults: {executor: cluster}\n")
    child = "  sub: {type: workflow, uses: ./parts/far.yaml, with: {orders: '${{ inputs.orders }}'}}\n"
    nowhere.write_text(write(terminal, "refused", hook=HOOK).read_text().replace("stages:\n", f"stages:\n{child}"))
    done = terminal.run("deploy", nowhere)
    assert (done.code, "there is no executor 'cluster' here" in done.err) == (2, True)
    assert re.search(r"parts/far\.yaml:\d+:\d+: ", done.err)
    right = write(terminal, "refused", hook=HOOK)
    twice = terminal.run("deploy", right, right)
    assert (twice.code, "both hold" in twice.err) == (2, True)
    assert terminal.run("trigger", "show", "refused").code == 4


def test_a_paused_trigger_rests_until_the_version_without_it_is_there(terminal: Terminal) -> None:
    assert terminal.run("deploy", write(terminal, "resting", hook=HOOK), "--paused").code == 0
    nowhere = write(terminal, "resting", live={**KAFKA, "connection": "unknown"})
    assert terminal.run("deploy", nowhere).code == 2
    (line,) = told(terminal.run("trigger", "list", "resting", "-o", "json"))
    assert (line["trigger"], line["state"]) == ("resting.hook", "paused"), "nothing was deployed"
    assert terminal.run("deploy", write(terminal, "resting", files=FILES)).code == 0
    assert terminal.run("deploy", write(terminal, "resting", hook=HOOK)).code == 0
    (line,) = told(terminal.run("trigger", "list", "resting", "-o", "json"))
    assert line["state"] == "unserved", "the pause went with the trigger"


# -- doctor ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("days", "triggers", "state"),
    [
        (1.0, 1, "failed"),
        (1.0, 0, "warning"),
        (3.0, 1, "warning"),
        (6.9, 0, "warning"),
        (7.0, 1, "ok"),
        (30.0, 0, "ok"),
    ],
)
def test_retention_is_judged_by_the_deployed_versions(days: float, triggers: int, state: str) -> None:
    check = retention(days, triggers)
    assert check.state == state
    assert bool(check.hint) == (state != "ok")


def test_doctor_reports_an_absent_cluster_and_a_missing_secret(terminal: Terminal) -> None:
    assert terminal.run("deploy", write(terminal, "signed", hook=HOOK)).code == 0
    done = terminal.run("doctor", "-o", "json")
    assert done.code == 5, done
    failed = {one["name"]: one["about"] for one in json.loads(done.out) if one["state"] == "failed"}
    assert failed.keys() == {"kafka", "hook"}
    assert failed["kafka"].startswith("Kafka connection nowhere, 127.0.0.1:1: connection refused")
    assert failed["hook"].startswith("signed.hook: there is no secret 'partner'")
    (Home(terminal.home).secrets / "partner").touch(0o600)
    again = {
        one["name"]: one["state"] for one in json.loads(terminal.run("doctor", "-o", "json", TREADLE_PROFILE="").out)
    }
    assert again["hook"] == "ok"


def test_services_that_share_a_trigger_are_shown_as_one(terminal: Terminal) -> None:
    home = Home(terminal.home)
    store, key = Store.open(home.store.as_uri()), load_or_create_key(home.key)
    assert terminal.run("deploy", write(terminal, "shared", hook=HOOK)).code == 0
    now = time.time()
    for name, status in {
        "a": TriggerStatus("shared", "hook", "webhook", 1, "failing", 2, 1, 4, None, "away", now - 1),
        "b": TriggerStatus("shared", "hook", "webhook", 1, "running", 3, 0, 5, None, "", now),
        "gone": TriggerStatus("shared", "hook", "webhook", 1, "failed", 9, 9, 9, None, "old", now - 1000),
    }.items():
        write_statuses(store, key, name, [status])
    (line,) = told(terminal.run("trigger", "list", "shared", "-o", "json"))
    assert {name: line[name] for name in ("state", "started", "dead", "active", "lag", "error")} == {
        "state": "failing",
        "started": 14,
        "dead": 10,
        "active": 5,
        "lag": None,
        "error": "away",
    }
    assert "away" in terminal.run("trigger", "list", "shared").out
