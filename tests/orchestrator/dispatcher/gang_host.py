"""A host that lends its slots to gangs: `python gang_host.py KEY STORE HOST_FOLDER SLOTS ADDRESS`.

It prints the address at which it lends, and ends with its standard input. No Temporal: the test names the lenders.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from treadle.executors.local.executor import LocalExecutor
from treadle.orchestrator.dispatcher.blocks.host_blocks import Hosts
from treadle.orchestrator.dispatcher.driver_context.run_context import DriverContext
from treadle.orchestrator.dispatcher.driver_context.slot_pool import Pools
from treadle.orchestrator.dispatcher.lending.slot_lender import SlotLender
from treadle.primitives import sealing
from treadle.primitives.stores.shared_memory import HostFolder
from treadle.primitives.stores.store import Store


async def lend(key_file: str, store: str, root: Path, slots: int, address: str) -> None:
    key = sealing.load_or_create_key(key_file)
    opened = Store.open(store)
    executor = LocalExecutor(
        run_key=lambda run: sealing.run_key(key, run), slots=slots, memory=1 << 30, host_root=str(root)
    )
    hosts = Hosts(opened, key, HostFolder(root), address)
    site = DriverContext(opened, key, root, Pools({"local": executor}), one_host=False, hosts=hosts)
    await site.pools.ready("local")
    lender = SlotLender(site, address)
    sys.stdout.write(f"{lender.address}\n")
    sys.stdout.flush()
    await asyncio.to_thread(sys.stdin.read)
    await lender.stop()
    await site.pools.stop()
    hosts.close()


if __name__ == "__main__":
    key_file, store, root, slots, address = sys.argv[1:]
    asyncio.run(lend(key_file, store, Path(root), int(slots), address))
