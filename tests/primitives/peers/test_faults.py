"""Each fault ends in the right bytes or a classified error by the deadline, and leaves nothing behind."""

from __future__ import annotations

import contextlib
import itertools
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from primitives.peers.faults import HEALTHY, Fault, FaultyPath
from primitives.peers.hosts import RUN, at_once, content, reader, served, soon

from treadle.primitives.errors import MissingError
from treadle.primitives.stores.shared_memory import HostFolder
from treadle.primitives.wire import Identity, NotAuthentic, TimedOut, WireError

BLOCKS = {"s/0": content(500, 0), "s/1": content(300_000, 1), "s/2": content(70_000, 2), "s/3": b""}
WANTS = [(name, 0, len(block)) for name, block in BLOCKS.items()]
EXPECTED = list(BLOCKS.values())
PLACES = (0, 50, 95, 105, 3000, 300_500)
"""Positions in the answers: in the challenge, in the welcome, in the first lengths and head, and in the data."""
CUT = [Fault("reset"), *(Fault("cut", after) for after in PLACES), Fault("cut", 20, requests=True)]
SILENT = [Fault("silent"), *(Fault("stall", after) for after in PLACES), Fault("stall", 150, requests=True)]
CORRUPT = [Fault("corrupt", after, requests) for after, requests in itertools.product(range(0, 400, 29), (False, True))]


def fill(host: HostFolder) -> None:
    for name, block in BLOCKS.items():
        host.put(f"{RUN}/{name}", [block])


@pytest.mark.parametrize("fault", CUT, ids=str)
def test_a_path_that_is_cut_for_good_is_an_error(tmp_path: Path, fault: Fault) -> None:
    with served(tmp_path) as (host, server), FaultyPath(server.address, [fault]) as path, reader() as client:
        host.put(f"{RUN}/s/long", [bytes(400_000)])
        with pytest.raises(WireError):
            client.fetch(path.address, [("s/long", 0, -1)], soon())
        assert list(client.failures) == [path.address]


@pytest.mark.parametrize("after", [150, 700, 40_000])
def test_a_connection_that_is_cut_after_it_was_of_use_is_replaced(
    tmp_path: Path, tls: Identity | None, after: int
) -> None:
    faults = [Fault("cut", after + (3000 if tls else 0)), HEALTHY]
    with served(tmp_path, tls) as (host, server), FaultyPath(server.address, faults) as path, reader() as client:
        fill(host)
        for _ in range(4):
            try:
                views = client.fetch(path.address, WANTS, soon())
            except WireError:  # the connection was new and not usable yet
                client._pool.failures.clear()  # private: the pause of a failed peer is long
                continue
            assert views == EXPECTED
        assert path.accepted == 2


def test_answers_that_came_before_a_cut_are_not_asked_for_again(tmp_path: Path) -> None:
    wants = [("s/1", 0, 300_000)] * 6
    cuts = [Fault("cut", 700_000), Fault("cut", 700_000), HEALTHY]
    with served(tmp_path) as (host, server), FaultyPath(server.address, cuts) as path, reader() as client:
        fill(host)
        assert client.fetch(path.address, wants, soon()) == [BLOCKS["s/1"]] * 6
        assert path.accepted == 3
        assert sum(path.sizes) < 6 * 300_000 + 2 * 300_000


@pytest.mark.parametrize("fault", SILENT, ids=str)
def test_silence_ends_at_the_deadline(tmp_path: Path, fault: Fault) -> None:
    with served(tmp_path) as (host, server), FaultyPath(server.address, [fault]) as path, reader() as client:
        fill(host)
        with pytest.raises(TimedOut):
            client.fetch(path.address, WANTS * 2, at_once())
        with pytest.raises(WireError, match="a moment ago"):
            client.fetch(path.address, WANTS, soon())


def test_a_slow_drip_ends_at_the_deadline_or_in_the_right_bytes(tmp_path: Path) -> None:
    with served(tmp_path) as (host, server), FaultyPath(server.address, [Fault("drip")]) as path, reader() as client:
        fill(host)
        assert client.fetch(path.address, WANTS[2:], soon()) == EXPECTED[2:]
        host.put(f"{RUN}/s/long", [bytes(20_000_000)])
        with pytest.raises(TimedOut):
            client.fetch(path.address, [("s/long", 0, -1)], at_once())


@pytest.mark.parametrize("fault", CORRUPT, ids=str)
def test_a_changed_byte_is_delivered_or_refused_and_checksums_are_the_callers(tmp_path: Path, fault: Fault) -> None:
    """In an answer, it changes one byte at most. In a request, it may request another range."""
    with served(tmp_path) as (host, server), FaultyPath(server.address, [fault, HEALTHY]) as path, reader() as client:
        fill(host)
        for _ in range(3):
            client._pool.failures.clear()
            with contextlib.suppress(WireError, NotAuthentic, MissingError):
                (view,) = client.fetch(path.address, WANTS[:1], time.monotonic() + 0.5)
                assert len(view) <= 500
                if not fault.requests:
                    assert sum(a != b for a, b in zip(view, EXPECTED[0], strict=True)) <= 1
        assert client.fetch(server.address, WANTS, soon()) == EXPECTED


@pytest.mark.parametrize("at", range(0, 6000, 457))
def test_under_tls_a_changed_byte_is_refused(tmp_path: Path, identity: Identity, at: int) -> None:
    faults = [Fault("corrupt", at), HEALTHY]
    with served(tmp_path, identity) as (host, server), FaultyPath(server.address, faults) as path:
        fill(host)
        with reader() as client:
            try:
                assert client.fetch(path.address, WANTS, time.monotonic() + 2) == EXPECTED
            except (WireError, NotAuthentic):
                client._pool.failures.clear()
            assert client.fetch(path.address, WANTS, soon()) == EXPECTED


KINDS = st.sampled_from(["silent", "reset", "cut", "stall", "corrupt", "none"])
FAULTS = st.builds(Fault, KINDS, st.one_of(st.integers(0, 200), st.integers(0, 400_000)), st.booleans())


def test_any_faults_in_a_row_end_in_bytes_or_a_classified_error(tmp_path: Path) -> None:
    @settings(deadline=None, max_examples=settings().max_examples // 2)
    @given(st.lists(FAULTS, min_size=1, max_size=4), st.booleans())
    def check(faults: list[Fault], whole: bool) -> None:
        here = HostFolder(tmp_path / "here" / f"{next(numbers)}")
        deadline = time.monotonic() + 0.15
        with FaultyPath(server.address, faults) as path, reader() as client:
            try:
                if whole:
                    views = [client.fetch_to_host(path.address, "s/1", None, here, deadline)]
                else:
                    views = client.fetch(path.address, WANTS, deadline)
            except (WireError, NotAuthentic, MissingError):
                return
        if all(fault.kind != "corrupt" for fault in faults):
            assert views == (EXPECTED[1:2] if whole else EXPECTED)

    numbers = itertools.count()
    with served(tmp_path) as (host, server):
        fill(host)
        check()
