"""Empty files made ahead: they are used once, by the process that made them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from treadle.primitives.stores import files_ahead
from treadle.primitives.stores.files_ahead import FilesAhead


def test_file_is_filled_once(tmp_path: Path) -> None:
    ahead = FilesAhead()
    ahead.make(tmp_path)
    ahead.make(tmp_path)
    assert len(list(tmp_path.iterdir())) == 1
    assert ahead.fill(tmp_path / "a", [b"1", b"2"])
    assert not ahead.fill(tmp_path / "b", [b"3"])
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"a": b"12"}


def test_file_that_was_removed_is_not_missed(tmp_path: Path) -> None:
    ahead = FilesAhead()
    ahead.make(tmp_path)
    (made,) = tmp_path.iterdir()
    made.unlink()
    assert not ahead.fill(tmp_path / "a", [b"1"])
    ahead.make(tmp_path / "nowhere")
    assert not ahead.fill(tmp_path / "nowhere" / "a", [b"1"])


def test_forked_process_leaves_the_file_to_its_parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ahead = FilesAhead()
    ahead.make(tmp_path)
    monkeypatch.setattr(os, "getpid", lambda: -1)
    assert not ahead.fill(tmp_path / "a", [b"1"])
    assert len(list(tmp_path.iterdir())) == 1


def test_oldest_of_many_files_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files_ahead, "_MOST", 2)
    ahead = FilesAhead()
    folders = [tmp_path / str(number) for number in range(3)]
    for folder in folders:
        folder.mkdir()
        ahead.make(folder)
    assert [len(list(folder.iterdir())) for folder in folders] == [0, 1, 1]
