from __future__ import annotations

import itertools
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from primitives.peers.faults import HEALTHY, FaultyPath
from primitives.peers.hosts import KEY, OTHER, OTHERS_KEY, RUN, content, reader, served, soon

from treadle.primitives.errors import MissingError, UsageError
from treadle.primitives.peers import PeerServer
from treadle.primitives.peers.messages import BATCH, Want
from treadle.primitives.peers.range_prefetch import WINDOW, requests
from treadle.primitives.stores.shared_memory import HostFolder
from treadle.primitives.wire import Identity, NotAuthentic, WireError


def test_ranges_come_in_the_order_they_were_asked_for(tmp_path: Path, tls: Identity | None) -> None:
    blocks = {f"s/{i}.1.ab": content(size, i) for i, size in enumerate([10, 3_000_000, 0, BATCH, BATCH + 1, 50_000])}
    wants = [(name, offset, 40_000) for offset in (0, 7, 40_000) for name in blocks]
    with served(tmp_path, tls) as (host, server), reader() as client:
        for name, data in blocks.items():
            host.put(f"{RUN}/{name}", [data])
        views = client.fetch(server.address, wants, soon())
        wholes = client.fetch(server.address, [(name, 0, -1) for name in blocks], soon())
    assert views == [blocks[name][offset : offset + length] for name, offset, length in wants]
    assert wholes == list(blocks.values())
    assert all(view.readonly for view in views + wholes)


SIZES = [0, 1, 5000, BATCH - 1, BATCH, BATCH + 1, 400_000]
NUMBERS = st.integers(0, len(SIZES))
LENGTHS = st.one_of(st.integers(-1, 300), st.integers(0, 400_100))


def test_every_request_returns_the_slice_of_the_block(tmp_path: Path) -> None:
    blocks = [content(size, seed) for seed, size in enumerate(SIZES)]

    @settings(deadline=None)
    @given(st.lists(st.tuples(NUMBERS, st.integers(0, 400_100), LENGTHS), max_size=40))
    def check(picked: list[tuple[int, int, int]]) -> None:
        wants = [(f"s/{number}", offset, length) for number, offset, length in picked]
        expected = [
            blocks[number][offset : offset + length if length >= 0 else None] if number < len(blocks) else None
            for number, offset, length in picked
        ]
        assert list(client.pull(server.address, wants, soon())) == expected

    with served(tmp_path) as (host, server), reader() as client:
        for number, block in enumerate(blocks):
            host.put(f"{RUN}/s/{number}", [block])
        check()


@given(st.lists(st.integers(-1, 2 * WINDOW), max_size=50) | st.lists(st.just(1), min_size=600, max_size=600))
def test_requests_hold_every_want_once_and_half_the_window_at_most(lengths: list[int]) -> None:
    wants = [Want(str(i), 0, length) for i, length in enumerate(lengths)]
    cut = list(requests(wants))
    assert [want for request in cut for want in request] == wants
    for request in cut:
        assert len(request) == 1 or sum(want.length for want in request) <= WINDOW // 2
        assert all(want.length >= 0 for want in request) or len(request) == 1
    for one, following in itertools.pairwise(cut):
        size = sum(want.length for want in one) + following[0].length
        assert len(one) == 256 or size > WINDOW // 2 or -1 in (one[0].length, following[0].length)


def test_a_block_that_is_not_there_is_named(tmp_path: Path) -> None:
    with served(tmp_path) as (host, server), reader() as client:
        host.put(f"{RUN}/s/a", [b"abc"])
        with pytest.raises(MissingError) as caught:
            client.fetch(server.address, [("s/a", 0, 3), ("s/b", 0, 3), ("s/c", 0, 3)], soon())
        assert caught.value.block == "s/b"
        wants = [("s/b", 0, 3), ("s/a", 1, 2), ("s", 0, 1), ("s/a/b", 0, 1)]
        assert list(client.pull(server.address, wants, soon())) == [None, b"bc", None, None]
        assert client.failures == {}


def test_requests_use_one_connection_again(tmp_path: Path, tls: Identity | None) -> None:
    with served(tmp_path, tls) as (host, server), FaultyPath(server.address, [HEALTHY]) as path, reader() as client:
        host.put(f"{RUN}/s/a", [content(5000)])
        for start in range(20):
            assert client.fetch(path.address, [("s/a", start, 10)], soon()) == [content(5000)[start : start + 10]]
        with pytest.raises(MissingError):
            client.fetch(path.address, [("s/b", 0, 3)], soon())
        client.fetch(path.address, [("s/a", 0, 1)], soon())
        assert path.accepted == 1


