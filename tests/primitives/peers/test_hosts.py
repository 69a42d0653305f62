"""Blocks of other hosts for Blocks: found, fetched together, waited for, and given up."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from treadle.primitives import blocks
from treadle.primitives.blocks import Blocks
from treadle.primitives.encoding.references import BlockRef
from treadle.primitives.errors import CorruptError, MissingError
from treadle.primitives.peers import PeerServer, announce, hosts
from treadle.primitives.peers.hosts import HostPeers
from treadle.primitives.stores import spool
from treadle.primitives.stores.shared_memory import HostFolder
from treadle.primitives.stores.store import Store
from treadle.primitives.wire import WireError

RUN, KEY = "run", b"k" * 32
LARGE = np.arange(100_000)


class Two:
    """A host with a server, and a reader on another one."""

    def __init__(self, folder: Path) -> None:
        self.store = Store.open(f"file://{folder}/store")
        self.there, self.here = HostFolder(folder / "there"), HostFolder(folder / "here")
        self.producer = Blocks(self.store, RUN, self.there)
        self.reader = Blocks(self.store, RUN, self.here, lambda: self.peers)
        self.peers = HostPeers(self.store, RUN, KEY, self.here, self.reader.read)
        self.pulls: list[int] = []
        self.longest = 0
        self._pull = self.peers._client.pull  # private: the test counts requests
        self.peers._client.pull = self._counted  # type: ignore[method-assign]
        self.serve()

    def serve(self) -> None:
        self.server = PeerServer(self.there, lambda run: KEY if run == RUN else None)
        announce(self.store, RUN, KEY, self.there.host_id, self.server.address)

    def _counted(
        self, address: str, wants: Sequence[tuple[str, int, int]], deadline: float, *, direct: bool = False
    ) -> Iterator[Any]:
        self.pulls.append(len(wants))
        self.longest = max(self.longest, *(length for _, _, length in wants))
        return self._pull(address, wants, deadline, direct=direct)

    def put(self, *parts: Any, **how: Any) -> BlockRef:
        return self.producer.put("segment/0.1", "array", parts or [LARGE], "host", **how)

    def close(self) -> None:
        self.reader.close()
        self.server.close()


@pytest.fixture
def two(tmp_path: Path) -> Iterator[Two]:
    made = Two(tmp_path)
    yield made
    made.close()


def test_a_block_of_another_host_is_pulled(two: Two) -> None:
    assert np.array_equal(two.reader.get(two.put().slice(0)), LARGE)
    assert two.reader.read == {"peer": two.put().parts[0].length}


def test_without_peers_it_is_out_of_reach(two: Two) -> None:
    with pytest.raises(MissingError, match="gone from host:"):
        Blocks(two.store, RUN, two.here).get(two.put().slice(0))


def test_expected_blocks_come_together(two: Two) -> None:
    slices = [two.put(np.arange(number + 1)).slice(0) for number in range(50)]
    two.reader.expect(slices)
    assert [len(two.reader.get(one)) for one in slices] == list(range(1, 51))
    assert two.pulls == [50]


def test_expected_but_unwanted_block_does_no_harm(two: Two) -> None:
    slices = [two.put(np.arange(number + 1)).slice(0) for number in range(9)]
    two.reader.expect(slices)
    assert [len(two.reader.get(slices[number])) for number in (4, 8, 2, 4)] == [5, 9, 3, 5]


def test_a_shared_block_is_brought_to_this_host_once(two: Two) -> None:
    """The second reader gets it from this host."""
    slice = two.put(LARGE, LARGE[::-1]).slice(0)
    assert np.array_equal(two.reader.get(slice, shared=True), LARGE)
    assert two.reader.read == {"peer": two.put(LARGE, LARGE).size}
    two.server.close()
    assert np.array_equal(two.reader.get(slice, shared=True), LARGE)
    assert two.reader.read["host"] == slice.part.length


def test_pieces_are_never_in_memory_together(two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (blocks, spool):
        monkeypatch.setattr(module, "AT_ONCE", 100_000)
    slice = two.put(np.arange(3), LARGE).slice(1)
    (found,) = two.reader.pieces(slice)
    assert np.array_equal(found, LARGE)
    assert two.longest == 100_000
    assert two.reader.read == {"peer": slice.part.length}
    assert not two.here.path(RUN).exists()


def test_a_host_that_starts_again_is_waited_for(two: Two) -> None:
    slice = two.put().slice(0)
    two.server.close()
    later = threading.Timer(0.5, two.serve)
    later.start()
    assert np.array_equal(two.reader.get(slice), LARGE)
    later.join()


def test_patience_with_a_host_begins_when_it_falls_silent(two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection may break during a long part, after more time than the limit for silence."""
    monkeypatch.setattr(hosts, "PATIENCE", 0.5)
    known, calls = two.peers._client.pull, itertools.count()

    def broken_once(*about: Any, **how: Any) -> Iterator[Any]:
        if not next(calls):
            time.sleep(0.6)
            raise WireError("the connection was lost")
        return known(*about, **how)

    monkeypatch.setattr(two.peers._client, "pull", broken_once)
    assert np.array_equal(two.reader.get(two.put().slice(0)), LARGE)


