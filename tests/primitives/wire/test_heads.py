"""Heads of frames: whatever bytes come, a message or one class of error."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from treadle.primitives.wire import WireError
from treadle.primitives.wire.heads import decode_head, encode_head


class Said(Struct, tag="said"):
    words: str


class Counted(Struct, tag="counted"):
    number: int


@given(st.binary(max_size=40) | st.builds(lambda end: encode_head(Said("abc"))[:-1] + end, st.binary(max_size=3)))
def test_any_bytes_are_a_message_or_a_classified_error(head: bytes) -> None:
    with contextlib.suppress(WireError):
        assert isinstance(decode_head(Said | Counted, head, "a"), Said | Counted)


def test_words_that_are_no_text_are_no_message() -> None:
    with pytest.raises(WireError, match="a sent what is not a"):
        decode_head(Said | Counted, encode_head(Said("abc"))[:-1] + b"\xff", "a")
