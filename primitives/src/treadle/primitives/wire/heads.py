"""Heads of frames: Structs as MessagePack."""

from __future__ import annotations

import functools
from typing import Any

import msgspec

from ..whole_files import Buffer
from .errors import WireError

encode_head = msgspec.msgpack.Encoder().encode


def decode_head(kind: Any, head: Buffer, name: str) -> Any:
    """The message that `name` sent: a Struct of type `kind`, or of a union of tagged ones. Raises WireError."""
    try:
        return _decoder(kind).decode(head)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        wanted = getattr(kind, "__name__", str(kind))
        hint = "It speaks another protocol, or bytes were damaged on the way."
        raise WireError(f"{name} sent what is not a {wanted}", hint) from error


@functools.cache
def _decoder(kind: Any) -> msgspec.msgpack.Decoder[Any]:
    return msgspec.msgpack.Decoder(kind)
