"""Headers of files that somebody made to do harm are refused like any other that cannot be read."""

from __future__ import annotations

import pytest

from treadle.primitives.errors import DataError
from treadle.primitives.formats.arrays import parse_npy


def npy(header: str, data: bytes = b"") -> bytes:
    text = header.encode() + b"\n"
    return b"\x93NUMPY\x02\x00" + len(text).to_bytes(4, "little") + text + data


HOSTILE = {
    "deep": "-" * 500_000 + "1",
    "nested": "[" * 100_000,
    "negative": "{'descr': '|u1', 'fortran_order': False, 'shape': (-2, -4)}",
    "code": "__import__('os').system('true')",
    "endless": "{'descr': '|u1', 'fortran_order': False, 'shape': (10**100,)}",
}


@pytest.mark.parametrize("header", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_npy_header_is_refused(header: str) -> None:
    data = npy(header, b"12345678")
    with pytest.raises(DataError):
        parse_npy(data, len(data), "x.npy")
