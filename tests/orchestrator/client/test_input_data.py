"""Data of the process becomes a file of the store, once for equal data."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from treadle.client.input_data import stored
from treadle.dsl import Workflow
from treadle.primitives.errors import UsageError
from treadle.primitives.stores.store import FileStore, Stream

_RANDOM = np.random.default_rng(5)


class _CountingStore(FileStore):
    written = 0

    def create(self, name: str, data: Stream) -> bool:
        self.written += 1
        return super().create(name, data)


@pytest.fixture
def store(tmp_path: Path) -> _CountingStore:
    return _CountingStore(tmp_path)


def file_of(store: FileStore, data: Any) -> bytes:
    workflow = Workflow("given")
    workflow.map("one", workflow.input("data", type="dataset"), uses=str)
    uri = stored(store, workflow.spec(), {"data": data})["data"]["uri"]
    return store.get(uri.removeprefix(store.url).lstrip("/"))


@pytest.mark.parametrize(
    "array",
    [
        np.arange(5),
        np.zeros((0, 5)),
        np.zeros((3, 0)),
        np.arange(12).reshape(3, 4).T,
        _RANDOM.random((2, 6, 4))[:, ::2],
        np.array(["a", "bé"]),
        np.array([b"ab\0"], "V3"),
        np.array(["2020-01-01"], "M8[D]"),
        np.array([True, False]),
        np.array([1 + 2j]),
        np.arange(3, dtype=">i4"),
        np.array([(1, 2.0)], dtype=[("é", "i4"), ("b", "f8")]),
    ],
    ids=lambda array: f"{array.dtype.str}{array.shape}",
)
def test_array_becomes_the_file_that_numpy_saves(store: _CountingStore, array: Any) -> None:
    saved = io.BytesIO()
    np.save(saved, np.ascontiguousarray(array), allow_pickle=False)
    assert file_of(store, array) == saved.getvalue()


def test_equal_data_is_written_once(store: _CountingStore) -> None:
    assert file_of(store, np.arange(10)) == file_of(store, np.arange(10))
    assert store.written == 1
    file_of(store, np.arange(11))
    assert store.written == 2


def test_array_of_objects_is_refused(store: _CountingStore) -> None:
    with pytest.raises(UsageError, match="Give a list, an array of NumPy"):
        file_of(store, np.array([{}, None]))
