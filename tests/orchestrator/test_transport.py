"""Where blocks go, and why: every row of the decision."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.executors.interface import Capabilities
from treadle.orchestrator.planner.transport import UNRELIABLE, Edge, Figures, Site, choose_place, predict

MIB = 2**20
SLOW_STORE = Figures(store_seconds=0.02, store_rate=100 * MIB, link_seconds=0.0001, link_rate=1000 * MIB)
SLOW_LINK = Figures(store_seconds=0.001, store_rate=1000 * MIB, link_seconds=0.05, link_rate=10 * MIB)
LOCAL = Capabilities("local", 4, shares_host=True, gangs=True)
ALONE = Capabilities("lambda", 4, shares_host=False)
ONE = Site({"local": LOCAL}, 100 * MIB, "file:///store")
MANY = msgspec.structs.replace(ONE, one_host=False, peers=True)
APART = msgspec.structs.replace(ONE, one_host=False)
EDGE = Edge(10 * MIB, 8, 8)

ROWS: dict[str, tuple[dict[str, Any], Site, str, str]] = {
    "asked for storage": ({"exchange": "storage"}, ONE, "store", "storage was asked for"),
    "one host": ({}, ONE, "host", "every worker is on this host"),
    "too large for shared memory": ({"estimate": 101 * MIB}, ONE, "store", "may not fit"),
    "asked for direct, though large": ({"estimate": 101 * MIB, "exchange": "direct"}, ONE, "host", "was asked for"),
    "no peers": ({}, APART, "store", "TREADLE_PEERS"),
    "asked for direct without peers": ({"exchange": "direct"}, APART, "store", "TREADLE_PEERS"),
    "peers": ({}, MANY, "host", "over TCP"),
    "hosts get lost": ({}, msgspec.structs.replace(MANY, lost_hosts=UNRELIABLE), "store", "were lost lately"),
    "the store is slow": ({}, msgspec.structs.replace(MANY, figures=SLOW_STORE), "host", "predicted"),
    "the link is slow": ({}, msgspec.structs.replace(MANY, figures=SLOW_LINK), "store", "predicted"),
    "every task must survive": ({"durability": "task"}, MANY, "host", "also goes to the store"),
    "every segment must survive": ({"durability": "segment"}, MANY, "host", "copied to the store"),
}


@pytest.mark.parametrize("row", ROWS)
def test_each_situation_has_its_place_and_reason(row: str) -> None:
    more, site, place, reason = ROWS[row]
    chosen, why = choose_place(msgspec.structs.replace(EDGE, **more), LOCAL, site)
    assert chosen == place
    assert reason in why


def test_what_shares_no_memory_leaves_its_blocks_in_the_store() -> None:
    for exchange in ("auto", "direct"):
        edge = msgspec.structs.replace(EDGE, exchange=exchange)
        assert choose_place(edge, ALONE, ONE) == ("store", "lambda workers do not share this host's memory")


@given(
    st.builds(
        Edge,
        st.integers(0, 2**40),
        st.integers(0, 1000),
        st.integers(1, 1000),
        st.sampled_from(["auto", "storage", "direct"]),
        st.sampled_from(["", "task", "segment"]),
    ),
    st.sampled_from([ONE, MANY, APART]),
)
def test_what_was_asked_for_is_done_where_it_can_be(edge: Edge, site: Site) -> None:
    place, reason = choose_place(edge, LOCAL, site)
    assert reason
    if edge.exchange == "storage" or site is APART:
        assert place == "store"
    elif edge.exchange == "direct":
        assert place == "host"


@given(st.integers(0, 2**40), st.integers(1, 1000), st.integers(1, 1000))
def test_more_bytes_and_more_parts_never_cost_less(estimate: int, producers: int, targets: int) -> None:
    less = predict(Edge(estimate, producers, targets), 4, SLOW_STORE)
    more = predict(Edge(estimate + MIB, producers + 1, targets + 1), 4, SLOW_STORE)
    assert all(a <= b for a, b in zip(less, more, strict=True))
