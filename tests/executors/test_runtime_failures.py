"""The class, the message and the lost input of a partition's failure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from executors.bench import RUN, Bench, call
from executors.operation_functions import identity, per_record

from treadle.executors.failures import classify
from treadle.executors.program import BlockInput, Broadcast, Call, MapPartition, MapRecords
from treadle.primitives import functions
from treadle.primitives.channels import MemberLost
from treadle.primitives.encoding.references import Slice
from treadle.primitives.errors import (
    CorruptError,
    DataError,
    FailureClass,
    MissingError,
    StoreError,
    UsageError,
)

# -- classes of failures -----------------------------------------------------------------------------------------------


class CustomError(Exception):
    pass


def fail_custom(record: Any) -> None:
    helper(record)


def helper(record: Any) -> None:
    try:
        raise KeyError("inner")
    except KeyError as error:
        raise CustomError(f"bad {record}") from error


def test_a_user_error_carries_the_users_traceback_and_none_of_ours(bench: Bench) -> None:
    failure = bench.failure(per_record(fail_custom), source=[1], attempt=3, index=4)
    assert (failure.partition, failure.attempt, failure.stage) == (4, 3, "a")
    assert (failure.failure, failure.retryable) == (FailureClass.USER_ERROR, True)
    assert failure.error == f"{__name__}.CustomError"
    assert failure.message == "bad 1"
    for expected in ("in fail_custom", "in helper", "KeyError: 'inner'", "direct cause", "CustomError: bad 1"):
        assert expected in failure.traceback
    assert "operations" not in failure.traceback


def lose_a_member(record: Any) -> None:
    raise MemberLost("reduce channel sum", ["gang/1.abc"])


def test_failure_caused_by_another_member_is_not_a_user_error(bench: Bench) -> None:
    failure = bench.failure(per_record(lose_a_member), source=[1])
    assert (failure.failure, failure.followed, failure.retryable) == (FailureClass.WORKER_LOST, True, True)
    assert not bench.failure(per_record(fail_custom), source=[1]).followed


def leave(record: Any) -> None:
    raise {"exit": SystemExit(3), "interrupt": KeyboardInterrupt(), "stop": StopIteration()}[record]


@pytest.mark.parametrize(
    ("how", "error"), [("exit", "SystemExit"), ("interrupt", "KeyboardInterrupt"), ("stop", "StopIteration")]
)
@pytest.mark.parametrize("flat", [False, True])
def test_ways_out_of_the_interpreter_are_user_errors(bench: Bench, how: str, error: str, flat: bool) -> None:
    failure = bench.failure(MapRecords("a", call(leave), flat=flat), source=[how])
    assert failure.failure is FailureClass.USER_ERROR
    assert error in failure.traceback


def no_memory(record: Any) -> None:
    raise MemoryError


def test_memory_error_is_out_of_memory_from_every_source(bench: Bench) -> None:
    failure = bench.failure(per_record(no_memory), source=[1])
    assert (failure.failure, failure.how) == (FailureClass.OUT_OF_MEMORY, "exception MemoryError")
    failure = bench.failure(per_record(no_numpy_memory), source=[1])
    assert failure.failure is FailureClass.OUT_OF_MEMORY


def no_numpy_memory(record: Any) -> Any:
    return np.ones(1 << 60, np.uint8)


class Untellable(Exception):
    def __str__(self) -> str:
        raise ValueError


def raise_untellable(record: Any) -> None:
    raise Untellable


def test_an_error_that_cannot_be_printed_is_still_reported(bench: Bench) -> None:
    failure = bench.failure(per_record(raise_untellable), source=[1])
    assert failure.error == f"{__name__}.Untellable"


def test_errors_named_non_retryable_are_not_tried_again(bench: Bench) -> None:
    for names in (("CustomError",), (f"{__name__}.CustomError",), ("Exception",)):
        op = MapRecords("a", call(fail_custom), non_retryable=names)
        assert not bench.failure(op, source=[1]).retryable
    assert bench.failure(MapRecords("a", call(fail_custom), non_retryable=("Custom",)), source=[1]).retryable


def test_an_unpicklable_record_is_a_user_error(bench: Bench) -> None:
    failure = bench.failure(per_record(as_lambda), source=[1])
    assert failure.failure is FailureClass.USER_ERROR
    assert "cannot be pickled" in failure.message


def as_lambda(record: Any) -> Any:
    return lambda: record


def test_a_missing_function_is_a_user_error_no_retry_mends(bench: Bench) -> None:
    failure = bench.failure(MapRecords("a", Call("no_such_module_here:f")), source=[1])
    assert (failure.failure, failure.retryable) == (FailureClass.USER_ERROR, False)
    assert "no module 'no_such_module_here'" in failure.message


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (CorruptError("x"), (FailureClass.CORRUPT, True)),
        (MissingError("x"), (FailureClass.UNREACHABLE, True)),
        (StoreError("x"), (FailureClass.UNREACHABLE, False)),
        (StoreError("x", retryable=True), (FailureClass.UNREACHABLE, True)),
        (StoreError("store s3://b: slow down", throttled=True), (FailureClass.THROTTLED, True)),
        (DataError("x"), (FailureClass.USER_ERROR, True)),
        (UsageError("x"), (FailureClass.USER_ERROR, False)),
        (MemoryError(), (FailureClass.OUT_OF_MEMORY, True)),
        (ZeroDivisionError(), (FailureClass.INTERNAL, True)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_every_error_has_one_class(error: BaseException, expected: tuple[FailureClass, bool]) -> None:
    failure, how, retryable = classify(error)
    assert (failure, retryable) == expected
    assert how == f"exception {type(error).__module__}.".replace("builtins.", "") + type(error).__name__


# -- lost input --------------------------------------------------------------------------------------------------------


def damage(bench: Bench, slice: Slice) -> None:
    path = bench.store.path(f"runs/{RUN}/blocks/{slice.name}")
    assert path is not None
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def remove(bench: Bench, slice: Slice) -> None:
    bench.store.delete([f"runs/{RUN}/blocks/{slice.name}"])


def test_lost_blocks_are_all_named_at_once(bench: Bench) -> None:
    source = bench.blocks_of([1], [2], [3], [4])
    slices = source.inputs[0]
    remove(bench, slices[1])
    damage(bench, slices[3])
    failure = bench.failure(per_record(identity), source=source)
    assert failure.failure is FailureClass.UNREACHABLE
    assert failure.lost == (slices[1].name, slices[3].name)


def test_damaged_block_is_corrupt_and_named_even_if_the_function_catches_the_error(bench: Bench) -> None:
    source = bench.blocks_of([1])
    damage(bench, source.inputs[0][0])
    failure = bench.failure(MapPartition("a", call(swallow)), source=source)
    assert failure.failure is FailureClass.CORRUPT
    assert failure.lost == (source.inputs[0][0].name,)


def swallow(records: Iterator[Any]) -> Any:
    try:
        return list(records)
    except BaseException:  # noqa: BLE001
        return []


def test_a_lost_broadcast_is_named(bench: Bench) -> None:
    block = bench.put([[1, 2]])
    remove(bench, block.slice(0))
    op = MapRecords("a", Call(functions.reference(take), {"argument": Broadcast(block.slice(0))}))
    failure = bench.failure(op, source=[1])
    assert (failure.failure, failure.lost) == (FailureClass.UNREACHABLE, (block.name,))


def take(record: Any, argument: Any) -> Any:
    return argument


def test_parts_of_different_kinds_are_refused_but_empty_ones_pass(bench: Bench) -> None:
    array = bench.put(np.array([1]), kind="array").slice(0)
    empty, full = bench.put([]).slice(0), bench.put([1]).slice(0)
    assert bench.records(source=BlockInput(((empty, array),))).tolist() == [1]
    failure = bench.failure(source=BlockInput(((full, array),)))
    assert failure.failure is FailureClass.USER_ERROR
    assert "array, objects" in failure.message
