"""`open` and `os` on objects of a store, and on files as before."""

from __future__ import annotations

import os as real
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from treadle.multiprocessing import Pool
from treadle.multiprocessing.files import open, os
from treadle.primitives.stores import object_files as files
from treadle.primitives.stores.store import Store
from treadle.primitives.testing.s3 import seaweedfs


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    with seaweedfs() as endpoint, pytest.MonkeyPatch.context() as patch:
        for name, value in endpoint.environment.items():
            patch.setenv(name, value)
        patch.setenv("AWS_ENDPOINT_URL", endpoint.url)
        yield "s3://treadle/files"
    files._open.cache_clear()  # private: the server is gone


@pytest.fixture(params=["memory", "s3", "folder"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A folder of its own for each test, in a store or on the disk."""
    found: dict[str, Any] = {
        "memory": lambda: f"memory://{tmp_path.name}",
        "s3": lambda: f"{request.getfixturevalue('s3')}/{tmp_path.name}",
        "folder": lambda: str(tmp_path),
    }
    return str(found[request.param]())


def test_text_and_bytes_are_read_as_they_were_written(root: str) -> None:
    with open(f"{root}/text", "w", encoding="utf-8") as file:
        print("ä", 1, file=file)
        file.write("second\n")
    with open(f"{root}/text", encoding="utf-8") as file:
        assert list(file) == ["ä 1\n", "second\n"]
    with open(f"{root}/text", "rb") as file:
        assert file.read() == "ä 1\nsecond\n".encode()
    with open(f"{root}/text", "w") as file:
        file.write("new")
    with open(f"{root}/text") as file:
        assert file.read() == "new"


def test_range_of_a_large_file_is_read(root: str) -> None:
    data = bytes(range(256)) * 80_000
    with open(f"{root}/large", "wb") as file:
        assert file.write(data) == len(data)
    with open(f"{root}/large", "rb") as file:
        assert file.seek(-10, real.SEEK_END) == len(data) - 10
        assert file.read() == data[-10:]
        assert file.seek(6_000_000) == 6_000_000
        assert file.read(5_000_000) == data[6_000_000:11_000_000]
        assert file.tell() == 11_000_000
    assert os.path.getsize(f"{root}/large") == len(data)
    assert os.path.getmtime(f"{root}/large") > 1e9


def test_folders_are_listed(root: str) -> None:
    for name in ("a/1", "a/b/2", "c", "a/3"):
        os.makedirs(os.path.dirname(f"{root}/{name}"), exist_ok=True)
        with open(f"{root}/{name}", "w") as file:
            file.write(name)
    assert sorted(os.listdir(root)) == ["a", "c"]
    assert sorted(os.listdir(f"{root}/a/")) == ["1", "3", "b"]
    found = {top.removeprefix(root): (sorted(folders), sorted(names)) for top, folders, names in os.walk(root)}
    assert found == {"": (["a"], ["c"]), "/a": (["b"], ["1", "3"]), "/a/b": ([], ["2"])}
    assert [os.path.exists(f"{root}/{name}") for name in ("a", "a/1", "d")] == [True, True, False]
    assert [os.path.isdir(f"{root}/{name}") for name in ("a", "a/1", "d")] == [True, False, False]
    assert [os.path.isfile(f"{root}/{name}") for name in ("a", "a/1", "d")] == [False, True, False]
    os.remove(f"{root}/a/1")
    assert not os.path.exists(f"{root}/a/1")


def test_errors_are_the_errors_of_files(root: str) -> None:
    for attempt in (lambda: open(f"{root}/no"), lambda: os.remove(f"{root}/no"), lambda: os.path.getsize(f"{root}/no")):
        with pytest.raises(FileNotFoundError):
            attempt()
    with open(f"{root}/once", "x") as file:
        file.write("1")
    with pytest.raises(FileExistsError):
        open(f"{root}/once", "x")
    with pytest.raises(ValueError, match="mode"):
        open(f"{root}/once", "rw")


def test_object_that_is_replaced_while_it_is_read_is_an_error() -> None:
    store = Store.open("memory://replaced")
    store.put("a", b"x" * (8 << 20))
    with open("memory://replaced/a", "rb") as file:
        assert file.read(1) == b"x"
        store.put("a", b"y" * (8 << 20))
        with pytest.raises(OSError, match="replaced while it was read"):
            file.read()


def test_object_is_there_when_its_file_is_closed() -> None:
    with open("memory://closing/a", "w") as file:
        file.write("1")
        file.flush()
        assert not os.path.exists("memory://closing/a")
    assert os.path.exists("memory://closing/a")


def test_other_names_come_from_the_modules() -> None:
    assert os.getpid() == real.getpid()
    assert os.path.join("a", "b") == "a/b"
    with pytest.raises(ValueError, match="mode 'a'"):
        open("memory://x/a", "a")


def test_processes_of_a_pool_read_objects(s3: str) -> None:
    def count_words(path: str) -> int:
        with files.open(path) as file:
            return sum(len(line.split()) for line in file)

    for number in range(4):
        with open(f"{s3}/pool/{number}", "w") as file:
            file.write("word word\n" * number)
    paths = [f"{s3}/pool/{name}" for name in sorted(os.listdir(f"{s3}/pool"))]
    with Pool(2) as pool:
        assert pool.map(count_words, paths) == [0, 2, 4, 6]
