"""The entry point that AWS Lambda calls: `treadle.executors.aws.entry.handler`."""

from __future__ import annotations

import os
from typing import Any, Protocol

import msgspec

from ..function_handler import Handler, hide_memory
from ..functions.payload import Request
from .deployment_key import fetch_key

_MEMORY_VARIABLE = "AWS_LAMBDA_FUNCTION_MEMORY_SIZE"
"""Megabytes of this function (Lambda developer guide, defined runtime environment variables)."""


class LambdaContext(Protocol):
    """The used part of the context object (Lambda developer guide, Python context object)."""

    def get_remaining_time_in_millis(self) -> int: ...


def handler(event: Any, context: LambdaContext) -> Any:
    """Serve one call. Lambda decodes the event from JSON and encodes the result."""
    request = msgspec.convert(event, Request)
    response = _handler.handle(request, context.get_remaining_time_in_millis() / 1000, _memory)
    return msgspec.to_builtins(response)


hide_memory()
_memory = int(os.environ.get(_MEMORY_VARIABLE, "0")) << 20
_handler = Handler(fetch_key=fetch_key)
_handler.start(_memory)
