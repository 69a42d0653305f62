"""The home is private. If not, the error names the remedy."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from treadle.executors import memory_limit
from treadle.orchestrator.environment.home import Home, room_for_blocks
from treadle.primitives.errors import UsageError
from treadle.primitives.sealing import load_or_create_key
from treadle.primitives.stores.shared_memory import HostFolder


def test_folders_are_private_for_every_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        home = Home(tmp_path / "deep" / "home")
    finally:
        os.umask(before)
    for folder in (home.path, home.store, home.server, home.driver, home.secrets, home.cache):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_home_follows_argument_then_variable_then_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    environ = {"TREADLE_HOME": str(tmp_path / "variable")}
    assert Home(tmp_path / "argument", environ).path == tmp_path / "argument"
    assert Home(environ=environ).path == tmp_path / "variable"
    assert Home(environ={}).path == tmp_path / "user" / ".treadle"


def test_home_of_an_unknown_user_is_refused() -> None:
    with pytest.raises(UsageError, match=r"~nobody-there/treadle(.|\n)*TREADLE_HOME"):
        Home(environ={"TREADLE_HOME": "~nobody-there/treadle"})


def test_home_that_others_may_write_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    with pytest.raises(UsageError, match=r"mode 0777: others may write to it(.|\n)*chmod 700"):
        Home(tmp_path)


def test_home_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match=r"cannot be made(.|\n)*TREADLE_HOME"):
        Home(tmp_path / "file" / "home")


def test_home_whose_name_is_not_utf_8_is_refused_before_a_server_starts_in_it(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"h\\udce9' is not UTF-8(.|\n)*TREADLE_HOME"):
        Home(tmp_path / "h\udce9")
    assert not list(tmp_path.iterdir())


def test_key_file_with_wrong_mode_is_refused(tmp_path: Path) -> None:
    home = Home(tmp_path)
    assert len(load_or_create_key(home.key)) == 32
    home.key.chmod(0o644)
    with pytest.raises(UsageError, match="0644"):
        load_or_create_key(home.key)


def test_secret_comes_from_its_file_before_the_variable(tmp_path: Path) -> None:
    home = Home(tmp_path, {"TREADLE_SECRET_DATA_BASE": "from variable", "TREADLE_SECRET_OTHER": "x\n"})
    assert home.secret("data-base") == "from variable"
    assert home.secret("other") == "x\n"
    file = home.secrets / "data-base"
    file.write_text("from file \n\n")
    file.chmod(0o600)
    assert home.secret("data-base") == "from file \n"


def test_missing_secret_names_both_places(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        Home(tmp_path, {}).secret("db.password")
    assert str(tmp_path / "secrets" / "db.password") in str(caught.value)
    assert "TREADLE_SECRET_DB_PASSWORD" in str(caught.value)


def test_secret_that_others_may_read_is_refused_even_with_a_variable(tmp_path: Path) -> None:
    home = Home(tmp_path, {"TREADLE_SECRET_DB": "value"})
    (home.secrets / "db").write_text("secret text")
    (home.secrets / "db").chmod(0o640)
    with pytest.raises(UsageError, match="mode 0640") as caught:
        home.secret("db")
    assert "secret text" not in str(caught.value)


@pytest.mark.parametrize("name", ["", "../key", "a/b", ".hidden", "a b"])
def test_secret_names_cannot_leave_the_folder(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="no name for a secret"):
        Home(tmp_path).secret(name)


def test_host_root_differs_by_home_and_is_the_same_through_a_link(tmp_path: Path) -> None:
    first, second = Home(tmp_path / "a"), Home(tmp_path / "b")
    (tmp_path / "link").symlink_to(first.path)
    assert first.host_root != second.host_root
    assert Home(tmp_path / "link").host_root == first.host_root
    assert first.host_root.parent.name == f"treadle-{os.geteuid()}"


@pytest.fixture
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A replacement for `/dev/shm`."""
    folder = tmp_path / "shm"
    folder.mkdir()
    monkeypatch.setattr("treadle.orchestrator.environment.home._SHARED_MEMORY", folder)
    return folder


def test_link_in_place_of_the_common_folder_is_not_followed(tmp_path: Path, memory: Path) -> None:
    target = tmp_path / "target"
    target.mkdir()
    (memory / f"treadle-{os.geteuid()}").symlink_to(target)
    root = Home(tmp_path / "home").host_root
    HostFolder(root)
    assert list(target.iterdir()) == []
    assert root.parent.name.startswith(f"treadle-{os.geteuid()}-")
    assert Home(tmp_path / "home").host_root == root


def test_common_folder_that_others_may_write_is_left_for_another_name(tmp_path: Path, memory: Path) -> None:
    taken = memory / f"treadle-{os.geteuid()}"
    taken.mkdir()
    taken.chmod(0o777)
    home = Home(tmp_path / "home")
    first = home.host_root
    assert first.parent != taken
    first.parent.symlink_to(tmp_path)  # another user took this name too
    second = home.host_root
    assert second.parent not in (taken, first.parent)
    HostFolder(second)
    assert list(taken.iterdir()) == []


def test_host_folder_makes_nothing_below_a_link(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.mkdir()
    (tmp_path / "link").symlink_to(target)
    with pytest.raises(UsageError, match="is not a folder of yours"):
        HostFolder(tmp_path / "link" / "blocks")
    assert list(target.iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to another user")
def test_common_folder_of_another_user_is_left_for_another_name(tmp_path: Path, memory: Path) -> None:
    taken = memory / f"treadle-{os.geteuid()}"
    taken.mkdir(mode=0o700)
    os.chown(taken, 65534, 65534)
    assert Home(tmp_path / "home").host_root.parent != taken


def test_host_root_falls_back_without_shared_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("treadle.orchestrator.environment.home._SHARED_MEMORY", tmp_path / "absent")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    assert Home(tmp_path / "home").host_root.is_relative_to(tmp_path / "tmp")


def test_blocks_get_half_of_shared_memory_or_of_a_smaller_control_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory_limit, "host_memory", lambda: 1 << 62)
    assert 0 < room_for_blocks(tmp_path / "user" / "home") < 1 << 61
    monkeypatch.setattr(memory_limit, "host_memory", lambda: 1000)
    assert room_for_blocks(tmp_path / "user" / "home") == 500
