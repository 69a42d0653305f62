"""Shared memory that is reused: never while a view of it exists, and no view ever changes."""

from __future__ import annotations

import fcntl
import multiprocessing
import os
from collections.abc import Iterator
from pathlib import Path
from shutil import rmtree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from primitives.channels import functions

from treadle.primitives.blocks import Blocks
from treadle.primitives.channels.io.payloads import ValueCodec
from treadle.primitives.channels.io.shared_memory import Segments
from treadle.primitives.errors import StoreError
from treadle.primitives.stores.shared_memory import SHARED_MEMORY, HostFolder
from treadle.primitives.stores.store import Store

SIZE = 100_000
_context = multiprocessing.get_context("forkserver")


@pytest.fixture
def host(tmp_path: Path) -> HostFolder:
    return HostFolder(tmp_path / "private" / "host")


@pytest.fixture
def writer(host: HostFolder) -> Iterator[Segments]:
    segments = Segments(host)
    yield segments
    segments.close()


@pytest.fixture
def reader(host: HostFolder) -> Iterator[Segments]:
    segments = Segments(host)
    yield segments
    segments.close()


def put(writer: Segments, name: str, byte: int, size: int = SIZE) -> None:
    writer.write(name, [bytes([byte]) * (size // 2), bytearray([byte]) * (size - size // 2)])


def inode(host: HostFolder, name: str) -> int:
    return os.stat(host.path(name)).st_ino


def test_memory_is_written_again_when_the_last_view_of_it_has_ended(
    host: HostFolder, writer: Segments, reader: Segments
) -> None:
    put(writer, "a", 1)
    view = reader.read("a", 0, SIZE)
    assert view is not None
    array = np.frombuffer(view, np.uint8)[10:-10].reshape(2, -1)
    del view
    first = inode(host, "a")
    writer.take_back("a")
    put(writer, "b", 2)
    assert inode(host, "b") != first
    assert (array == 1).all()
    del array
    put(writer, "c", 3)
    assert inode(host, "c") == first


@pytest.mark.parametrize("run", ["nightly", "nightly/load"])
def test_values_of_every_run_go_into_memory_that_is_there(run: str, host: HostFolder) -> None:
    """Also the values of a run that another run started, whose folder has another name."""
    values = ValueCodec(Blocks(Store.open("memory://segments"), run, host), "channels/m", lambda: False)
    first = values.encode(np.zeros(SIZE, np.uint8))
    values.take_back(first)
    second = values.encode(np.ones(SIZE, np.uint8))
    assert first.slice is not None
    assert values.decode(second).all()
    assert len([path for path in host.root.rglob("*") if path.is_file()]) == 1
    values.close()


def test_a_name_means_the_same_bytes_for_ever(host: HostFolder, writer: Segments, reader: Segments) -> None:
    put(writer, "a", 1)
    writer.take_back("a")
    put(writer, "b", 2)
    assert reader.read("a", 0, SIZE) is None
    assert bytes(reader.read("b", 5, SIZE - 5) or b"") == bytes([2]) * (SIZE - 5)
    assert bytes(reader.read("b", 5, 10) or b"") == bytes([2]) * 10
    assert not host.path("a").exists()


def test_memory_written_again_between_opening_and_locking_is_not_taken_for_the_old(
    writer: Segments, reader: Segments, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(writer, "a", 1)
    lock, late = fcntl.flock, ["b"]

    def slow(descriptor: int, how: int) -> None:
        if how & fcntl.LOCK_SH and late:
            writer.take_back("a")
            put(writer, late.pop(), 2)
        lock(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", slow)
    assert reader.read("a", 0, SIZE) is None
    assert reader.read("b", 0, SIZE) == bytes([2]) * SIZE


def test_memory_reserved_for_a_result_is_sent_as_it_is(host: HostFolder, writer: Segments, reader: Segments) -> None:
    assert writer.reserve(SIZE, 64) is None  # nothing to reuse yet
    put(writer, "a", 1)
    put(writer, "b", 1)
    writer.take_back("a")
    writer.take_back("b")
    reserved, given_back = writer.reserve(SIZE, 64), writer.reserve(SIZE, 64)
    assert reserved is not None
    assert given_back is not None
    assert reader.read("a", 0, SIZE) is reader.read("b", 0, SIZE) is None
    reserved.memory[64:SIZE] = bytes([7]) * (SIZE - 64)
    writer.write("c", [bytes(64), bytes([8]) * (SIZE - 64)], reserved)  # data in place is not copied
    assert reader.read("c", 0, SIZE) == bytes(64) + bytes([7]) * (SIZE - 64)
    writer.release(given_back)
    put(writer, "d", 4)
    assert reader.read("d", 0, SIZE) == bytes([4]) * SIZE
    assert sorted(path.name for path in host.root.iterdir()) == ["c", "d"]


def test_views_cannot_be_written(writer: Segments, reader: Segments) -> None:
    put(writer, "a", 1)
    view = reader.read("a", 0, SIZE)
    assert isinstance(view, memoryview)
    assert view.readonly
    with pytest.raises(ValueError, match="WRITEABLE"):
        np.frombuffer(view, np.uint8).flags.writeable = True


def test_a_process_that_dies_looks_no_more(host: HostFolder, writer: Segments) -> None:
    put(writer, "a", 1)
    pipe, theirs = _context.Pipe()
    process = _context.Process(target=functions.looks_at_a_segment, args=(host.root, SIZE, theirs), daemon=True)
    process.start()
    theirs.close()
    assert pipe.poll(60)
    assert pipe.recv() is True
    first = inode(host, "a")
    writer.take_back("a")
    put(writer, "b", 2)
    assert inode(host, "b") != first
    process.kill()
    process.join()
    put(writer, "c", 3)
    assert inode(host, "c") == first


def test_kept_segments_are_bounded_and_released_when_memory_is_full(
    host: HostFolder, writer: Segments, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"n{number}" for number in range(8)]
    for name in names:
        put(writer, name, 1)
    for name in names:
        writer.take_back(name)
    assert len(list(host.root.iterdir())) == 3
    original, full = host.put, [StoreError("full", retryable=True)]

    def once_full(name: str, buffers: list[bytes]) -> None:
        if full:
            raise full.pop()
        original(name, buffers)

    monkeypatch.setattr(host, "put", once_full)
    put(writer, "larger", 2, 2 * SIZE)
    assert [path.name for path in host.root.iterdir()] == ["larger"]


def test_unread_segment_stays_when_its_writer_ends(host: HostFolder, reader: Segments) -> None:
    writer, descriptors = Segments(host), len(os.listdir("/proc/self/fd"))
    put(writer, "a", 1)
    writer.take_back("a")
    put(writer, "b", 2)  # into the same memory
    put(writer, "c", 3)
    writer.take_back("c")
    writer.close()
    assert [path.name for path in host.root.iterdir()] == ["b"]
    assert reader.read("b", 0, SIZE) == bytes([2]) * SIZE
    reader.close()
    assert len(os.listdir("/proc/self/fd")) == descriptors


def test_writer_goes_on_after_its_run_was_removed(host: HostFolder, writer: Segments, reader: Segments) -> None:
    put(writer, "run/a", 1)
    writer.take_back("run/a")
    host.delete_run("run")
    writer.take_back("run/b")
    put(writer, "run/c", 3)
    assert reader.read("run/c", 0, SIZE) == bytes([3]) * SIZE


steps = st.lists(
    st.tuples(st.sampled_from(["write", "take back", "look", "look away"]), st.integers(0, 9), st.integers(1, 3))
)


@given(steps)
def test_no_view_changes_for_any_order_of_writes_and_reads(steps: list[tuple[str, int, int]]) -> None:
    root = SHARED_MEMORY / f"treadle-test-{os.urandom(6).hex()}"
    host = HostFolder(root / "host")
    writer, reader = Segments(host), Segments(host)
    out: dict[str, int] = {}
    views: list[tuple[int, object]] = []
    try:
        for number, (what, choice, size) in enumerate(steps):
            if what == "write":
                put(writer, f"n{number}", number % 251, size * 70_000)
                out[f"n{number}"] = number % 251
            elif what == "take back" and out:
                name = sorted(out)[choice % len(out)]
                del out[name]
                writer.take_back(name)
            elif what == "look" and out:
                name = sorted(out)[choice % len(out)]
                views.append((out[name], np.frombuffer(reader.read(name, 64, 65_536) or b"", np.uint8)))
            elif what == "look away" and views:
                del views[choice % len(views)]
            for byte, view in views:
                assert isinstance(view, np.ndarray)
                assert len(view) == 65_536
                assert (view == byte).all()
    finally:
        writer.close()
        reader.close()
        rmtree(root)
