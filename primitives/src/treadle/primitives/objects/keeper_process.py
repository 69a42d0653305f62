"""A keeper as a process: `python -m treadle.primitives.objects.keeper_process`.

It reads one JSON object of settings from its standard input, writes its name, and ends with the process that started
it: at the next line or the end of its input, or when it has another parent. A forked process may hold the input open.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import select
import sys
import threading
from collections.abc import Callable
from typing import Any

from ..addresses import Address
from ..stores.store import Store
from .instructions import ShardTiming
from .keeper import Keeper


def main() -> None:
    settings = json.loads(sys.stdin.readline())
    sys.path[:] = settings.pop("path")
    logging.basicConfig(level=logging.WARNING)
    asyncio.run(_serve(settings))


async def _serve(settings: dict[str, Any]) -> None:
    store, key = Store.open(settings.pop("url")), bytes.fromhex(settings.pop("key"))
    host, certificates = settings.pop("host"), settings.pop("certificates")
    if host:
        from ..wire.tls import tls_identity

        settings |= {"address": str(Address("tls", host, 0)), "tls": tls_identity(certificates)}
    parent = settings.pop("parent")
    timing = ShardTiming(session=settings.pop("session"))
    async with Keeper(store, key, timing=timing, **settings) as keeper:
        sys.stdout.write(f"{keeper.name}\n")
        sys.stdout.flush()
        ended, loop = asyncio.Event(), asyncio.get_running_loop()
        threading.Thread(target=_wait, args=(parent, lambda: loop.call_soon_threadsafe(ended.set)), daemon=True).start()
        await ended.wait()
        await keeper.hand_over()
    os._exit(0)  # threads of the store may hang


def _wait(parent: int, end: Callable[[], object]) -> None:
    while os.getppid() == parent and not select.select([sys.stdin], [], [], 0.5)[0]:
        pass
    end()


if __name__ == "__main__":
    main()
