"""The place of blocks and the reason: every row of the decision."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.executors.interface import Capabilities
from treadle.orchestrator.planner.transport import (
    UNRELIABLE,
    Edge,
    Figures,
    RunLocation,
    choose_place,
    crowding,
    predict,
)

MIB = 2**20
SLOW_STORE = Figures(store_seconds=0.02, store_rate=100 * MIB, link_seconds=0.0001, link_rate=1000 * MIB)
SLOW_LINK = Figures(store_seconds=0.001, store_rate=1000 * MIB, link_seconds=0.05, link_rate=10 * MIB)
LOCAL = Capabilities("local", 4, shares_host=True, gangs=True)
ALONE = Capabilities("lambda", 4, shares_host=False)
ONE = RunLocation({"local": LOCAL}, 100 * MIB, "file:///store")
MANY = msgspec.structs.replace(ONE, one_host=False, peers=True)
APART = msgspec.structs.replace(ONE, one_host=False)
EDGE = Edge(10 * MIB, 8, 8)

ROWS: dict[str, tuple[dict[str, Any], RunLocation, str, str]] = {
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
    "every task must survive, and the link is slow": (
        {"durability": "task"},
        msgspec.structs.replace(MANY, figures=SLOW_LINK),
        "host",
        "also goes to the store",
    ),
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
def test_requested_transport_is_used_when_it_is_possible(edge: Edge, site: RunLocation) -> None:
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


def test_a_prediction_is_requests_over_slots_and_bytes_over_rate() -> None:
    figures = Figures(store_seconds=1.0, store_rate=1000.0, link_seconds=0.5, link_rate=500.0)
    assert predict(Edge(1000, producers=2, targets=3), 4, figures) == (6 * 0.5 / 4 + 2, (6 + 2) * 1.0 / 4 + 1)
    assert predict(Edge(1000, targets=3), 4, figures) == (12 * 0.5 / 4 + 2, (12 + 4) * 1.0 / 4 + 1), "one for each slot"
    assert predict(Edge(1000, targets=3), 0, figures) == (3 * 0.5 + 2, (3 + 1) * 1.0 + 1)


def test_limit_includes_its_own_value() -> None:
    assert choose_place(Edge(100 * MIB), LOCAL, ONE)[0] == "host"
    assert choose_place(Edge(100 * MIB + 1), LOCAL, ONE)[0] == "store"
    assert choose_place(EDGE, LOCAL, msgspec.structs.replace(MANY, lost_hosts=UNRELIABLE - 1))[0] == "host"
    alike = msgspec.structs.replace(MANY, figures=Figures(0.0, MIB, 0.0, MIB))
    assert choose_place(EDGE, LOCAL, alike) == (
        "host",
        "predicted 10.0 s directly, 10.0 s through the store; workers of other hosts pull them over TCP",
    )


@pytest.mark.parametrize(
    ("estimate", "said"),
    [(1023, "1023 B"), (1024, "1 KiB"), (90 * MIB, "90 MiB"), (2**31, "2 GiB"), (3 * 2**40, "3.0 TiB")],
)
def test_sizes_are_printed_in_a_suitable_unit(estimate: int, said: str) -> None:
    roomy = msgspec.structs.replace(ONE, host_budget=2**50)
    _, reason = choose_place(Edge(estimate), LOCAL, roomy)
    assert reason == f"about {said} fits shared memory and every worker is on this host"


def test_memory_conflict_is_reported_for_a_single_host_only() -> None:
    assert "there is room for 100 MiB" in crowding(100 * MIB + 1, ONE)
    assert [crowding(100 * MIB, ONE), crowding(100 * MIB + 1, MANY)] == ["", ""], "it holds them; or hosts share them"


def test_unknown_size_is_not_printed() -> None:
    place, reason = choose_place(Edge(0), LOCAL, ONE)
    assert (place, "their size shows when it runs" in reason, "0 B" in reason) == ("host", True, False)


def test_short_times_are_printed_in_milliseconds() -> None:
    quick = msgspec.structs.replace(MANY, figures=Figures(0.0, 10 * MIB / 0.999, 0.0, 10 * MIB / 0.0125))
    assert "predicted 12.5 ms directly, 999.0 ms through the store" in choose_place(EDGE, LOCAL, quick)[1]
