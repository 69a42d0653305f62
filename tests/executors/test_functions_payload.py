"""Requests and responses of functions cannot be forged, swapped or oversized."""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from treadle.executors.functions.call_records import open_calls
from treadle.executors.functions.payload import (
    Order,
    Request,
    Response,
    Stored,
    alive_object,
    decode_content,
    decode_response,
    encode_request,
    open_reports,
    open_time,
    respond,
    response_of,
    seal_reports,
    seal_time,
    take_reports,
)
from treadle.executors.program import ItemSplit, Job, Keep, Outcome, Partition, Program, Report, Task
from treadle.primitives import sealing
from treadle.primitives.errors import CorruptError
from treadle.primitives.stores.store import Store

_KEY, _OTHER = b"k" * 32, b"o" * 32
_LIMIT = 10_000


def _order(store: str = "memory://", item: object = 1, reports: str = "runs/run/functions/s/reports/x-0/0") -> Order:
    job = Job("run", "workflow", "2026-01-01T00:00:00Z", 0, store, "")
    task = Task("s/0", job, Program("s", (), Keep()), (Partition(0, ItemSplit((item,))),))
    return Order(task, reports, 900.0, _LIMIT)


def _request(order: Order, key: bytes = _KEY, limit: int = _LIMIT) -> Request:
    return msgspec.json.decode(encode_request(order, key, limit), type=Request)


def _reports(size: int = 0) -> list[Report]:
    return [Outcome(0, 1, "objects", 1, log=b"x" * size)]


def test_an_order_comes_back_as_it_was() -> None:
    assert _request(_order()).run == "run"
    assert decode_content(_request(_order()), _KEY) == _order()


def test_an_order_sealed_with_another_key_is_refused() -> None:
    with pytest.raises(CorruptError):
        decode_content(_request(_order(), _OTHER), _KEY)


@pytest.mark.parametrize("limit", [0, 300], ids=["sent", "by reference"])
def test_key_of_one_run_seals_no_order_of_another(limit: int, tmp_path: Path) -> None:
    request = _request(_order(f"file://{tmp_path}"), limit=limit)
    assert decode_content(request, _KEY)
    with pytest.raises(CorruptError, match="of another run"):
        decode_content(msgspec.structs.replace(request, run="other"), _KEY)


def test_an_order_beyond_the_limit_goes_through_the_store_and_comes_back_as_it_was(tmp_path: Path) -> None:
    order = _order(f"file://{tmp_path}", "x" * _LIMIT)
    assert len(encode_request(order, _KEY, _LIMIT)) < 1000
    assert decode_content(_request(order), _KEY) == order


def test_an_order_in_the_store_is_not_believed_without_its_seal(tmp_path: Path) -> None:
    order = _order(f"file://{tmp_path}", "x" * _LIMIT)
    request = _request(order)
    name = f"{order.reports}.order"
    Store.open(order.task.job.store).put(name, sealing.seal(_OTHER, name, msgspec.msgpack.encode(order)))
    with pytest.raises(CorruptError):
        decode_content(request, _KEY)


def test_an_order_in_the_store_leads_to_no_other(tmp_path: Path) -> None:
    store, name = f"file://{tmp_path}", "loop"
    sealed = sealing.seal(_KEY, name, msgspec.msgpack.encode(Stored(store, name)))
    Store.open(store).put(name, sealed)
    request = sealing.seal(_KEY, "order for a function", msgspec.msgpack.encode(Stored(store, name)))
    with pytest.raises(CorruptError, match="another one"):
        decode_content(Request("run", base64.b64encode(request).decode()), _KEY)


def test_reports_come_back_as_they_were() -> None:
    assert open_reports(_order().reports, seal_reports(_order(), _reports(), _KEY), _KEY) == _reports()


def test_reports_of_another_call_are_refused() -> None:
    sealed = seal_reports(_order(reports="a"), _reports(), _KEY)
    with pytest.raises(CorruptError):
        open_reports("b", sealed, _KEY)


@pytest.mark.parametrize("size", range(_LIMIT * 3 // 4 - 300, _LIMIT * 3 // 4, 7))
def test_a_response_never_exceeds_its_limit(size: int) -> None:
    response = response_of(_order(), b"x" * size)
    assert len(msgspec.json.encode(response)) <= _LIMIT
    assert not response.reports or base64.b64decode(response.reports) == b"x" * size


@pytest.mark.parametrize("size", [0, _LIMIT])
def test_reports_come_back_whether_they_fit_or_not_and_leave_no_object(size: int, tmp_path: Path) -> None:
    order = _order(f"file://{tmp_path}")
    response = respond(order, _reports(size), _KEY)
    assert bool(response.reports) == (size == 0)
    assert take_reports(order, decode_response(msgspec.json.encode(response)), _KEY) == _reports(size)
    assert not list(Store.open(f"file://{tmp_path}").list())


@pytest.mark.parametrize("said", [b"", b"\xff", b"[]", b'{"reports": 7}', b'{"problem": "odd"}'])
def test_malformed_answer_decodes_to_an_empty_response(said: bytes) -> None:
    assert decode_response(said) == Response()


@pytest.mark.parametrize("text", ["no Base64!", "QUJD", "§", "QQ"])
def test_unsealed_response_is_refused(text: str) -> None:
    with pytest.raises(CorruptError):
        take_reports(_order(), Response(text), _KEY)
    with pytest.raises(CorruptError):
        decode_content(Request("run", text), _KEY)


def test_a_sign_of_life_is_of_one_call() -> None:
    assert open_time("a", seal_time("a", 7.5, _KEY), _KEY) == 7.5
    with pytest.raises(CorruptError):
        open_time("b", seal_time("a", 7.5, _KEY), _KEY)


@pytest.mark.parametrize("read", [open_time, open_reports, open_calls])
def test_order_of_another_version_is_refused(read: Callable[[str, bytes, bytes], object]) -> None:
    for name in ("a", alive_object("a")):  # a sign of life is sealed for its own name
        with pytest.raises(CorruptError):
            read("a", sealing.seal(_KEY, name, msgspec.msgpack.encode({"of": "another"})), _KEY)
