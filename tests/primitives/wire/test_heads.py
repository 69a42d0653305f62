"""Heads of frames: any bytes give a message or one class of error."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from treadle.primitives.wire import WireError
from treadle.primitives.wire.message_codec import decoder, encode_head


class Said(Struct, tag="said"):
    words: str


class Counted(Struct, tag="counted"):
    number: int


@given(st.binary(max_size=40) | st.builds(lambda end: encode_head(Said("abc"))[:-1] + end, st.binary(max_size=3)))
def test_any_bytes_are_a_message_or_a_classified_error(head: bytes) -> None:
    with contextlib.suppress(WireError):
        assert isinstance(decoder(Said | Counted)(head, "a"), Said | Counted)


@pytest.mark.parametrize(
    "head",
    [encode_head(Said("abc"))[:-1] + b"\xff", b"\x82\xa4type\xa4said\xa1x" + b"\x91" * 100_000],
    ids=["no text", "too deep"],
)
def test_unreadable_bytes_are_refused_as_a_message(head: bytes) -> None:
    with pytest.raises(WireError, match="a sent what is not a message"):
        decoder(Said | Counted)(head, "a")
