"""Views of files whose memory is written again: no view ever changes, and a name means the same bytes for ever."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from shutil import rmtree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.primitives.errors import MissingError
from treadle.primitives.stores import atomic_files, page_pool, shared_memory
from treadle.primitives.stores.file_views import LEAST, FileViews, read_file, try_lock
from treadle.primitives.stores.kept_mappings import KeptMappings
from treadle.primitives.stores.shared_memory import SHARED_MEMORY, HostFolder


@pytest.fixture
def folder() -> Iterator[HostFolder]:
    root = SHARED_MEMORY / f"treadle-test-{os.urandom(6).hex()}"
    yield HostFolder(root / "host")
    rmtree(root)


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> FileViews:
    """The views of host folders, which keep every mapping."""
    views = FileViews(KeptMappings(kept_from=1))
    monkeypatch.setattr(shared_memory, "_views", views)
    return views


def _put(folder: HostFolder, name: str, byte: int, size: int = LEAST) -> None:
    folder.put(name, [bytes([byte]) * size])


def _address(view: memoryview) -> int:
    return int(np.frombuffer(view, np.uint8).ctypes.data)


def _mapping(address: int) -> str:
    """The line of the mapping that has an address."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        start, stop = (int(bound, 16) for bound in line.split()[0].split("-"))
        if start <= address < stop:
            return line
    return ""


def test_the_pages_of_a_block_stay_mapped_for_the_next_one(folder: HostFolder, kept: FileViews) -> None:
    _put(folder, "r1/s/a", 1)
    view = folder.map("r1/s/a")
    before = _address(view)
    del view
    folder.delete_run("r1")
    _put(folder, "r2/s/b", 2)
    view = folder.map("r2/s/b")
    assert _address(view) == before
    assert view == bytes([2]) * LEAST


def test_the_newest_of_equal_spares_is_written_first(folder: HostFolder) -> None:
    names = ["a", "b", "c"]
    for name in names:
        _put(folder, f"r1/s/{name}", 1)
    wanted = {name: folder.path(f"r1/s/{name}").stat().st_ino for name in names}
    for name in names:
        folder.delete(f"r1/s/{name}")
    for name in reversed(names):
        _put(folder, f"r2/s/{name}", 2)
        assert folder.path(f"r2/s/{name}").stat().st_ino == wanted[name]


@pytest.mark.parametrize("size", [LEAST - 1, LEAST])
def test_a_mapping_cannot_be_written_at_all(folder: HostFolder, kept: FileViews, size: int) -> None:
    _put(folder, "r1/s/a", 1, size)
    view = folder.map("r1/s/a")
    assert view.readonly
    assert _mapping(_address(view)).split()[1] == "r--s"


def test_large_mappings_are_kept_up_to_a_number_of_bytes(folder: HostFolder) -> None:
    views = FileViews(KeptMappings(kept_from=2 * LEAST, most=5 * LEAST))

    def address(name: str) -> int:
        return _address(views.view(folder.path(f"r1/s/{name}")))

    for name, size in (("small", 1), ("a", 2), ("b", 2), ("larger", 6)):
        _put(folder, f"r1/s/{name}", 1, size * LEAST)
    assert not _mapping(address("small"))
    assert not _mapping(address("larger"))
    first, second = address("a"), address("b")
    assert _mapping(first)
    assert _mapping(second)
    assert address("a") == first
    _put(folder, "r1/s/c", 1, 2 * LEAST)
    third = address("c")
    assert _mapping(first)
    assert "/c" in _mapping(third)
    assert not _mapping(second) or second == third, "the one that was not used for the longest time has to go"


@pytest.mark.parametrize("viewed", [False, True])
def test_removed_memory_is_free_although_it_stays_mapped(folder: HostFolder, kept: FileViews, viewed: bool) -> None:
    _put(folder, "r1/s/a", 1)
    view = folder.map("r1/s/a")
    descriptor = os.open(folder.path("r1/s/a"), os.O_RDONLY)
    mapped = _address(view)
    folder.delete_run("r1")
    if not viewed:
        del view
    folder.spares.drop()
    assert (os.fstat(descriptor).st_blocks > 0) == viewed
    os.close(descriptor)
    if viewed:
        assert view == bytes([1]) * LEAST
        del view
        assert not _mapping(mapped), "the last view frees it"


def test_a_run_that_the_spares_have_no_room_for_is_freed_as_well(
    folder: HostFolder, kept: FileViews, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_pool, "_MOST", 0)
    _put(folder, "r1/s/a", 1)
    folder.map("r1/s/a")
    descriptor = os.open(folder.path("r1/s/a"), os.O_RDONLY)
    folder.delete("r1/s/a")
    assert os.fstat(descriptor).st_blocks == 0
    os.close(descriptor)


def test_a_mapping_of_a_removed_file_is_not_taken_for_another(folder: HostFolder) -> None:
    mappings = KeptMappings(kept_from=1)
    views = FileViews(mappings)
    _put(folder, "r1/s/a", 1)
    views.view(folder.path("r1/s/a"))
    os.unlink(folder.path("r1/s/a"))
    _put(folder, "r1/s/b", 2)
    status = folder.path("r1/s/b").stat()
    kept = mappings._kept  # private: inode numbers do not come again at will
    (_, one) = kept.popitem()
    kept[status.st_dev, status.st_ino, status.st_size] = one
    assert views.view(folder.path("r1/s/b")) == bytes([2]) * LEAST


