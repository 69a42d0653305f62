"""Heads of frames: Structs as MessagePack."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import msgspec

from ..encoding.decoding import known
from ..stores.atomic_files import Buffer
from .errors import WireError

encode_head = msgspec.msgpack.Encoder().encode


@functools.cache
def decoder(kind: Any) -> Callable[[Buffer, str], Any]:
    """Return a decoder of heads: a Struct of type `kind`, or of a union of tagged ones. Its second argument names the
    sender.

    The decoder raises WireError.
    """
    decode = msgspec.msgpack.Decoder(known(kind)).decode

    def decode_head(head: Buffer, name: str) -> Any:
        try:
            return decode(head)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            wanted = kind.__name__ if isinstance(kind, type) else "message"
            hint = "It speaks another protocol, or bytes were damaged on the way."
            raise WireError(f"{name} sent what is not a {wanted}", hint) from error

    return decode_head
