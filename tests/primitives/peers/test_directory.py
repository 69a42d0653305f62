from __future__ import annotations

from pathlib import Path

import pytest

from treadle.primitives.errors import CorruptError
from treadle.primitives.peers import Directory, announce, resolve
from treadle.primitives.store import Store
from treadle.primitives.trust import run_key

RUN, HOST = "run-1", "0123456789abcdef"
KEY = run_key(bytes(32), RUN)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.open(f"file://{tmp_path}")


def test_the_address_announced_last_is_found(store: Store) -> None:
    assert resolve(store, RUN, KEY, HOST) is None
    for address in ("tcp://127.0.0.1:1", "tls://10.0.0.5:2"):
        announce(store, RUN, KEY, HOST, address)
        assert resolve(store, RUN, KEY, HOST) == address
    assert resolve(store, RUN, KEY, "another") is None
    assert resolve(store, "run-2", KEY, HOST) is None


def test_an_address_nobody_of_the_run_wrote_is_not_believed(store: Store) -> None:
    announce(store, RUN, run_key(bytes(32), "run-2"), HOST, "tcp://127.0.0.1:1")
    with pytest.raises(CorruptError):
        resolve(store, RUN, KEY, HOST)
    announce(store, RUN, KEY, HOST, "tcp://127.0.0.1:1")
    moved = store.get(f"runs/{RUN}/hosts/{HOST}")
    store.put(f"runs/{RUN}/hosts/another", moved)
    with pytest.raises(CorruptError):
        resolve(store, RUN, KEY, "another")


def test_a_known_address_is_not_asked_for_again_until_it_fails(store: Store) -> None:
    directory = Directory(store, RUN, KEY)
    assert directory.resolve(HOST) is None
    announce(store, RUN, KEY, HOST, "tcp://127.0.0.1:1")
    assert directory.resolve(HOST) == "tcp://127.0.0.1:1"
    announce(store, RUN, KEY, HOST, "tcp://127.0.0.1:2")
    assert directory.resolve(HOST) == "tcp://127.0.0.1:1"
    directory.forget(HOST, "tcp://127.0.0.1:1")
    assert directory.resolve(HOST) == "tcp://127.0.0.1:2"
    directory.forget(HOST, "tcp://127.0.0.1:1")  # of somebody who is late: the address has changed since
    announce(store, RUN, KEY, HOST, "tcp://127.0.0.1:3")
    assert directory.resolve(HOST) == "tcp://127.0.0.1:2"
