"""`treadle deploy lambda` and `treadle deploy openwhisk`, as typed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from emulators.lambda_emulator import REGION, LambdaEmulator
from emulators.openwhisk import openwhisk
from emulators.openwhisk_server import OpenWhiskEmulator
from orchestrator.commands import Terminal

IMAGE = "example/treadle:1"
"""An image needs no package, whose build takes seconds."""
SECRET = "correct horse battery staple"


@pytest.fixture(scope="module")
def emulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenWhiskEmulator]:
    with openwhisk(tmp_path_factory.mktemp("openwhisk")) as emulator:
        yield emulator


@pytest.fixture
def terminal(tmp_path: Path, emulator: OpenWhiskEmulator) -> Terminal:
    """A terminal with two secrets and without a profile."""
    (tmp_path / "work").mkdir()
    (tmp_path / "home" / "secrets").mkdir(parents=True, mode=0o700)
    (tmp_path / "home").chmod(0o700)
    for name, value in (("openwhisk", emulator.key), ("token", SECRET)):
        (tmp_path / "home" / "secrets" / name).touch(mode=0o600)
        (tmp_path / "home" / "secrets" / name).write_text(value)
    return Terminal(tmp_path / "work", tmp_path / "home", {"TREADLE_PROFILE": "lab"})


def profile(terminal: Terminal, *lines: str, store: str = "") -> None:
    head = ["[lab]", f'store = "{store or f"file://{terminal.home}/store"}"']
    (terminal.home / "profiles.toml").write_text("\n".join([*head, *lines, ""]))


def openwhisk_profile(terminal: Terminal, emulator: OpenWhiskEmulator, *more: str, store: str = "") -> None:
    table = ("[lab.executors.openwhisk]", 'kind = "openwhisk"', f'endpoint = "{emulator.endpoint}"')
    deploy = ("[lab.executors.openwhisk.deploy]", 'secrets = ["token"]', f'image = "{IMAGE}"')
    profile(terminal, *table, *more, *deploy, store=store)


def test_openwhisk_is_deployed_once_and_then_unchanged(terminal: Terminal, emulator: OpenWhiskEmulator) -> None:
    openwhisk_profile(terminal, emulator, "files = true", "sizes = [256]")
    planned = terminal.run("deploy", "openwhisk", "--dry-run")
    assert (planned.code, planned.out) == (0, "action treadle-256: would be new\n")
    assert emulator.actions == {}
    done = terminal.run("deploy", "openwhisk")
    assert (done.code, done.out) == (0, "action treadle-256: new\n")
    assert emulator.actions["treadle-256"].bound["TREADLE_SECRET_TOKEN"] == SECRET
    again = terminal.run("deploy", "openwhisk", "--diff", "-o", "json")
    told = json.loads(again.out)
    assert told["resources"] == [{"resource": "action treadle-256", "did": "unchanged", "differs": []}]
    assert told["code"] == {"image": IMAGE}
    assert SECRET not in "".join([planned.out, planned.err, done.out, done.err, again.out, again.err])


def test_a_template_and_its_package_are_written_and_nothing_is_called(terminal: Terminal) -> None:
    lines = ("[lab.executors.functions]", 'kind = "lambda"', "files = true", 'endpoint = "http://127.0.0.1:9"')
    profile(terminal, *lines, "[lab.executors.functions.deploy]", 'secrets = ["token"]', store="s3://bucket/treadle")
    done = terminal.run("deploy", "lambda", "--template", "treadle.yaml")
    assert done.code == 0, done.err
    text = (terminal.folder / "treadle.yaml").read_text()
    assert {"Function1024", "Function2048", "Function4096", "Role"} <= yaml.safe_load(text)["Resources"].keys()
    assert SECRET not in text
    assert "&id" not in text, "CloudFormation reads no YAML aliases"
    assert (terminal.folder / "treadle.zip").stat().st_size < 40_000_000


def test_dry_run_lists_missing_lambda_functions_and_makes_none(terminal: Terminal) -> None:
    emulator = LambdaEmulator(terminal.folder / "emulator").start()
    try:
        lines = ("[lab.executors.functions]", 'kind = "lambda"', "files = true", "sizes = [512]")
        place = (f'endpoint = "{emulator.endpoint}"', f'region = "{REGION}"')
        role = ("[lab.executors.functions.deploy]", 'role = "arn:aws:iam::123456789012:role/given"')
        profile(terminal, *lines, *place, *role, f'image = "{IMAGE}"')
        done = terminal.run("deploy", "lambda", "--dry-run", **emulator.credentials)
        assert (done.code, done.out) == (0, "function treadle-512: would be new\n"), done.err
        assert {method for method, _ in emulator.functions.calls} == {"GET"}
    finally:
        emulator.stop()


def test_a_folder_that_is_not_empty_takes_no_image(terminal: Terminal, emulator: OpenWhiskEmulator) -> None:
    openwhisk_profile(terminal, emulator, "files = true")
    (terminal.folder / "image").mkdir()
    (terminal.folder / "image" / "mine").touch()
    done = terminal.run("deploy", "openwhisk", "--dockerfile", "image")
    assert (done.code, "is not empty" in done.err) == (2, True)


def test_a_store_that_functions_cannot_see_is_refused(terminal: Terminal, emulator: OpenWhiskEmulator) -> None:
    openwhisk_profile(terminal, emulator)
    done = terminal.run("deploy", "openwhisk")
    assert done.code == 2
    assert "a folder of this machine, which functions cannot see" in done.err
    assert "s3://" in done.err


def test_without_a_table_the_hint_is_one(terminal: Terminal) -> None:
    profile(terminal)
    done = terminal.run("deploy", "openwhisk")
    assert done.code == 2
    assert 'endpoint = "https://openwhisk.example.com"' in done.err


def test_deploy_takes_a_name_when_several_tables_have_one_kind(terminal: Terminal) -> None:
    profile(terminal, "[lab.executors.one]", 'kind = "lambda"', "[lab.executors.two]", 'kind = "lambda"')
    done = terminal.run("deploy", "lambda")
    assert (done.code, "one, two" in done.err, "--executor" in done.err) == (2, True, True)


def test_a_file_called_lambda_is_a_workflow(terminal: Terminal) -> None:
    profile(terminal)
    (terminal.folder / "lambda").write_text("no workflow")
    done = terminal.run("deploy", "lambda")
    assert done.code != 0
    assert "executor" not in done.err
