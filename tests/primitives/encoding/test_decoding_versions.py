"""Data of another version of treadle is refused with a message."""

from __future__ import annotations

import msgspec
import pytest
from msgspec import Struct

from treadle.primitives.encoding.decoding import decoded
from treadle.primitives.errors import CorruptError


class Now(Struct):
    name: str
    count: int


@pytest.mark.parametrize("data", [b"\xc1", b"", msgspec.msgpack.encode({"name": "x"}), msgspec.msgpack.encode([1])])
def test_object_of_another_version_is_refused_with_its_name(data: bytes) -> None:
    with pytest.raises(CorruptError, match="runs/r/plan is not what this version of treadle writes") as refused:
        decoded(Now, "runs/r/plan", data)
    assert "one version of treadle" in refused.value.hint


def test_fields_of_a_later_version_are_ignored() -> None:
    assert decoded(Now, "x", msgspec.msgpack.encode({"name": "a", "count": 1, "more": 2})) == Now("a", 1)
