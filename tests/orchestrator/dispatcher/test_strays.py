"""The next driver of any home frees the shared memory of homes that were removed."""

from __future__ import annotations

import gc
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from treadle.client.testing.service import service
from treadle.orchestrator.dispatcher.blocks.orphans import MARK, claim, remove_strays, remove_strays_of_user
from treadle.orchestrator.environment.home import Home
from treadle.primitives.stores.shared_memory import HostFolder

Owned = Callable[[str], HostFolder]


@pytest.fixture
def owned(tmp_path: Path) -> Owned:
    """Makes the memory of a home, with a block in it."""

    def make(name: str) -> HostFolder:
        home = tmp_path / f"home-{name}"
        home.mkdir()
        host = HostFolder(tmp_path / "memory" / name)
        claim(host, home)
        host.put("run/s/0.1", [b"block"])
        return host

    return make


def forget(tmp_path: Path, name: str) -> None:
    shutil.rmtree(tmp_path / f"home-{name}")


def test_memory_of_a_home_that_is_gone_is_removed(owned: Owned, tmp_path: Path) -> None:
    for name in ("gone", "there"):
        owned(name)
    gc.collect()
    forget(tmp_path, "gone")
    assert remove_strays(tmp_path / "memory") == ["gone"]
    assert [path.name for path in (tmp_path / "memory").iterdir()] == ["there"]


def test_memory_in_use_stays_though_its_home_cannot_be_seen(owned: Owned, tmp_path: Path) -> None:
    host = owned("elsewhere")
    forget(tmp_path, "elsewhere")
    assert remove_strays(tmp_path / "memory") == []
    assert bytes(host.map("run/s/0.1")) == b"block"


def test_memory_that_says_nothing_of_its_home_stays(tmp_path: Path) -> None:
    host = HostFolder(tmp_path / "memory" / "old")
    (tmp_path / "memory" / "empty").mkdir()
    (tmp_path / "memory" / "empty" / MARK).touch()
    (tmp_path / "memory" / "file").touch()
    assert remove_strays(tmp_path / "memory") == []
    assert host.runs() == []


def test_folder_of_one_home_is_removed_with_the_memory_when_the_home_is_gone(tmp_path: Path) -> None:
    """The name of such a folder has a random part, which only its home knows."""
    names = {home: f"treadle-{os.geteuid()}-{number:016x}" for number, home in enumerate(("gone", "there", "used"))}
    hosts = {}
    for home, name in names.items():
        (tmp_path / home).mkdir()
        hosts[home] = HostFolder(tmp_path / "memory" / name / "0123")
        claim(hosts[home], tmp_path / home)
    foreign = tmp_path / "memory" / f"treadle-{os.geteuid()}-of-another-program"
    foreign.mkdir()
    del hosts["gone"], hosts["there"]
    gc.collect()
    for home in ("gone", "used"):
        (tmp_path / home).rmdir()
    common = tmp_path / "memory" / f"treadle-{os.geteuid()}"
    common.mkdir()
    assert remove_strays_of_user(common) == ["0123"]
    left = {path.name for path in (tmp_path / "memory").iterdir()}
    assert left == {names["there"], names["used"], foreign.name, common.name}
    assert hosts["used"].root.is_dir()


def test_mark_is_private_and_not_listed_as_a_run(owned: Owned) -> None:
    host = owned("mine")
    assert host.runs() == ["run"]
    assert (host.root / MARK).stat().st_mode & 0o777 == 0o600


async def test_a_driver_says_whose_its_memory_is(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    async with service(home):
        assert (home.host_root / MARK).read_text() == str(home.path)
    shutil.rmtree(home.host_root)
