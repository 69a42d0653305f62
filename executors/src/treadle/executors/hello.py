"""A first call, which describes the function and tries its access to the store (`treadle deploy lambda --hello`).

This module runs in the function.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable
from typing import Any

from treadle.primitives.errors import TreadleError
from treadle.primitives.stores.store import Store


def hello(name: str, *, store: str) -> dict[str, Any]:
    """`name`: the test object; `store`: the URL of the store."""
    about = {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "region": os.environ.get("AWS_REGION", ""),
    }
    return {**about, "store": try_store(Store.open(store), name)}


def try_store(store: Store, name: str) -> list[dict[str, Any]]:
    """Write, read, list and remove one object. Returns for each operation its name, its duration in milliseconds and
    its error."""
    folder = name.rpartition("/")[0]
    steps: dict[str, Callable[[], object]] = {
        "write": lambda: store.put(name, b"hello"),
        "read": lambda: store.get(name),
        "list": lambda: list(store.list(folder)),
        "remove": lambda: store.delete([name]),
    }
    return [_tried(what, step) for what, step in steps.items()]


def _tried(what: str, step: Callable[[], object]) -> dict[str, Any]:
    begun = time.monotonic()
    try:
        step()
        error = ""
    except TreadleError as refused:
        error = refused.message
    return {"what": what, "milliseconds": round((time.monotonic() - begun) * 1000, 1), "error": error}