def _written_again(folder: HostFolder) -> None:
    folder.delete("r1/s/a")
    _put(folder, "r2/s/b", 2)


def test_a_file_that_is_written_again_before_it_is_locked_is_missing(
    folder: HostFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    _put(folder, "r1/s/a", 1)
    lock, late = fcntl.flock, [_written_again]

    def slow(descriptor: int, how: int) -> None:
        if how & fcntl.LOCK_SH and late:
            late.pop()(folder)
        lock(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", slow)
    with pytest.raises(MissingError):
        folder.map("r1/s/a")
    assert folder.map("r2/s/b") == bytes([2]) * LEAST


def test_a_file_that_is_being_written_again_is_missing(folder: HostFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    _put(folder, "r1/s/a", 1)
    opened = os.open(folder.path("r1/s/a"), os.O_RDONLY)
    folder.delete("r1/s/a")
    (spare,) = (folder.root / ".spares").iterdir()
    with open(spare, "r+b") as file:
        assert try_lock(file.fileno())  # as its writer does
        monkeypatch.setattr(os, "open", lambda *_: os.dup(opened))
        with pytest.raises(MissingError):
            folder.map("r1/s/a")
    os.close(opened)


def test_a_short_read_returns_no_bytes_of_another_block(folder: HostFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    _put(folder, "r1/s/a", 1)
    assert folder.read("r1/s/a", LEAST - 2, 10) == bytes([1, 1])
    known = atomic_files.read_all

    def slow(descriptor: int, offset: int, length: int) -> bytes:
        _written_again(folder)
        return known(descriptor, offset, length)

    monkeypatch.setattr("treadle.primitives.stores.file_views.read_all", slow)
    with pytest.raises(FileNotFoundError) as caught:
        read_file(folder.path("r1/s/a"), 0, 10)
    assert caught.value.errno == errno.ENOENT


def test_a_forked_child_does_not_lock_what_its_parent_wrote(
    folder: HostFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    children = []

    def forking(descriptor: int, *_: object) -> None:
        if not (child := os.fork()):
            signal.pause()
        children.append(child)

    _put(folder, "r1/s/a", 1)
    folder.delete_run("r1")
    monkeypatch.setattr(page_pool, "_overwrite", forking)
    _put(folder, "r2/s/b", 2)
    try:
        assert len(folder.map("r2/s/b")) == LEAST
    finally:
        for child in children:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def test_views_and_kept_mappings_leave_no_descriptors(folder: HostFolder, kept: FileViews) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for name in "abc":
        _put(folder, f"r1/s/{name}", 1)
    views = [folder.map(f"r1/s/{name}") for name in "abcabc"]
    assert len(os.listdir("/proc/self/fd")) > before
    views.clear()
    kept.close()
    assert len(os.listdir("/proc/self/fd")) == before


Step = tuple[str, int, int]
steps = st.lists(
    st.tuples(
        st.sampled_from(["put", "delete", "map", "leave", "drop", "foreign"]), st.integers(0, 9), st.integers(1, 3)
    ),
    max_size=60,
)


@given(steps)
def test_no_view_changes_for_any_order_of_writes_reads_and_removals(steps: list[Step]) -> None:
    root = SHARED_MEMORY / f"treadle-test-{os.urandom(6).hex()}"
    world = _World(HostFolder(root / "host"), FileViews(KeptMappings(kept_from=LEAST, most=4 * LEAST)))
    try:
        for number, (what, choice, size) in enumerate(steps):
            world.steps[what](number, choice, size)
            world.check()
    finally:
        rmtree(root)


class _World:
    """Blocks, each of one byte, and views of them."""

    def __init__(self, folder: HostFolder, views: FileViews) -> None:
        self._folder, self._views = folder, views
        self._blocks: dict[str, tuple[int, int]] = {}
        self._open: list[tuple[int, int, memoryview]] = []
        self.steps: dict[str, Callable[[int, int, int], None]] = {
            "put": self._put,
            "delete": self._delete,
            "map": self._map,
            "leave": self._leave,
            "drop": lambda *_: self._folder.spares.drop(),
            "foreign": self._foreign,
        }

    def check(self) -> None:
        for byte, size, view in self._open:
            assert len(view) == size
            assert (np.frombuffer(view, np.uint8)[:: 64 << 10] == byte).all()

    def _put(self, number: int, _: int, size: int) -> None:
        self._blocks[name := f"r/s/{number}"] = number % 251, size * LEAST
        _put(self._folder, name, number % 251, size * LEAST)

    def _delete(self, _: int, choice: int, __: int) -> None:
        if name := self._chosen(choice):
            del self._blocks[name]
            self._folder.delete(name)

    def _map(self, _: int, choice: int, __: int) -> None:
        if name := self._chosen(choice):
            self._open.append((*self._blocks[name], self._views.view(self._folder.path(name))))

    def _leave(self, _: int, choice: int, __: int) -> None:
        if self._open:
            del self._open[choice % len(self._open)]

    def _foreign(self, _: int, choice: int, __: int) -> None:
        """Something else removes the file."""
        if name := self._chosen(choice):
            del self._blocks[name]
            os.unlink(self._folder.path(name))

    def _chosen(self, choice: int) -> str:
        names = sorted(self._blocks)
        return names[choice % len(names)] if names else ""