def test_a_host_out_of_reach_is_waited_for_once(two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosts, "PATIENCE", 1.0)
    slices = [two.put().slice(0) for _ in range(20)]
    two.server.close()
    tries = []
    for slice in slices:
        with pytest.raises(MissingError, match="is gone from host:") as caught:
            two.reader.get(slice)
        assert caught.value.block == slice.name
        tries.append(len(two.pulls))
    assert tries == [tries[0]] * len(slices), "only the first one tried the host"
    assert tries[0] > 1, "and waited for it"
    assert two.reader.lost(slices) == {one.name for one in slices}


def test_exactly_the_blocks_missing_on_a_host_are_lost(two: Two) -> None:
    refs = [two.put() for _ in range(5)]
    kept = two.producer.put("segment/0.1", "array", [LARGE], "both")
    inline = two.producer.put("segment/0.1", "array", [np.arange(3)], "host", inline_limit=9999)
    for ref in (refs[1], refs[3], kept):
        two.there.path(f"{RUN}/{ref.name}").unlink()
    slices = [ref.slice(0) for ref in (*refs, kept, inline)]
    assert two.reader.lost(slices) == {refs[1].name, refs[3].name}
    assert two.producer.lost(slices) == {refs[1].name, refs[3].name}


def test_block_from_a_host_is_verified(two: Two) -> None:
    ref = two.put()
    path = two.there.path(f"{RUN}/{ref.name}")
    path.write_bytes(b"\xff" * ref.size)
    with pytest.raises(CorruptError):
        two.reader.get(ref.slice(0))


def test_unreadable_block_is_not_copied(two: Two) -> None:
    gone, out_of_reach = (two.put(LARGE, LARGE[:10]) for _ in range(2))
    two.there.path(f"{RUN}/{gone.name}").unlink()
    for reader, ref in ((two.reader, gone), (Blocks(two.store, RUN, two.here), out_of_reach)):
        with pytest.raises(MissingError) as caught:
            reader.copy_to_store(ref)
        assert caught.value.block == ref.name
    assert list(two.store.list(f"runs/{RUN}/blocks")) == []


@pytest.mark.parametrize("copied", [False, True])
def test_a_block_in_the_store_outlives_its_host(two: Two, copied: bool) -> None:
    ref = two.producer.put("segment/0.1", "array", [LARGE, LARGE[:10]], "host" if copied else "both")
    if copied:
        ref = two.reader.copy_to_store(ref)
        assert two.longest == max(part.length for part in ref.parts), "one at a time"
    two.there.delete_run(RUN)
    assert np.array_equal(two.reader.get(ref.slice(0)), LARGE)
    assert two.reader.read["store"] == ref.parts[0].length
