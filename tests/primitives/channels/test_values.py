"""Small arrays travel as bytes: they arrive unchanged and read-only."""

from __future__ import annotations

import errno
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from treadle.primitives.blocks import Blocks
from treadle.primitives.channels.io.payloads import INLINE, ValueCodec
from treadle.primitives.channels.io.shared_memory import Segments
from treadle.primitives.errors import StoreError
from treadle.primitives.stores.shared_memory import SHARED_MEMORY, HostFolder
from treadle.primitives.stores.store import Store

DTYPES = st.one_of(
    hnp.boolean_dtypes(),
    hnp.integer_dtypes(endianness="?"),
    hnp.floating_dtypes(endianness="?"),
    hnp.complex_number_dtypes(endianness="?"),
    hnp.datetime64_dtypes(endianness="?"),
    hnp.unicode_string_dtypes(endianness="?"),
    hnp.array_dtypes(hnp.integer_dtypes()),
)
ARRAYS = DTYPES.flatmap(lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_side=0, max_side=5)))


@pytest.fixture(scope="module")
def values(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ValueCodec]:
    store = Store.open(f"file://{tmp_path_factory.mktemp('store')}")
    with tempfile.TemporaryDirectory(prefix="treadle-values-", dir=SHARED_MEMORY) as folder:
        made = ValueCodec(Blocks(store, "run", HostFolder(Path(folder) / "host")), "channels/m", lambda: False)
        yield made
        made.close()


@given(array=ARRAYS, transposed=st.booleans())
def test_an_array_arrives_as_it_was_and_read_only(values: ValueCodec, array: Any, transposed: bool) -> None:
    sent = array.T if transposed else array
    (piece,) = values.encode_pieces("array", [sent])
    for payload in (values.encode(sent), piece):
        found = values.decode(payload) if payload is not piece else values.decode_piece(payload)
        assert (found.dtype, found.shape) == (sent.dtype, sent.shape)
        assert found.tobytes() == sent.tobytes()
        assert not found.flags.writeable


@pytest.mark.parametrize(
    ("count", "each", "travels"), [(64, 250, True), (2, 1 + INLINE // 8, False), (200, 1024, False)]
)
def test_pieces_travel_in_messages_while_each_and_all_are_small(
    values: ValueCodec, count: int, each: int, travels: bool
) -> None:
    pieces = [np.arange(number, number + each) for number in range(count)]
    payloads = values.encode_pieces("array", pieces)
    assert [payload.slice is None for payload in payloads] == [travels] * count
    assert all(map(np.array_equal, map(values.decode_piece, payloads), pieces))


def test_memory_that_cannot_be_opened_is_an_error_with_a_class(
    values: ValueCodec, monkeypatch: pytest.MonkeyPatch
) -> None:
    payload = values.encode(np.arange(INLINE))

    def full(*_: object) -> None:
        raise OSError(errno.EMFILE, "too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(Segments, "read", full)
        with pytest.raises(StoreError, match="too many open files"):
            values.decode(payload)
    assert np.array_equal(values.decode(payload), np.arange(INLINE))
