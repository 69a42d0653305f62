from __future__ import annotations

from pathlib import Path

import pytest

from treadle.primitives.errors import CorruptError
from treadle.primitives.peers import HostDirectory, announce, resolve
from treadle.primitives.peers.host_directory import HostEntry, behind
from treadle.primitives.sealing import SealedStore, run_key
from treadle.primitives.stores.store import Store

RUN, HOST = "run-1", "0123456789abcdef"
KEY = run_key(bytes(32), RUN)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.open(f"file://{tmp_path}")


def test_the_address_announced_last_is_found(store: Store) -> None:
    assert resolve(store, RUN, KEY, HOST) is None
    for address in ("tcp://127.0.0.1:1", "tls://10.0.0.5:2"):
        announce(store, RUN, KEY, HOST, address)
        assert resolve(store, RUN, KEY, HOST) == HostEntry(address)
    assert resolve(store, RUN, KEY, "another") is None
    assert resolve(store, "run-2", KEY, HOST) is None


def test_address_from_outside_the_run_is_not_trusted(store: Store) -> None:
    announce(store, RUN, run_key(bytes(32), "run-2"), HOST, "tcp://127.0.0.1:1")
    with pytest.raises(CorruptError):
        resolve(store, RUN, KEY, HOST)
    announce(store, RUN, KEY, HOST, "tcp://127.0.0.1:1")
    moved = store.get(f"runs/{RUN}/hosts/{HOST}")
    store.put(f"runs/{RUN}/hosts/another", moved)
    with pytest.raises(CorruptError):
        resolve(store, RUN, KEY, "another")


def test_an_announcement_of_another_version_is_refused_as_one(store: Store) -> None:
    SealedStore(store, KEY).put(f"runs/{RUN}/hosts/{HOST}", b"\x81\xa7address\x01")
    with pytest.raises(CorruptError, match="version of treadle"):
        resolve(store, RUN, KEY, HOST)


def test_a_known_address_is_not_asked_for_again_until_it_fails(store: Store) -> None:
    directory = HostDirectory(store, RUN, KEY)
    assert directory.resolve(HOST) is None
    announce(store, RUN, KEY, HOST, "tcp://127.0.0.1:1")
    one, two, three = (f"tcp://127.0.0.1:{port}" for port in (1, 2, 3))
    assert directory.resolve(HOST) == (one,)
    announce(store, RUN, KEY, HOST, two)
    assert directory.resolve(HOST) == (one,)
    directory.forget(HOST, (one,))
    assert directory.resolve(HOST) == (two,)
    directory.forget(HOST, (one,))  # from a late caller: the address has changed since
    announce(store, RUN, KEY, HOST, three)
    assert directory.resolve(HOST) == (two,)


def test_a_member_is_reached_directly_or_by_the_gateway_of_this_host(store: Store) -> None:
    here, gateway = HostDirectory(store, RUN, KEY, "here"), "tcp://127.0.0.1:9"
    announce(store, RUN, KEY, HOST, "tls://10.0.0.5:2", "left")
    announce(store, RUN, KEY, "behind", "", "right")
    assert here.resolve(HOST) == ("tls://10.0.0.5:2",)
    assert here.resolve("behind") == (), "there is no gateway here yet"
    announce(store, RUN, KEY, "here", "", "us", gateway)
    assert here.resolve(HOST) == ("tls://10.0.0.5:2", f"{gateway}/left")
    assert here.resolve("behind") == (f"{gateway}/right",)
    announce(store, RUN, KEY, "taken over", "", "us", gateway)
    assert here.resolve("taken over") == (gateway,)
    assert [behind(address) for address in here.resolve(HOST) or ()] == ["", "left"]
    assert HostDirectory(store, RUN, KEY).resolve("behind") == ()


def test_a_gateway_that_has_moved_is_found_again(store: Store) -> None:
    here = HostDirectory(store, RUN, KEY, "here")
    announce(store, RUN, KEY, HOST, "", "left")
    for port in (1, 2):
        announce(store, RUN, KEY, "here", "", "us", f"tcp://127.0.0.1:{port}")
        assert here.resolve(HOST) == (f"tcp://127.0.0.1:{port}/left",)
        here.forget(HOST, (f"tcp://127.0.0.1:{port}/left",))
