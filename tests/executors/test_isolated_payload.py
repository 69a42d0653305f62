"""Requests and responses of isolated attempts cannot be forged, swapped or oversized."""

from __future__ import annotations

import msgspec
import pytest

from treadle.executors.isolated.payload import (
    PAYLOAD_LIMIT,
    Request,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
)
from treadle.executors.program import ItemSplit, Job, Keep, Outcome, Partition, Program, Report, Task
from treadle.primitives.errors import CorruptError, UsageError
from treadle.primitives.store import Store

_KEY, _OTHER = b"k" * 32, b"o" * 32


def _task(store: str = "memory://", item: object = 1, attempt: int = 1) -> Task:
    job = Job("run", "workflow", "2026-01-01T00:00:00Z", 0, store, "")
    return Task("s/0", job, Program("s", (), Keep()), (Partition(0, ItemSplit((item,)), attempt),))


def _reports(size: int = 0) -> list[Report]:
    return [Outcome(0, 1, "objects", 1, log=b"x" * size)]


def test_request_comes_back_as_it_was() -> None:
    request = msgspec.json.decode(encode_request(_task(), _KEY), type=Request)
    assert request.run == "run"
    assert decode_request(request, _KEY) == _task()


def test_request_sealed_with_another_key_is_refused() -> None:
    request = msgspec.json.decode(encode_request(_task(), _OTHER), type=Request)
    with pytest.raises(CorruptError):
        decode_request(request, _KEY)


def test_request_beyond_the_limit_is_refused_with_both_sizes() -> None:
    with pytest.raises(UsageError, match=rf"is \d+ bytes as a payload; {PAYLOAD_LIMIT} are allowed"):
        encode_request(_task(item="x" * PAYLOAD_LIMIT), _KEY)


def test_response_comes_back_as_it_was() -> None:
    assert decode_response(_task(), encode_response(_task(), _reports(), _KEY), _KEY) == _reports()


def test_response_of_another_attempt_is_refused() -> None:
    response = encode_response(_task(attempt=1), _reports(), _KEY)
    with pytest.raises(CorruptError):
        decode_response(_task(attempt=2), response, _KEY)


def test_long_response_goes_through_the_store_and_is_removed(tmp_path: object) -> None:
    task = _task(store=f"file://{tmp_path}")
    response = encode_response(task, _reports(PAYLOAD_LIMIT), _KEY)
    assert len(response) < 1000
    assert decode_response(task, response, _KEY) == _reports(PAYLOAD_LIMIT)
    assert list(Store.open(task.job.store).list()) == []
