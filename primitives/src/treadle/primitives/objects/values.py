"""Arguments, results and states of objects as bytes. They are pickles: only authenticated peers may send them."""

from __future__ import annotations

import hashlib
import io
import pickle
import types
from typing import Any

from ..encoding.by_value import is_plain, pack_whole

DIGEST_BYTES = 8

loads = pickle.loads


def dumps(value: object) -> bytes:
    """Return the value, with classes and functions by value. Raises the error of an object that cannot be pickled."""
    return pickle.dumps(value, 5) if is_plain(value) else pack_whole(value)


def digest(value: object) -> bytes:
    """Return a digest that is equal on all replicas whose states are equal.

    It does not depend on the identity of parts, on the order of sets, or on the process that defined a class. Raises
    the error of an object that cannot be pickled, and ValueError for a state that contains itself.
    """
    data = io.BytesIO()
    pickler = _Canonical(data, protocol=5)
    pickler.fast = True  # without the memo, which depends on the identity of parts
    pickler.dump(value)
    return hashlib.blake2b(data.getbuffer(), digest_size=DIGEST_BYTES).digest()


class _Canonical(pickle.Pickler):
    def persistent_id(self, found: Any) -> object:
        if isinstance(found, set | frozenset):
            return "set", sorted(map(digest, found))
        if isinstance(found, type | types.FunctionType):
            return "definition", found.__module__, found.__qualname__
        return None
