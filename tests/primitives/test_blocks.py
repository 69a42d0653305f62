from __future__ import annotations

import errno
import os
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, cast

import msgspec
import numpy as np
import pyarrow as pa
import pytest
import xxhash
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from treadle.primitives import blocks as blocks_module
from treadle.primitives.blocks import Blocks, Peers
from treadle.primitives.encoding import codec
from treadle.primitives.encoding.references import BlockRef, Kind, Slice
from treadle.primitives.errors import CorruptError, MissingError, StoreError, TreadleError
from treadle.primitives.stores.shared_memory import HostFolder
from treadle.primitives.stores.store import Store
from treadle.primitives.testing.s3 import S3Endpoint

PARTS: dict[Kind, list[Any]] = {
    "objects": [[("a", 1), {"x": np.arange(3)}], [], ["text" * 50_000]],
    "array": [np.arange(30.0).reshape(10, 3), np.empty((0, 3)), np.ones((100_000, 3))],
    "table": [pa.table({"a": [1, None]}), pa.table({"a": pa.array([], pa.int64())}), pa.table({"a": range(100_000)})],
}
Place = Literal["host", "store"]


@pytest.fixture
def host(tmp_path: Path) -> HostFolder:
    return HostFolder(tmp_path / "shm" / "test")


@pytest.fixture(params=["file", "memory", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "file":
        return Store.open((tmp_path / "store").as_uri())
    if request.param == "memory":
        return Store.open(f"memory://{uuid.uuid4()}")
    s3: S3Endpoint = request.getfixturevalue("s3")
    return Store.open(f"s3://treadle/{uuid.uuid4()}", **s3.options)


@pytest.fixture
def file_store(tmp_path: Path) -> Store:
    return Store.open((tmp_path / "store").as_uri())


def same(kind: Kind, left: Any, right: Any) -> bool:
    if kind == "objects":
        return repr(left) == repr(right)
    return bool(np.array_equal(left, right)) if kind == "array" else bool(left.equals(right))


@pytest.mark.parametrize("kind", ["objects", "array", "table"])
@pytest.mark.parametrize("place", ["host", "store"])
@pytest.mark.parametrize("inline_limit", [0, 10_000_000])
def test_every_part_is_got_as_it_was_put(
    store: Store, host: HostFolder, kind: Kind, place: Place, inline_limit: int
) -> None:
    ref = Blocks(store, "r1", host).put("seg[3].x/0.1", kind, PARTS[kind], place, inline_limit)
    ref = msgspec.msgpack.decode(msgspec.msgpack.encode(ref), type=BlockRef)
    reader = Blocks(store, "r1", host)
    assert ref.rows == sum(codec.rows(kind, part) for part in PARTS[kind])
    assert ref.size == sum(part.length for part in ref.parts)
    for index in (2, 0, 1, 2):
        assert same(kind, reader.get(ref.slice(index)), PARTS[kind][index])


def test_a_small_block_stays_in_its_reference(file_store: Store, host: HostFolder) -> None:
    blocks = Blocks(file_store, "r1", host)
    probe = blocks.put("s/0.1", "objects", [[1], [2]], "store", 8192)
    assert probe.locations == ("inline",)
    assert list(file_store.list()) == []
    at_limit = blocks.put("s/0.1", "objects", [[1], [2]], "store", probe.size)
    above = blocks.put("s/0.1", "objects", [[1], [2]], "store", probe.size - 1)
    assert (at_limit.locations, above.locations) == (("inline",), ("store",))
    assert blocks.get(probe.slice(1)) == [2]


def test_two_puts_of_one_name_make_two_blocks(file_store: Store, host: HostFolder) -> None:
    blocks = Blocks(file_store, "r1", host)
    first, second = (blocks.put("s/0.1", "objects", [[value]], "host") for value in (1, 2))
    assert first.name != second.name
    assert first.name.startswith("s/0.1.")
    assert (blocks.get(first.slice(0)), blocks.get(second.slice(0))) == ([1], [2])


@pytest.mark.parametrize("reason", ["no host folder", "shared memory full"])
def test_a_block_for_the_host_goes_to_the_store_when_it_must(
    file_store: Store, host: HostFolder, monkeypatch: pytest.MonkeyPatch, reason: str
) -> None:
    def full(name: str, buffers: object) -> None:
        raise StoreError("shared memory is full", retryable=True)

    monkeypatch.setattr(host, "put", full)
    blocks = Blocks(file_store, "r1", None if reason == "no host folder" else host)
    ref = blocks.put("s/0.1", "objects", [[1]], "host")
    assert ref.locations == ("store",)
    assert len(ref.parts[0].digest) == 32
    assert blocks.get(ref.slice(0)) == [1]


def test_a_full_disk_under_the_store_is_an_error(file_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int, views: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "writev", full)
    with pytest.raises(StoreError, match="is full"):
        Blocks(file_store, "r1").put("s/0.1", "objects", [[1]], "store")


Damage = Callable[[Path, st.DataObject], None]


def _flip(path: Path, data: st.DataObject) -> None:
    content = bytearray(path.read_bytes())
    content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
    path.write_bytes(content)


def _cut_off(path: Path, data: st.DataObject) -> None:
    os.truncate(path, data.draw(st.integers(0, path.stat().st_size - 1)))


@pytest.mark.parametrize("place", ["host", "store"])
@pytest.mark.parametrize("records", [[1, "two"], ["large" * 30_000]])
@pytest.mark.parametrize("damage", [_flip, _cut_off])
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=40)
@given(data=st.data())
def test_a_block_with_a_byte_flipped_or_cut_off_is_refused_before_decoding(
    file_store: Store, host: HostFolder, place: Place, records: list[Any], damage: Damage, data: st.DataObject
) -> None:
    ref, path = _put(file_store, host, place, records)
    damage(path, data)
    _refused(Blocks(file_store, "r1", host), ref)


def _put(store: Store, host: HostFolder, place: Place, records: list[Any]) -> tuple[BlockRef, Path]:
    ref = Blocks(store, "r1", host).put("s/0.1", "objects", [records], place)
    path = host.path(f"r1/{ref.name}") if place == "host" else store.path(f"runs/r1/blocks/{ref.name}")
    assert path is not None
    return ref, path


def _refused(blocks: Blocks, ref: BlockRef) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks_module, "decode", lambda data: pytest.fail("damaged bytes were decoded"))
        with pytest.raises(CorruptError) as caught:
            blocks.get(ref.slice(0))
    assert caught.value.block == ref.name


