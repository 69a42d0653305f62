"""The functions of a session: each is sent once with its options, until it or a value that it uses changes."""

from __future__ import annotations

import hashlib
import sys
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

from treadle.orchestrator.run_store.call_log import FunctionAdded
from treadle.primitives.encoding.by_value import Packed, pack
from treadle.primitives.encoding.references import BlockRef

from .call_content import CallContent
from .function_parts import Parts, same_parts, unchanging_parts
from .project_modules import pickling
from .session_link import SessionLink

_LOOKED_AT = 100
"""Functions whose parts are remembered."""


class FunctionUse(NamedTuple):
    """How calls use a function."""

    name: str
    options: tuple[str, int, float, int, int]
    """Executor, retries, timeout, memory, maximum concurrency."""
    kept: bool
    """Whether the results are for the client."""
    parts: int
    """As of FunctionAdded."""


class SentFunctions:
    """Sends functions."""

    def __init__(self, link: SessionLink, put: Callable[[list[list[Any]]], BlockRef]) -> None:
        """`put`: write a block."""
        self._link, self._put = link, put
        self._keys: dict[Hashable, str] = {}
        self._parts: OrderedDict[tuple[int, FunctionUse], tuple[Parts, str]] = OrderedDict()
        """By a function's identity and use: the parts that it had, which keep it, and its key."""

    def key(self, function: Callable[..., Any], use: FunctionUse, content: CallContent | None) -> str:
        """The key of a function, which is sent if need be. `content`: if its calls may be reused.

        Raises UsageError for a function that cannot be pickled.
        """
        if content is None:
            return self._current(function, use)
        if content.function not in self._keys:
            packed = _packed(function, use)
            self._tell_change(use.name, content)
            self._keys[content.function] = self._send(content.function, packed, use, content.parts)
        return self._keys[content.function]

    def _current(self, function: Callable[..., Any], use: FunctionUse) -> str:
        """The key of a function as it is now."""
        place = id(function), use
        before, key = self._parts.get(place, ((), ""))
        parts = unchanging_parts(function)
        if not same_parts(before, parts):
            key = self._key(_packed(function, use), use)
            if parts:
                self._parts[place] = parts, key
                if len(self._parts) > _LOOKED_AT:
                    self._parts.popitem(last=False)
        return key

    def _key(self, packed: Packed, use: FunctionUse) -> str:
        known = hashlib.sha256(packed[0]).digest(), use
        if known not in self._keys or len(packed) > 1:
            self._keys[known] = self._send(self._link.key(), packed, use, {})
        return self._keys[known]

    def _send(self, key: str, packed: Packed, use: FunctionUse, content: dict[str, str]) -> str:
        block = self._put([[packed]])
        self._link.send(FunctionAdded(key, use.name, block, *use.options, use.kept, use.parts, content))
        return key

    def _tell_change(self, name: str, content: CallContent) -> None:
        """Say why the calls of another client are not found."""
        before = self._link.latest(name)
        if before and before.key not in self._keys.values():
            sys.stderr.write(f"{name} runs again: {content.change(before.content, before.key)} changed\n")


def _packed(function: Callable[..., Any], use: FunctionUse) -> Packed:
    with pickling(f"{use.name} cannot be taken by value", "Pass what it captures as an argument."):
        return pack(function)
