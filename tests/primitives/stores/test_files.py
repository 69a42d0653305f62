from __future__ import annotations

import contextlib
import errno
import fnmatch
import itertools
import os
import uuid
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.primitives.errors import MissingError, StoreError, UsageError
from treadle.primitives.stores.input_files import absolute_uri, glob_matches, list_files, map_file, read_range
from treadle.primitives.stores.store import ObjectInfo, ObjectStore, Store


def _names(base: Path, pattern: str) -> list[str]:
    return [os.path.relpath(info.uri, base) for info in list_files(pattern, base)]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in ("b.txt", "a.txt", "é.txt", "Z.txt", "x.csv", "deep/er/c.txt", "deep/d.txt", ".hidden.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    return tmp_path


def test_a_listing_is_sorted_by_the_bytes_of_the_names(tree: Path) -> None:
    assert _names(tree, "*.txt") == ["Z.txt", "a.txt", "b.txt", "é.txt"]


def test_two_stars_enter_folders(tree: Path) -> None:
    assert _names(tree, "**/*.txt") == ["Z.txt", "a.txt", "b.txt", "deep/d.txt", "deep/er/c.txt", "é.txt"]


def test_a_path_a_file_url_and_a_relative_name_are_one_file(tree: Path) -> None:
    path = tree / "a.txt"
    assert list_files(str(path)) == list_files(path.as_uri()) == list_files("a.txt", tree)
    assert absolute_uri("s3://bucket/x/../*.txt", tree) == "s3://bucket/x/../*.txt"


def test_wildcards_leave_out_what_an_output_keeps_for_itself(tree: Path) -> None:
    (tree / "_manifest.json").write_text("{}")
    (tree / "_owner.json").write_text("{}")
    (tree / "c.json").write_text("1")
    assert _names(tree, "*.json") == ["c.json"]


@pytest.mark.parametrize("pattern", ["none.txt", "none/*.txt", "*.none"])
def test_nothing_found_names_the_pattern_and_the_place(tree: Path, pattern: str) -> None:
    with pytest.raises(UsageError) as caught:
        list_files(pattern, tree)
    assert pattern in str(caught.value)
    assert str(tree / pattern) in str(caught.value)


def test_empty_glob_names_the_files_of_the_folder(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tree)
    (tree / "project").mkdir()
    for pattern in ("a.txt", "?.txt"):
        with pytest.raises(UsageError, match="names count from the workflow's folder") as caught:
            list_files(pattern, tree / "project")
        assert str(tree / pattern) in caught.value.hint


def test_a_folder_is_refused_with_the_pattern_that_reads_it(tree: Path) -> None:
    with pytest.raises(UsageError, match=r"deep/\*"):
        list_files("deep", tree)


@pytest.mark.parametrize("look", [1, 2, 3])
@pytest.mark.parametrize("pattern", ["a.txt", "a.t*"])
def test_what_goes_while_it_is_listed_was_there_or_was_not(
    tree: Path, pattern: str, look: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks, stat = itertools.count(1), os.stat

    def gone(path: str, **how: Any) -> os.stat_result:
        if str(path).endswith("a.txt") and next(looks) == look:
            os.unlink(path)
        return stat(path, **how)

    monkeypatch.setattr(os, "stat", gone)
    with contextlib.suppress(UsageError):  # the file may count as missing
        assert _names(tree, pattern) == ["a.txt"]


def test_a_pipe_is_refused_since_it_has_no_bytes_of_its_own(tree: Path) -> None:
    os.mkfifo(tree / "pipe.txt")
    with pytest.raises(UsageError, match="no regular file"):
        list_files("pipe.txt", tree)
    assert "pipe.txt" not in _names(tree, "*.txt")


def test_file_is_gone_when_its_folder_became_a_file(tree: Path) -> None:
    (tree / "folder").mkdir()
    (tree / "folder" / "a").write_text("1")
    (info,) = list_files("folder/a", tree)
    (tree / "folder" / "a").unlink()
    (tree / "folder").rmdir()
    (tree / "folder").touch()
    with pytest.raises(MissingError):
        read_range(info, 0, 1)


def test_refusal_of_a_disk_is_an_error_of_the_store(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (info,) = list_files("a.txt", tree)

    def broken(*_: int) -> bytes:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "pread", broken)
    with pytest.raises(StoreError) as caught:
        read_range(info, 0, 1)
    assert caught.value.retryable


def test_a_store_lists_like_a_folder(tree: Path) -> None:
    root = f"memory://{uuid.uuid4().hex}"
    store = Store.open(root)
    for path in sorted(tree.rglob("*.*")):
        store.put(str(path.relative_to(tree)), path.read_bytes())
    for pattern in ("*.txt", "**/*.txt", "deep/**/*.txt", "?.txt", "[ab].txt", "[!ab].txt", "x.csv", "deep/*/c.txt"):
        expected = _names(tree, pattern)
        assert [info.uri.removeprefix(root + "/") for info in list_files(f"{root}/{pattern}")] == expected
    with pytest.raises(UsageError, match="no file matches"):
        list_files(f"{root}/none.txt")


def test_a_pattern_in_one_folder_of_a_store_looks_into_no_other(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = f"memory://{uuid.uuid4().hex}"
    for path in sorted(tree.rglob("*.*")):
        Store.open(root).put(str(path.relative_to(tree)), path.read_bytes())
    monkeypatch.setattr(ObjectStore, "list", None)
    for pattern in ("*.txt", "deep/*", "deep/er/[c].txt"):
        found = [info.uri.removeprefix(f"{root}/") for info in list_files(f"{root}/{pattern}")]
        assert found == _names(tree, pattern)


@pytest.mark.parametrize("folder", ["", "/", "/deep/"])
def test_a_folder_of_a_store_is_refused_with_the_pattern_that_reads_it(folder: str) -> None:
    root = f"memory://{uuid.uuid4().hex}"
    with pytest.raises(UsageError, match="is a folder, not a file") as caught:
        list_files(root + folder)
    assert f"{root}{folder.rstrip('/')}/*" in caught.value.hint


def test_folder_markers_of_consoles_are_not_listed_as_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """S3 lists `folder/` as an object without bytes. Its name is empty, since obstore drops the slash."""
    root = f"memory://{uuid.uuid4().hex}"
    for name, data in {"folder": b"", "empty": b"", "a": b"1"}.items():
        Store.open(root).put(name, data)
    head = ObjectStore.head
    monkeypatch.setattr(ObjectStore, "head", lambda one, name: None if name == "folder" else head(one, name))
    assert [info.uri.removeprefix(f"{root}/") for info in list_files(f"{root}/**")] == ["a", "empty"]


def test_a_store_reads_ranges_and_refuses_a_replaced_object() -> None:
    root = f"memory://{uuid.uuid4().hex}"
    store = Store.open(root)
    store.put("folder/a", b"0123456789")
    [info] = list_files(f"{root}/folder/*")
    assert read_range(info, 3, 6) == b"345"
    assert bytes(map_file(info)) == b"0123456789"
    store.put("folder/a", b"9876543210")
    with pytest.raises(UsageError, match="changed since the run started"):
        read_range(info, 3, 6)
    store.delete(["folder/a"])
    with pytest.raises(MissingError, match="folder/a is gone"):
        read_range(info, 3, 6)


def test_an_object_that_is_replaced_before_it_is_read_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """At any time, since the read bytes may belong to the new object."""
    root = f"memory://{uuid.uuid4().hex}"
    store = Store.open(root)
    store.put("a", b"0123456789")
    [info] = list_files(f"{root}/a")
    read = ObjectStore.get_part

    def late(one: ObjectStore, name: str, start: int, length: int) -> tuple[bytes, ObjectInfo | None]:
        store.put("a", b"9876543210")
        return read(one, name, start, length)

    monkeypatch.setattr(ObjectStore, "get_part", late)
    with pytest.raises(UsageError, match="changed since the run started"):
        read_range(info, 3, 6)


def test_a_changed_file_is_refused_by_name(tree: Path) -> None:
    [info] = list_files("a.txt", tree)
    assert read_range(info, 0, 3) == b"a.t"
    (tree / "a.txt").write_text("b.txt")
    with pytest.raises(UsageError, match=r"a\.txt changed since the run started"):
        read_range(info, 0, 3)
    with pytest.raises(UsageError, match=r"a\.txt changed since the run started"):
        map_file(info)
    (tree / "a.txt").unlink()
    with pytest.raises(MissingError, match=r"a\.txt is gone"):
        read_range(info, 0, 3)


@given(
    name=st.text("ab.-]\\^", min_size=1, max_size=6).filter(lambda name: not name.startswith(".")),
    pattern=st.text("ab.-]\\^*?[!", min_size=1, max_size=6),
)
def test_a_pattern_of_one_step_means_what_fnmatch_says(name: str, pattern: str) -> None:
    assert glob_matches(pattern, name) == fnmatch.fnmatchcase(name, pattern)