def test_changed_inline_bytes_are_refused(file_store: Store) -> None:
    blocks = Blocks(file_store, "r1")
    slice = blocks.put("s/0.1", "objects", [[1]], "store", 8192).slice(0)
    changed = msgspec.structs.replace(slice, inline=slice.inline[:-70] + b"\x01" + slice.inline[-69:])
    with pytest.raises(CorruptError):
        blocks.get(changed)


def test_a_forged_block_in_the_store_with_the_right_checksum_is_refused(store: Store) -> None:
    blocks = Blocks(store, "r1")
    honest, forged = (blocks.put("s/0.1", "objects", [[value]], "store") for value in ("honest", "forged"))
    part = msgspec.structs.replace(honest.parts[0], checksum=forged.parts[0].checksum)
    store.put(f"runs/r1/blocks/{honest.name}", store.get(f"runs/r1/blocks/{forged.name}"))
    with pytest.raises(CorruptError, match="digest"):
        blocks.get(msgspec.structs.replace(honest.slice(0), part=part))


def test_a_block_in_the_store_without_a_digest_is_refused(file_store: Store) -> None:
    blocks = Blocks(file_store, "r1")
    slice = blocks.put("s/0.1", "objects", [[1]], "store").slice(0)
    with pytest.raises(CorruptError, match="digest"):
        blocks.get(msgspec.structs.replace(slice, part=msgspec.structs.replace(slice.part, digest=b"")))


