"""Text outside Unicode and numbers beyond 64 bits from user functions are the user's errors, never internal ones."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from executors.bench import Bench, call
from executors.operation_functions import per_record

from treadle.executors.program import MapRecords
from treadle.executors.worker.messages import FrameEncoder
from treadle.primitives.errors import FailureClass
from treadle.primitives.result import Result

ODD = b"caf\xe9".decode("utf-8", "surrogateescape")


def open_odd_file(record: Any) -> None:
    with open(f"/nonexistent/{ODD}"):
        pass


def raise_odd(record: Any) -> None:
    raise ValueError(ODD)


@pytest.mark.parametrize("function", [open_odd_file, raise_odd])
def test_failure_is_reported_when_its_text_is_not_unicode(bench: Bench, function: Any) -> None:
    failure = bench.failure(per_record(function), source=[1])
    assert failure.failure is FailureClass.USER_ERROR
    assert r"caf\udce9" in failure.message
    assert FrameEncoder().encode(failure)


def odd(record: Any) -> str:
    return ODD


def test_record_may_be_text_outside_unicode(bench: Bench) -> None:
    assert bench.records(per_record(odd), source=[1]) == [ODD]


def large(record: int) -> Result:
    return Result(record, metrics={"n": record})


@pytest.mark.parametrize("numbers", [[2**64], [-(2**63) - 1], [2**63, 2**63]])
def test_a_metric_beyond_64_bits_is_the_users_error(bench: Bench, numbers: list[int]) -> None:
    op = MapRecords("a", call(large), metrics={"n": "sum"})
    failure = bench.failure(op, source=numbers)
    assert failure.failure is FailureClass.USER_ERROR
    assert "the metric 'n' has more than 64 bits" in failure.message


def test_a_metric_of_64_bits_is_taken(bench: Bench) -> None:
    outcome = bench.outcome(MapRecords("a", call(large), metrics={"n": "sum"}), source=[2**64 - 1])
    assert outcome.metrics == {"a": {"n": 2**64 - 1}}
    assert msgspec.msgpack.encode(outcome)


def tells_odd(record: Any) -> Result:
    return Result(record, metrics={"t": ODD})


def test_metric_outside_unicode_is_a_user_error(bench: Bench) -> None:
    failure = bench.failure(MapRecords("a", call(tells_odd), metrics={"t": "string"}), source=[1])
    assert failure.failure is FailureClass.USER_ERROR
    assert "is no Unicode text" in failure.message
