"""Blocks of members that cannot be dialled: over a path if one exists, otherwise through coordinator and store."""

from __future__ import annotations

import itertools
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from eventually import eventually
from hypothesis import given, settings
from hypothesis import strategies as st
from primitives.peers.faults import HEALTHY, Fault
from primitives.peers.hosts import KEY, RUN, reader, served, soon
from primitives.peers.introduced import Member, attempts_end, connected, two_members
from primitives.traversal.two_sides import LONG
from primitives.traversal.two_sides import PATIENT as UNTIL_IT_OPENS

from treadle.primitives.blocks import Blocks
from treadle.primitives.coordinator.messages import Bye, Reach, Relay, Relayed
from treadle.primitives.encoding.references import BlockRef
from treadle.primitives.errors import CorruptError, MissingError
from treadle.primitives.hole_punching import Paths
from treadle.primitives.peers import hosts, local_gateways, resolve, store_relay, through
from treadle.primitives.peers.gateway import RELAYED, cut
from treadle.primitives.peers.messages import PIECE, AskAnswer, Want
from treadle.primitives.peers.request_router import Asks, Instruction, Patience
from treadle.primitives.sealing import SealedStore
from treadle.primitives.wire import WireError

HURRIED = Patience(silence=0.3, again=0.3, total=LONG)