def _in_both(store: Store, host: HostFolder) -> tuple[Slice, Path, str]:
    """A block with a copy on the host and one in the store."""
    ref = Blocks(store, "r1").put("s/0.1", "array", [np.arange(100_000)], "store")
    content = store.get(f"runs/r1/blocks/{ref.name}")
    host.put(f"r1/{ref.name}", [content])
    slice = msgspec.structs.replace(ref.slice(0), locations=(f"host:{host.host_id}", "store"))
    return slice, host.path(f"r1/{ref.name}"), f"runs/r1/blocks/{ref.name}"


HARMS: list[Callable[[Path], object]] = [
    lambda path: path.unlink(),
    lambda path: os.truncate(path, 70_000),
    lambda path: path.write_bytes(bytes(801_000)),
]


@pytest.mark.parametrize("harm", HARMS)
def test_a_copy_that_is_gone_or_damaged_falls_through_to_the_next(
    store: Store, host: HostFolder, harm: Callable[[Path], object]
) -> None:
    slice, path, name = _in_both(store, host)
    harm(path)
    blocks = Blocks(store, "r1", host)
    assert np.array_equal(blocks.get(slice), np.arange(100_000))
    store.delete([name])
    with pytest.raises(TreadleError, match=slice.name) as caught:
        blocks.get(slice)
    assert isinstance(caught.value, MissingError | CorruptError)
    assert caught.value.block == slice.name


def test_a_block_gone_from_everywhere_is_a_missing_error_that_names_it(store: Store, host: HostFolder) -> None:
    slice, path, name = _in_both(store, host)
    path.unlink()
    store.delete([name])
    with pytest.raises(MissingError, match=slice.name) as caught:
        Blocks(store, "r1", host).get(slice)
    assert caught.value.block == slice.name


def test_a_block_of_another_host_is_missing_here(file_store: Store, host: HostFolder) -> None:
    blocks = Blocks(file_store, "r1", host)
    slice = msgspec.structs.replace(blocks.put("s/0.1", "objects", [[1]], "host").slice(0), locations=("host:other",))
    with pytest.raises(MissingError, match="host:other"):
        blocks.get(slice)


def test_hosts_that_may_have_vanished_are_asked_at_the_same_time(file_store: Store, host: HostFolder) -> None:
    """Each of them may be silent for seconds."""
    together = threading.Barrier(3)

    class Silent:
        def gone(self, _: str, names: Sequence[str]) -> set[str]:
            together.wait(60)
            return set(names)

    blocks = Blocks(file_store, "r1", host, lambda: cast("Peers", Silent()))
    slices = [
        msgspec.structs.replace(blocks.put("s/0.1", "objects", [[1]], "host").slice(0), locations=(f"host:{number}",))
        for number in range(3)
    ]
    assert blocks.lost(slices) == {one.name for one in slices}


def test_a_store_that_does_not_answer_is_not_a_missing_block(host: HostFolder) -> None:
    dead = Store.open("s3://b", endpoint="http://127.0.0.1:9", access_key_id="a", secret_access_key="b")
    slice = Blocks(Store.open(f"memory://{uuid.uuid4()}"), "r1").put("s/0.1", "objects", [[1]], "store").slice(0)
    with pytest.raises(StoreError) as caught:
        Blocks(dead, "r1", host).get(slice)
    assert caught.value.retryable


