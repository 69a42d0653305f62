"""Blocks in pieces: written without being held, and read whole or piece by piece from any location."""

from __future__ import annotations

import errno
import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from treadle.primitives import blocks as blocks_module
from treadle.primitives.blocks import Blocks, Place
from treadle.primitives.encoding import codec
from treadle.primitives.encoding.references import Kind
from treadle.primitives.errors import CorruptError
from treadle.primitives.stores import spool
from treadle.primitives.stores.atomic_files import Buffer
from treadle.primitives.stores.shared_memory import HostFolder
from treadle.primitives.stores.store import Store
from treadle.primitives.testing.s3 import S3Endpoint

VALUES: dict[Kind, list[list[Any]]] = {
    "objects": [[[("a", 1)], [{"x": 2.5}] * 3, ["text" * 50_000]], [[None]], [[]]],
    "array": [[np.arange(6.0).reshape(2, 3), np.ones((50_000, 3))], [np.empty((0, 3))]],
    "table": [[pa.table({"a": [1, None]}), pa.table({"a": range(9_000)})], [pa.table({"a": pa.array([], pa.int64())})]],
}
"""Part -> its pieces."""


class Pieces:
    """An encoded part."""

    def __init__(self, kind: Kind, values: list[Any]) -> None:
        self._encoded = [b"".join(codec.encode(kind, value)) for value in values]
        self.rows = sum(codec.rows(kind, value) for value in values)
        self.lengths = list(map(len, self._encoded))

    def encoded(self) -> Iterator[Buffer]:
        return iter(self._encoded)


@pytest.fixture(params=["file", "memory", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "file":
        return Store.open((tmp_path / "store").as_uri())
    if request.param == "memory":
        return Store.open(f"memory://{uuid.uuid4()}")
    s3: S3Endpoint = request.getfixturevalue("s3")
    return Store.open(f"s3://treadle/{uuid.uuid4()}", **s3.options)


def equal(kind: Kind, left: Any, right: Any) -> bool:
    if kind == "array":
        return bool(np.array_equal(left, right))
    return bool(left.equals(right)) if kind == "table" else bool(left == right)


def check(blocks: Blocks, kind: Kind, place: Place, locations: int) -> None:
    parts = VALUES[kind]
    ref = blocks.put_encoded("s/0.1", kind, [Pieces(kind, part) for part in parts], place)
    assert len(ref.locations) == locations
    assert ref.size == sum(part.length for part in ref.parts)
    for index, part in enumerate(parts):
        slice = ref.slice(index)
        assert slice.part.offset % 64 == 0
        assert slice.part.rows == sum(codec.rows(kind, value) for value in part)
        assert equal(kind, blocks.get(slice), codec.concat(kind, part))
        found = list(blocks.pieces(slice))
        assert all(equal(kind, one, wanted) for one, wanted in zip(found, part, strict=True))


@pytest.mark.parametrize("kind", list(VALUES))
@pytest.mark.parametrize("spool_from", [1, 1 << 30])
def test_parts_in_pieces_come_back_from_every_store(
    store: Store, kind: Kind, spool_from: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocks_module, "SPOOLED_FROM", spool_from)
    monkeypatch.setattr(blocks_module, "AT_ONCE", spool_from)
    monkeypatch.setattr(spool, "AT_ONCE", 1000)
    check(Blocks(store, "r1"), kind, "store", 1)


@pytest.mark.parametrize("kind", list(VALUES))
def test_parts_in_pieces_come_back_from_the_host(tmp_path: Path, kind: Kind) -> None:
    host = HostFolder(tmp_path / "shm" / "test")
    check(Blocks(Store.open((tmp_path / "store").as_uri()), "r1", host), kind, "both", 2)


def test_pieces_go_to_the_store_when_shared_memory_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host = HostFolder(tmp_path / "shm" / "test")
    real = os.writev

    def full(descriptor: int, buffers: Any) -> int:
        if "shm" in os.readlink(f"/proc/self/fd/{descriptor}"):
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(descriptor, buffers)

    monkeypatch.setattr(os, "writev", full)
    blocks = Blocks(Store.open((tmp_path / "store").as_uri()), "r1", host)
    ref = blocks.put_encoded("s/0.1", "objects", [Pieces("objects", [[1], [2, 3]])], "host")
    assert ref.locations == ("store",)
    assert blocks.get(ref.slice(0)) == [1, 2, 3]
    assert not list((tmp_path / "shm" / "test" / "r1").rglob("*0.1*"))


def test_pieces_of_a_remote_part_are_never_in_memory_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """A part is read in pieces when it does not fit into memory."""
    for module in (blocks_module, spool):
        monkeypatch.setattr(module, "AT_ONCE", 1000)
    store = Store.open(f"memory://{uuid.uuid4()}")
    lengths = list[int]()

    def counted(name: str, start: int, length: int) -> bytes:
        lengths.append(length)
        return read(name, start, length)

    read = store.get_range
    monkeypatch.setattr(store, "get_range", counted)
    reader = Blocks(store, "r1")
    slice = reader.put_encoded("s/0.1", "objects", [Pieces("objects", VALUES["objects"][0])], "store").slice(0)
    assert list(reader.pieces(slice)) == VALUES["objects"][0]
    assert max(lengths) <= 1000 < sum(lengths) == slice.part.length
    lengths.clear()
    assert reader.get(slice)
    assert lengths == [slice.part.length]


def test_spooled_part_is_checked_at_each_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks_module, "SPOOLED_FROM", 1)
    store = Store.open(f"memory://{uuid.uuid4()}")
    blocks = Blocks(store, "r1")
    slice = blocks.put_encoded("s/0.1", "objects", [Pieces("objects", [[1], [2, 3]])], "store").slice(0)
    assert blocks.get(slice) == [1, 2, 3]
    (name,) = [info.name for info in store.list()]
    data = bytearray(store.get(name))
    data[-70] ^= 1
    store.put(name, bytes(data))
    with pytest.raises(CorruptError, match="damaged"):
        blocks.get(slice)
