"""The environment of workers."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from treadle.executors.worker.environment import Surroundings, WorkFolder, secret_variable, worker_environment

_EMPTY = worker_environment({})


@pytest.mark.parametrize(
    "name",
    ["TEMPORAL_API_KEY", "TREADLE_SECRET_TOKEN", "TREADLE_KEY_FILE", "treadle_key", "__OW_API_KEY", "WSK_AUTH"],
)
def test_credentials_of_the_driver_are_withheld(name: str) -> None:
    assert worker_environment({name: "x"}) == _EMPTY


@pytest.mark.parametrize("name", ["AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL", "PATH", "LD_LIBRARY_PATH", "MY_SETTING"])
def test_what_stores_and_user_code_need_stays(name: str) -> None:
    assert worker_environment({name: "x"})[name] == "x"


@pytest.mark.parametrize(
    ("name", "variable"),
    [
        ("token", "TREADLE_SECRET_TOKEN"),
        ("db-password", "TREADLE_SECRET_DB_PASSWORD"),
        ("kafka.orders", "TREADLE_SECRET_KAFKA_ORDERS"),
    ],
)
def test_every_name_of_a_secret_has_a_variable(name: str, variable: str) -> None:
    assert secret_variable(name) == variable


def test_what_fixes_results_cannot_be_overridden() -> None:
    assert worker_environment({"PYTHONHASHSEED": "random", "PYTHONUTF8": "0"}) == _EMPTY


def test_defaults_give_way_to_the_drivers_settings() -> None:
    name = "ARROW_DEFAULT_MEMORY_POOL"
    assert worker_environment({name: "mimalloc"})[name] == "mimalloc"
    assert _EMPTY[name] == "system"


def test_what_user_code_changed_around_it_is_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAKEN", "käse")
    monkeypatch.setenv("CHANGED", "old")
    settings = dict(os.environ)
    before = Surroundings()
    del os.environ["TAKEN"]
    os.environ["CHANGED"] = "new"
    os.environ["ADDED"] = "too"
    before.restore()
    assert dict(os.environ) == settings


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> WorkFolder:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    monkeypatch.chdir(tmp_path)
    made = WorkFolder()
    made.enter()
    return made


def test_work_folder_is_empty_again_and_links_are_not_followed(folder: WorkFolder, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").touch()
    Path("file").touch()
    Path("deep/deeper").mkdir(parents=True)
    Path("link").symlink_to(kept)
    own = os.getcwd()
    os.chdir("deep")
    folder.empty()
    assert (os.getcwd(), os.listdir()) == (own, [])
    assert (kept / "file").exists()


def test_work_folder_is_recreated_when_user_code_removed_it(folder: WorkFolder) -> None:
    os.rmdir(os.getcwd())
    folder.empty()
    assert os.listdir(os.getcwd()) == []


def test_work_folder_is_recreated_when_a_link_replaced_it(folder: WorkFolder, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").touch()
    own = Path.cwd()
    own.rmdir()
    own.symlink_to(kept)
    folder.empty()
    assert Path.cwd() not in (own, kept)
    assert (kept / "file").exists()
