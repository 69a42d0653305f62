"""Requests are counted as an S3 server receives them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest
from emulators.lambda_s3 import FlakyS3

from treadle.primitives.stores import request_counts
from treadle.primitives.stores.request_counts import counted_for, of_run, since
from treadle.primitives.stores.store import Store
from treadle.primitives.testing.s3 import S3Endpoint

LARGE = bytes(20 << 20)
CHUNK = 8 << 20


@pytest.fixture
def proxy(s3: S3Endpoint) -> Iterator[FlakyS3]:
    with FlakyS3(s3.url, share=0.0) as proxy:
        yield proxy


@pytest.fixture
def store(s3: S3Endpoint, proxy: FlakyS3) -> Store:
    store = Store.open("s3://treadle/counted", **{**s3.options, "endpoint": proxy.url})
    for number in range(3):
        store.put(f"known/{number}", b"0123456789")
    return store


def pieces(size: int) -> Iterator[bytes]:
    return iter([bytes(1 << 20)] * (size >> 20))


DOINGS: dict[str, Callable[[Store], object]] = {
    "small put": lambda store: store.put("a", b"1"),
    "empty put": lambda store: store.put("a", b""),
    "put of a chunk": lambda store: store.put("a", bytes(CHUNK)),
    "put in parts": lambda store: store.put("a", LARGE),
    "streamed put": lambda store: store.put("a", pieces(20 << 20)),
    "small streamed put": lambda store: store.put("a", pieces(2 << 20)),
    "create": lambda store: store.create(os.urandom(8).hex(), b"1"),
    "create of what is there": lambda store: store.create("known/0", b"1"),
    "streamed create": lambda store: store.create(os.urandom(8).hex(), pieces(20 << 20)),
    "get": lambda store: store.get("known/0"),
    "range": lambda store: store.get_range("known/0", 1, 3),
    "range after the end": lambda store: store.get_range("known/0", 100, 3),
    "head": lambda store: store.head("known/0"),
    "head of nothing": lambda store: store.head("unknown"),
    "list": lambda store: list(store.list("known")),
    "list of nothing": lambda store: list(store.list("unknown")),
    "list of a folder": lambda store: list(store.list_folder("known")),
    "delete": lambda store: store.delete(["known/0"]),
    "delete of many": lambda store: store.delete(["known/0", "known/1"]),
    "delete of a folder": lambda store: store.delete_prefix("known"),
}


@pytest.mark.parametrize("name", DOINGS)
def test_counter_agrees_with_the_server(name: str, store: Store, proxy: FlakyS3) -> None:
    before, seen = request_counts.made(), proxy.kinds.copy()
    DOINGS[name](store)
    assert since(before) == dict(proxy.kinds - seen)


def test_listing_of_several_pages_is_several_requests(store: Store, proxy: FlakyS3) -> None:
    for number in range(1001):
        store.put(f"pages/{number}", b"")
    before, seen = request_counts.made(), proxy.kinds.copy()
    assert len(list(store.list("pages"))) == 1001
    assert since(before) == dict(proxy.kinds - seen) == {"list": 2}


def test_requests_of_a_run_are_counted_by_name_and_context() -> None:
    store = Store.open("memory://requests")
    store.put("runs/told-1/a", b"1")
    store.put("runs/told-1/_child/a", b"1")
    store.put("runs/told-2/a", b"1")
    with counted_for("told-1/child"):
        store.get("runs/told-2/a")
        store.put("input", b"1")
    store.put("input", b"1")
    assert (of_run("told-1"), of_run("told-1/child"), of_run("told-2")) == (
        {"put": 3},
        {"put": 3},
        {"put": 1, "get": 1},
    )