def test_a_server_that_starts_again_at_its_address_is_found_by_old_connections(tmp_path: Path) -> None:
    host = HostFolder(tmp_path / "host")
    host.put(f"{RUN}/s/a", [b"abc"])
    with PeerServer(host, {RUN: KEY}.get) as server, reader() as client:
        assert client.fetch(server.address, [("s/a", 0, 3)], soon()) == [b"abc"]
        server.close()
        with PeerServer(host, {RUN: KEY}.get, server.address):
            assert client.fetch(server.address, [("s/a", 0, 3)], soon()) == [b"abc"]


def test_threads_share_a_client(tmp_path: Path, tls: Identity | None) -> None:
    blocks = [content(60_000 * (1 + i % 4), i) for i in range(16)]
    with served(tmp_path, tls) as (host, server), reader() as client, ThreadPoolExecutor(8) as pool:
        for number, block in enumerate(blocks):
            host.put(f"{RUN}/s/{number}", [block])

        def fetch(number: int) -> bool:
            picked = [(number * 5 + i) % 16 for i in range(6)]
            views = client.fetch(server.address, [(f"s/{one}", 0, -1) for one in picked], soon())
            return views == [blocks[one] for one in picked]

        assert all(pool.map(fetch, range(40)))


def test_server_sends_no_more_than_the_window_when_the_reader_stops(tmp_path: Path) -> None:
    """The kernel's buffers come on top of it, and are outside treadle's control."""
    part, count = 1 << 20, 200
    with served(tmp_path) as (host, server), FaultyPath(server.address, [HEALTHY]) as path, reader() as client:
        host.put(f"{RUN}/s/a", [bytes(part)])
        pulled = client.pull(path.address, [("s/a", 0, part)] * count, soon())
        next(pulled)
        waited = threading.Event()
        before = -1
        while before != len(path.passed):  # until no more bytes arrive
            before = len(path.passed)
            waited.wait(0.2)
        assert sum(path.sizes) < WINDOW + part
        pulled.close()  # type: ignore[attr-defined]


def test_one_run_cannot_read_the_blocks_of_another(tmp_path: Path) -> None:
    with served(tmp_path) as (host, server), reader(OTHER, OTHERS_KEY) as client:
        host.put(f"{RUN}/s/a", [b"secret"])
        assert list(client.pull(server.address, [("s/a", 0, 6)], soon())) == [None]
        for name in (f"../{RUN}/s/a", "/etc/passwd", "s/../../x", "", "a//b", "x\0"):
            with pytest.raises(UsageError, match="not an object name"):
                client.fetch(server.address, [(name, 0, 6)], soon())


@pytest.mark.parametrize(("run", "key"), [(RUN, OTHERS_KEY), ("run-3", KEY)])
def test_client_without_the_key_gets_no_data(tmp_path: Path, tls: Identity | None, run: str, key: bytes) -> None:
    with served(tmp_path, tls) as (host, server), reader(run, key) as client:
        host.put(f"{RUN}/s/a", [b"secret"])
        with pytest.raises(NotAuthentic):
            client.fetch(server.address, [("s/a", 0, 6)], soon())


def test_an_address_that_failed_is_not_dialled_for_a_moment(tmp_path: Path) -> None:
    with served(tmp_path) as (host, server), reader() as client:
        host.put(f"{RUN}/s/a", [b"abc"])
        address = server.address
        server.close()
        with pytest.raises(WireError, match="no connection"):
            client.fetch(address, [("s/a", 0, 3)], soon())
        with pytest.raises(WireError, match=r"a moment ago.*no connection"):
            client.fetch(address, [("s/a", 0, 3)], soon())
        assert list(client.failures) == [address]
        # private: the pause of a failed peer is long
        client._pool.failures[address] = client.failures[address]._replace(until=0)  # the pause is over
        with PeerServer(host, {RUN: KEY}.get, address):
            assert client.fetch(address, [("s/a", 0, 3)], soon()) == [b"abc"]
        assert client.failures == {}
