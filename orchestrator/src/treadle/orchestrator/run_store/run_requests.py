"""The requests to the store that drivers and commands made for a run. The counts are stored with the run.

Each process writes its count so far to its own object `runs/<run>/requests/<process>`. The count for a child run goes
to the outermost run. A folder on this machine has no price, so it keeps no counts.
"""

from __future__ import annotations

import os
import secrets
from collections import Counter

import msgspec

from treadle.primitives import sealing
from treadle.primitives.encoding.decoding import decoded
from treadle.primitives.stores import request_counts
from treadle.primitives.stores.input_files import is_local

from .run_files import RunFiles

_PROCESS = f"{os.getpid()}-{secrets.token_hex(4)}"


def keep_requests(files: RunFiles) -> None:
    """Write this process's count, this write included. `files`: of the outermost run. Raises StoreError."""
    if is_local(files.store.url):
        return
    made = Counter(request_counts.of_run(files.run)) + Counter(put=1)
    name = f"{_folder(files)}/{_PROCESS}"
    sealing.SealedStore(files.store, files.key).put(name, msgspec.msgpack.encode(dict(made)))


def read_requests(files: RunFiles) -> dict[str, int] | None:
    """The sum over processes. None: no counts exist. Raises StoreError and CorruptError."""
    names = [info.name for info in files.store.list(_folder(files))]
    objects = sealing.SealedStore(files.store, files.key)
    found = [decoded(dict[str, int], name, objects.get(name)) for name in names]
    return dict(sum((Counter(one) for one in found), Counter())) if found else None


def _folder(files: RunFiles) -> str:
    return f"{files.prefix}/requests"