@pytest.mark.parametrize("place", ["host", "store"])
def test_a_mapped_part_is_checked_once_in_a_process_and_is_not_copied(
    file_store: Store, host: HostFolder, monkeypatch: pytest.MonkeyPatch, place: Place
) -> None:
    blocks = Blocks(file_store, "r1", host)
    slice = blocks.put("s/0.1", "array", [np.zeros(12_500_000)], place).slice(0)
    first = blocks.get(slice)
    monkeypatch.setattr(xxhash, "xxh3_64_intdigest", lambda data: pytest.fail("checked twice"))
    second = blocks.get(slice)
    before = _resident()
    values = [blocks.get(slice) for _ in range(5)]
    assert _resident() - before < 10_000_000
    assert all(_mapped(array) for array in (first, second, *values))


def _resident() -> int:
    """Anonymous memory of this process in bytes: it includes copies, not mappings of files."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("RssAnon"))
    return int(line.split()[1]) * 1024


def _mapped(array: Any) -> bool:
    """Returns whether the array's first byte is in a mapping of a block file."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        start, stop = (int(bound, 16) for bound in line.split()[0].split("-"))
        if start <= array.ctypes.data < stop:
            return "/s/0.1." in line
    return False


def test_a_file_others_may_write_is_checked_every_time(file_store: Store) -> None:
    blocks = Blocks(file_store, "r1")
    ref = blocks.put("s/0.1", "array", [np.zeros(100_000)], "store")
    path = file_store.path(f"runs/r1/blocks/{ref.name}")
    assert path is not None
    path.chmod(0o660)
    blocks.get(ref.slice(0))
    with open(path, "r+b") as file:
        file.seek(1000)
        file.write(b"changed")
    with pytest.raises(CorruptError):
        blocks.get(ref.slice(0))


def test_a_block_that_is_removed_as_it_is_mapped_is_read_all_the_same(
    store: Store, host: HostFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocks = Blocks(store, "r1", host)
    ref = blocks.put("s/0.1", "objects", [["x" * 100_000]], "host")
    known = HostFolder.map

    def mapped(host: HostFolder, name: str) -> memoryview:
        data = known(host, name)
        os.unlink(host.path(name))
        return data

    monkeypatch.setattr(HostFolder, "map", mapped)
    assert blocks.get(ref.slice(0)) == ["x" * 100_000]


def test_a_large_block_is_checked_once_for_all_processes_of_a_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, host = Store.open(f"file://{tmp_path}/store"), HostFolder(tmp_path / "host")
    slice = Blocks(store, "run", host).put("s/0.1", "array", [np.arange(100_000)], "host").slice(0)
    time.sleep(0.05)  # the file system's clock is coarser
    Blocks(store, "run", host).get(slice)
    monkeypatch.setattr("xxhash.xxh3_64_intdigest", lambda _data: -1)
    assert len(Blocks(store, "run", host).get(slice)) == 100_000


def test_a_checked_file_that_is_written_to_is_checked_again(tmp_path: Path) -> None:
    store, host = Store.open(f"file://{tmp_path}/store"), HostFolder(tmp_path / "host")
    ref = Blocks(store, "run", host).put("s/0.1", "array", [np.arange(100_000)], "host")
    time.sleep(0.05)
    Blocks(store, "run", host).get(ref.slice(0))
    path = host.path(f"run/{ref.name}")
    if os.geteuid():
        os.chmod(path, 0o600)  # root can write without the right
    with path.open("r+b") as file:
        file.seek(5000)
        file.write(b"\xff" * 8)
    with pytest.raises(CorruptError):
        Blocks(store, "run", host).get(ref.slice(0))


def test_a_file_in_the_place_of_a_checked_one_is_checked(tmp_path: Path) -> None:
    store, host = Store.open(f"file://{tmp_path}/store"), HostFolder(tmp_path / "host")
    ref = Blocks(store, "run", host).put("s/0.1", "array", [np.arange(100_000)], "host")
    Blocks(store, "run", host).get(ref.slice(0))
    path = host.path(f"run/{ref.name}")
    path.unlink()
    path.write_bytes(b"\xff" * ref.size)
    with pytest.raises(CorruptError):
        Blocks(store, "run", host).get(ref.slice(0))