def arrays(count: int, size: int) -> list[np.ndarray[Any, Any]]:
    """Arrays with different content."""
    return [np.arange(number, number + size // 8) for number in range(count)]


def read_all(member: Member, ref: BlockRef) -> list[np.ndarray[Any, Any]]:
    slices = [ref.slice(index) for index in range(len(ref.parts))]
    member.blocks.expect(slices)
    return [member.blocks.get(one) for one in slices]


def same(found: list[Any], wanted: list[Any]) -> bool:
    return len(found) == len(wanted) and all(map(np.array_equal, found, wanted))


def bytes_of(ref: BlockRef) -> int:
    return sum(part.length for part in ref.parts)


# -- over a path ----------


def test_members_exchange_blocks_over_one_path_from_either_dialler(tmp_path: Path) -> None:
    """Requests before the path exists go through the store, later ones over the path, in both directions at once."""
    with two_members(tmp_path, schedule=UNTIL_IT_OPENS) as (left, right, office):
        wanted = arrays(40, 200_000)
        refs = {left: right.put(*wanted), right: left.put(*wanted)}
        assert same(read_all(left, refs[left]), wanted)
        eventually(lambda: left.gateway._paths and right.gateway._paths)  # private: an open path has no other sign
        before = left.blocks.read.copy()

        def reads(member: Member) -> bool:
            slices = [refs[member].slice(index) for index in range(len(wanted))]
            return same([member.blocks.get(one) for one in slices], wanted)

        with ThreadPoolExecutor(8) as pool:
            assert all(pool.map(reads, [left, right] * 6))
        assert left.blocks.read - before == {"path": 6 * bytes_of(refs[left])}
        assert right.blocks.read == {"path": 6 * bytes_of(refs[right])}
        assert left.passed() == []
        assert len({message for message in office.said if isinstance(message, Reach)}) == 1


def test_a_block_larger_than_a_piece_comes_whole(tmp_path: Path) -> None:
    wanted = arrays(3, 2 * PIECE + 8)
    with two_members(tmp_path) as (left, right, _), connected(left, right, HEALTHY):
        ref = right.put(*wanted)
        assert same(read_all(left, ref), wanted)
        assert np.array_equal(left.blocks.get(ref.slice(1), shared=True), wanted[1])
        assert left.host.path(f"{RUN}/{ref.name}").stat().st_size == ref.size, "one copy for its host"
        assert left.blocks.read == {"path": bytes_of(ref) + ref.size}


@pytest.mark.parametrize("after", [0, 3_000_000])
@pytest.mark.parametrize("kind", ["cut", "stall", "corrupt"])
@pytest.mark.timeout(240)
def test_a_path_that_fails_costs_the_path(tmp_path: Path, kind: Any, after: int) -> None:
    """The missing bytes come through the store. Damaged bytes are found by the block's checksum."""
    wanted = arrays(4, PIECE)
    fault = Fault(kind, after=after + 1_000)  # after the handshake
    with two_members(tmp_path, patience=HURRIED, paths=False) as (left, right, _), connected(left, right, fault):
        ref = right.put(*wanted)
        deadline = time.monotonic() + LONG
        found: list[Any] = []
        while not same(found, wanted) and time.monotonic() < deadline:
            found = _read_if_sound(left, ref)
        assert same(found, wanted)
        if kind != "corrupt":
            assert left.blocks.read["stored"] > 0
            eventually(lambda: not left.gateway._paths)
        eventually(lambda: left.passed() == [])  # a request that was repeated is answered twice


def _read_if_sound(member: Member, ref: BlockRef) -> list[Any]:
    try:
        return read_all(member, ref)
    except (MissingError, CorruptError):
        return []


FAULTS = st.builds(Fault, st.sampled_from(["cut", "stall", "corrupt", "none"]), st.integers(500, 3_000_000))


def test_any_faults_end_in_the_right_bytes_or_a_classified_error(tmp_path: Path) -> None:
    """Faults of a path, and of messages between members and coordinator, while both members read at once."""

    @settings(deadline=None, max_examples=settings().max_examples // 20)
    @given(FAULTS, st.sets(st.integers(0, 8), max_size=4), st.booleans())
    def check(fault: Fault, lost: set[int], gone: bool) -> None:
        folder = tmp_path / f"{next(numbers)}"
        patience = msgspec.structs.replace(HURRIED, total=2.0) if gone else HURRIED
        with two_members(folder, paths=False, patience=patience) as (left, right, office):
            relays = itertools.count()
            office.drops = lambda message: (
                isinstance(message, Reach) or (isinstance(message, Relay) and next(relays) in lost)
            )
            refs = {left: right.put(*wanted), right: left.put(*wanted)}
            with connected(left, right, fault), ThreadPoolExecutor(2) as pool:
                if gone:
                    office.say(1, Bye())
                found = list(pool.map(lambda one: _read_if_sound(one, refs[one]), refs))
            assert all(not one or same(one, wanted) for one in found)
            assert gone or fault.kind == "corrupt" or all(found), "what is lost is said again"

    wanted, numbers = [*arrays(20, 40_000), *arrays(1, PIECE + 8)], itertools.count()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hosts, "PATIENCE", 0.2)
        check()


# -- without a path ----------


@pytest.mark.parametrize("size", [RELAYED // 2, PIECE + 8])
def test_a_pair_without_a_path_uses_coordinator_and_store(tmp_path: Path, size: int) -> None:
    wanted = arrays(3, size)
    with two_members(tmp_path, paths=False) as (left, right, office):
        ref = right.put(*wanted)
        for index, one in enumerate(wanted):
            assert np.array_equal(left.blocks.get(ref.slice(index)), one)
        assert left.blocks.read["path"] == 0
        assert left.blocks.read["relayed"] + left.blocks.read["stored"] == bytes_of(ref)
        assert (left.blocks.read["stored"] > 0) == (size > RELAYED)
        assert left.passed() == [], "each is removed by whom it was for"
        assert all(len(message.body) < 64 << 10 for message in office.said if isinstance(message, Relay))


def test_a_pair_that_failed_is_not_tried_again_for_each_block(tmp_path: Path) -> None:
    with two_members(tmp_path, port=1) as (left, right, office):
        for member in (left, right):
            member.gateway._reacher._paths = Paths(first=1000.0)  # private: the pause after a failure is not a setting
        refs = [right.put(*arrays(1, 500)) for _ in range(20)]
        assert same(read_all(left, refs[0]), arrays(1, 500))
        eventually(lambda: len(left.gateway._reacher._paths) == len(right.gateway._reacher._paths) == 1)
        for ref in refs:
            assert same(read_all(left, ref), arrays(1, 500))
        assert office.said.count(Reach("right")) == 1
        assert left.blocks.read["path"] == 0


def test_lost_message_is_resent(tmp_path: Path) -> None:
    wanted = arrays(1, 80_000)
    with two_members(tmp_path, paths=False, patience=HURRIED) as (left, right, office):
        relays: list[Relay] = []

        def lost(message: object) -> bool:
            relays.extend([message] if isinstance(message, Relay) else [])
            return isinstance(message, Reach) or (isinstance(message, Relay) and len(relays) in (1, 3))

        office.drops = lost  # a request, and the answer to its repetition
        assert same(read_all(left, right.put(*wanted)), wanted)


def test_a_member_that_left_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosts, "PATIENCE", 0.3)
    with two_members(tmp_path) as (left, right, office):
        slice = right.put(*arrays(1, 80_000)).slice(0)
        office.say(1, Bye())
        with pytest.raises(MissingError, match="is gone from host:"):
            left.blocks.get(slice)
        assert left.blocks.lost([slice]) == {slice.name}


def test_closing_a_gateway_ends_what_waits_for_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosts, "PATIENCE", 0.3)
    with two_members(tmp_path) as (left, right, office):
        office.drops = lambda message: True
        slice = right.put(*arrays(1, 80_000)).slice(0)
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(left.blocks.get, slice)
            eventually(lambda: office.said[2:])
            left.gateway.close()
            with pytest.raises(MissingError):
                waiting.result(LONG)


def test_a_durable_copy_is_read_until_there_is_a_path(tmp_path: Path) -> None:
    wanted = arrays(3, 80_000)
    with two_members(tmp_path, paths=False) as (left, right, office):
        ref = right.blocks.put("segment/0.1", "array", wanted, "both")
        assert same(read_all(left, ref), wanted)
        assert np.array_equal(left.blocks.get(ref.slice(1), shared=True), wanted[1])
        assert left.blocks.read.keys() == {"store"}
        assert Reach("right") in office.said
        with connected(left, right, HEALTHY):
            assert same(read_all(left, ref), wanted)
            assert left.blocks.read["path"] == bytes_of(ref)


# -- trust ----------


def test_exactly_the_blocks_missing_at_a_member_are_lost(tmp_path: Path) -> None:
    with two_members(tmp_path, paths=False) as (left, right, _):
        refs = [right.put(*arrays(1, 80_000)) for _ in range(5)]
        for number in (1, 3):
            right.host.path(f"{RUN}/{refs[number].name}").unlink()
        assert left.blocks.lost(ref.slice(0) for ref in refs) == {refs[1].name, refs[3].name}


def test_reader_outside_the_members_finds_the_gateway_of_its_process(tmp_path: Path) -> None:
    """For example in a driver."""
    with two_members(tmp_path, paths=False) as (left, right, _):
        ref = right.put(*arrays(1, 80_000))
        driver = hosts.HostPeers(left.store, RUN, KEY, None)
        host, members = right.host.host_id, {"left", "right"}
        assert driver.gone(host, [ref.name]) == {ref.name}
        present = local_gateways.Members(members.__contains__, left.server.address)
        local_gateways.add(present)
        try:
            assert driver.gone(host, [ref.name, "s/other"]) == {"s/other"}
            assert same(read_all_with(driver, left, ref), arrays(1, 80_000))
            members.remove("right")
            driver._directory._known.clear()  # private: the test empties the cache of addresses
            assert driver.gone(host, [ref.name]) == {ref.name}
        finally:
            local_gateways.remove(present)
        driver.close()


def read_all_with(peers: hosts.HostPeers, member: Member, ref: BlockRef) -> list[np.ndarray[Any, Any]]:
    blocks = Blocks(member.store, RUN, None, lambda: peers)
    return [blocks.get(ref.slice(index)) for index in range(len(ref.parts))]


def test_a_member_that_says_it_can_be_dialled_and_cannot_is_reached_all_the_same(tmp_path: Path) -> None:
    with two_members(tmp_path, paths=False) as (left, right, _):
        wanted = arrays(1, 80_000)
        with served(tmp_path) as (_, gone):
            pass
        right.announce(gone.address)
        assert same(read_all(left, right.put(*wanted)), wanted)
        assert left.blocks.read["stored"] > 0


def test_a_host_without_a_gateway_forwards_nothing(tmp_path: Path) -> None:
    with served(tmp_path) as (_, server), reader() as client, pytest.raises(WireError):
        client.fetch(through(server.address, "somebody"), [("s/a", 0, 1)], soon())


@pytest.mark.parametrize(
    "answer",
    [AskAnswer(0, ()), AskAnswer(0, (5,)), AskAnswer(0, (5, 5), b"1234567890"), AskAnswer(0, (5,), stored="x")],
    ids=["too few", "without bytes", "too many", "not there"],
)
def test_an_answer_that_answers_something_else_is_an_error(tmp_path: Path, answer: AskAnswer) -> None:
    with two_members(tmp_path) as (left, _, office):
        office.drops = lambda message: True
        with ThreadPoolExecutor(1) as pool:
            asked = pool.submit(left.gateway.ask, "right", RUN, [Want("s/a", 0, 5)], Counter())
            eventually(lambda: office.said[2:])
            left.gateway.heard(Relayed("right", msgspec.msgpack.encode(answer)), ("", 0))
            with pytest.raises(WireError):
                asked.result(LONG)


def test_waiting_readers_do_not_wake_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    woken = itertools.count()
    tick = Asks.tick

    def counted(asks: Asks, now: float) -> list[Instruction]:
        next(woken)
        return tick(asks, now)

    with two_members(tmp_path) as (left, _, office), ThreadPoolExecutor(3) as pool:
        office.drops = lambda message: True
        wants = [Want("s/a", 0, 5)]
        asked = [pool.submit(left.gateway.ask, "right", RUN, wants, Counter()) for _ in range(3)]
        eventually(lambda: len(left.gateway._asks) == len(asked))  # private: open requests have no other sign
        monkeypatch.setattr(Asks, "tick", counted)
        left.gateway.heard(Relayed("right", msgspec.msgpack.encode(AskAnswer(0, (5,), b"right"))), ("", 0))
        wait(asked, LONG, FIRST_COMPLETED)
        time.sleep(0.2)
        assert next(woken) < 20
        left.gateway.close()


@pytest.mark.parametrize("which", ["treadle-path-speaking", "treadle-path-hearing"])
def test_members_exchange_blocks_without_a_path_when_no_thread_is_free(
    tmp_path: Path, which: str, refusing: Callable[[str], None]
) -> None:
    wanted = arrays(1, 500)
    with two_members(tmp_path, paths=False) as (left, right, _):
        refusing(which)
        with connected(left, right, HEALTHY):  # on one side
            assert same(read_all(left, right.put(*wanted)), wanted)
            assert same(read_all(right, left.put(*wanted)), wanted)
        assert left.blocks.read["path"] == right.blocks.read["path"] == 0


def test_answer_of_a_stranger_is_ignored(tmp_path: Path) -> None:
    with two_members(tmp_path) as (left, _, office):
        office.drops = lambda message: True
        with ThreadPoolExecutor(1) as pool:
            asked = pool.submit(left.gateway.ask, "right", RUN, [Want("s/a", 0, 5)], Counter())
            eventually(lambda: office.said[2:])
            for member, sent in (("another", b"wrong"), ("right", b"right")):
                left.gateway.heard(Relayed(member, msgspec.msgpack.encode(AskAnswer(0, (5,), sent))), ("", 0))
            lengths, data = asked.result(LONG)
        assert (lengths, bytes(data)) == ((5,), b"right")


@pytest.mark.parametrize("body", [b"", b"\x93", b"\x81\xa4type\xa1\xff", b"\x81\xa4type\xa3ask"])
def test_malformed_message_is_ignored(tmp_path: Path, body: bytes) -> None:
    with two_members(tmp_path, paths=False) as (left, right, _):
        left.gateway.heard(Relayed("right", body), ("", 0))
        assert same(read_all(left, right.put(*arrays(1, 100))), arrays(1, 100))


def test_object_of_a_stranger_in_the_store_is_not_trusted(tmp_path: Path) -> None:
    with two_members(tmp_path) as (left, _, office):
        office.drops = lambda message: True
        left.store.put("runs/run-1/blocks/_passed/x", b"treadle\x01" + bytes(37))
        with ThreadPoolExecutor(1) as pool:
            asked = pool.submit(left.gateway.ask, "right", RUN, [Want("s/a", 0, 5)], Counter())
            eventually(lambda: office.said[2:])
            answer = AskAnswer(0, (5,), stored="x")
            left.gateway.heard(Relayed("right", msgspec.msgpack.encode(answer)), ("", 0))
            with pytest.raises(WireError, match="was not written with this deployment's key"):
                asked.result(LONG)


def test_second_answer_to_a_request_leaves_nothing_in_the_store(tmp_path: Path) -> None:
    with two_members(tmp_path) as (left, _, _):
        token = store_relay.leave(left.store, RUN, KEY, [b"12345"])
        assert len(left.passed()) == 1
        answer = AskAnswer(99, (5,), stored=token, run=RUN)
        left.gateway.heard(Relayed("right", msgspec.msgpack.encode(answer)), ("", 0))
        eventually(lambda: left.passed() == [])


@pytest.mark.parametrize("name", ["runs/run-1/plan", "../../plan", "\0"])
def test_member_cannot_name_objects_for_others_to_take(tmp_path: Path, name: str) -> None:
    """A fetched object is removed, so it must be one that was left there for that purpose."""
    with two_members(tmp_path) as (left, _, office):
        office.drops = lambda message: True
        SealedStore(left.store, KEY).put("runs/run-1/plan", b"12345")
        with ThreadPoolExecutor(1) as pool:
            asked = pool.submit(left.gateway.ask, "right", RUN, [Want("s/a", 0, 5)], Counter())
            eventually(lambda: office.said[2:])
            left.gateway.heard(Relayed("right", msgspec.msgpack.encode(AskAnswer(0, (5,), stored=name))), ("", 0))
            with pytest.raises(WireError):
                asked.result(LONG)
        assert bytes(SealedStore(left.store, KEY).get("runs/run-1/plan")) == b"12345"


@given(st.lists(st.tuples(st.integers(0, 300), st.integers(-1, 2 * PIECE)), max_size=50) | st.just([(1, 1)] * 600))
def test_asks_hold_every_want_once_and_a_piece_at_most(sizes: list[tuple[int, int]]) -> None:
    wants = [Want("x" * name, 0, length) for name, length in sizes]
    asks = list(cut(wants))
    assert [want for ask in asks for want in ask] == wants
    for ask in asks:
        assert len(ask) == 1 or sum(want.length if want.length >= 0 else PIECE for want in ask) <= PIECE
        assert sum(len(want.name) for want in ask) <= 32 << 10


def test_an_announcement_says_how_a_member_is_reached(tmp_path: Path) -> None:
    with two_members(tmp_path) as (left, _, _):
        entry = resolve(left.store, RUN, KEY, left.host.host_id)
        assert entry is not None
        assert (entry.address, entry.member, entry.gateway) == ("", "left", left.server.address)
    attempts_end()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("treadle-gateway")]
