"""Payloads and failures in Temporal can be read only in their own place, and only with the key."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from temporalio.api.common.v1 import Payload
from temporalio.api.failure.v1 import Failure
from temporalio.converter import (
    ActivitySerializationContext,
    DataConverter,
    SerializationContext,
    WorkflowSerializationContext,
)
from temporalio.exceptions import ApplicationError, CancelledError, TimeoutError, TimeoutType

from treadle.orchestrator.dispatcher.orders import environment
from treadle.orchestrator.protocol.encryption import MessageCipher, RefusedMessage, data_converter
from treadle.orchestrator.protocol.messages import NodeReport, Opened

KEY, OTHER = b"k" * 32, b"o" * 32
GOLDEN = "83591816aa638e50790d4bb8e3d623fae6f1ee2240c8ee134dd9f90917e747a8462c"
VALUES = st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists, max_leaves=8)


def of_run(run: str, namespace: str = "treadle") -> WorkflowSerializationContext:
    return WorkflowSerializationContext(namespace, run)


def of_activity(run: str, kind: str) -> ActivitySerializationContext:
    return ActivitySerializationContext(
        namespace="treadle",
        activity_id="1",
        activity_type=kind,
        activity_task_queue=None,
        workflow_id=run,
        workflow_type=None,
        is_local=False,
    )


def at(context: SerializationContext, key: bytes = KEY, *former: bytes) -> DataConverter:
    return data_converter(key, former).with_context(context)


async def written(value: Any, context: SerializationContext = of_run("r")) -> Payload:
    (payload,) = await at(context).encode([value])
    return payload


@given(VALUES)
async def test_payload_is_read_where_it_was_meant_to_be(value: Any) -> None:
    payload = await written(value)
    assert await at(of_run("r")).decode([payload]) == [value]


@given(st.data())
async def test_changed_payload_is_refused(data: st.DataObject) -> None:
    payload = await written({"total": 1})
    place = data.draw(st.integers(0, len(payload.data) - 1))
    changed = bytearray(payload.data)
    changed[place] ^= data.draw(st.integers(1, 255))
    with pytest.raises(RefusedMessage):
        await at(of_run("r")).decode([Payload(metadata=payload.metadata, data=bytes(changed))])


@given(st.binary(max_size=40))
async def test_short_payload_is_refused(data: bytes) -> None:
    payload = await written(1)
    with pytest.raises(RefusedMessage):
        await at(of_run("r")).decode([Payload(metadata=payload.metadata, data=data)])


@pytest.mark.parametrize(
    "context",
    [of_run("r-2"), of_run("r", "other"), of_activity("r", "treadle.node"), of_activity("r-2", "treadle.node")],
)
async def test_payload_of_another_place_is_refused(context: SerializationContext) -> None:
    payload = await written(1)
    with pytest.raises(RefusedMessage, match="written for another run"):
        await at(context).decode([payload])


async def test_payload_of_another_activity_type_is_refused() -> None:
    payload = await written(1, of_activity("r", "treadle.open"))
    with pytest.raises(RefusedMessage):
        await at(of_activity("r", "treadle.node")).decode([payload])


async def test_plain_payload_is_refused() -> None:
    payloads = DataConverter.default.payload_converter.to_payloads([{"total": 999_999}])
    with pytest.raises(RefusedMessage, match="not encrypted"):
        await at(of_run("r")).decode(payloads)


async def test_payload_under_an_unknown_key_is_refused_by_its_name() -> None:
    payload = await written(1)
    with pytest.raises(RefusedMessage, match="written under key"):
        await at(of_run("r"), OTHER).decode([payload])


async def test_payload_under_a_former_key_is_read_and_answered_under_the_new_one() -> None:
    payload = await written(1)
    new = at(of_run("r"), OTHER, KEY)
    assert await new.decode([payload]) == [1]
    (answer,) = await new.encode([2])
    assert answer.metadata["key"] != payload.metadata["key"]


async def test_schedule_and_the_tick_it_starts_read_each_other() -> None:
    payload = await written("tick", of_run("nightly.hourly.tick"))
    started = of_run("nightly.hourly.tick-2026-03-01T00:00:00Z")
    assert await at(started).decode([payload]) == ["tick"]


async def test_payload_shows_neither_text_nor_key() -> None:
    payload = await written({"password": "s3cret-marker"})
    assert b"s3cret-marker" not in payload.SerializeToString()
    assert KEY not in payload.SerializeToString()


def test_payload_of_an_earlier_version_can_be_read() -> None:
    """A golden value: running workflows hold payloads of this format."""
    data = bytes.fromhex(GOLDEN)
    payload = Payload(metadata={"encoding": b"binary/treadle-1", "key": b"62d7d45e59fb549c"}, data=data)
    assert MessageCipher(KEY).decrypt("treadle\x00r\x00", payload) == b"golden"


async def test_refused_report_of_a_node_is_a_forged_problem() -> None:
    payloads = DataConverter.default.payload_converter.to_payloads([{"summary": "{}"}])
    (report,) = await at(of_activity("r", "treadle.node")).decode(payloads, [NodeReport])
    assert report.summary is None
    assert report.problem.failure == "forged"
    with pytest.raises(RefusedMessage):
        await at(of_activity("r", "treadle.open")).decode(payloads, [Opened])


# -- failures


async def sent(error: BaseException, context: SerializationContext = of_run("r")) -> Failure:
    failure = Failure()
    await at(context).encode_failure(error, failure)
    return failure


async def test_failure_hides_its_message_and_keeps_message_type_details_and_cause() -> None:
    error = ApplicationError("it broke", {"node": "a"}, type="user error", non_retryable=True)
    error.__cause__ = ApplicationError("deeper", type="internal")
    failure = await sent(error)
    assert b"broke" not in failure.SerializeToString()
    assert b"deeper" not in failure.SerializeToString()
    read = await at(of_run("r")).decode_failure(failure)
    assert isinstance(read, ApplicationError)
    assert (read.message, read.type, read.non_retryable) == ("it broke", "user error", True)
    assert read.details == ({"node": "a"},)
    assert isinstance(read.cause, ApplicationError)
    assert read.cause.message == "deeper"


@pytest.mark.parametrize("change", ["type", "retry", "attributes", "place"])
async def test_changed_failure_is_refused(change: str) -> None:
    failure = await sent(ApplicationError("it broke", type="user error"))
    info = failure.application_failure_info
    if change == "type":
        info.type = "internal"
    elif change == "retry":
        info.non_retryable = True
    elif change == "attributes":
        failure.ClearField("encoded_attributes")
    read = await at(of_run("r-2" if change == "place" else "r")).decode_failure(failure)
    assert isinstance(read, RefusedMessage)


async def test_failure_that_is_passed_on_is_encrypted_again() -> None:
    inner = await at(of_activity("r", "treadle.node")).decode_failure(
        await sent(ApplicationError("inner", type="user error"), of_activity("r", "treadle.node"))
    )
    outer = ApplicationError("outer", type="user error")
    outer.__cause__ = inner
    failure = await sent(outer)
    assert b"inner" not in failure.SerializeToString()
    read = await at(of_run("r")).decode_failure(failure)
    assert isinstance(read, ApplicationError)
    assert isinstance(read.cause, ApplicationError)
    assert read.cause.message == "inner"


async def test_failures_that_the_server_makes_are_taken() -> None:
    cancelled, timeout = Failure(message="by the server"), Failure(message="activity timeout")
    cancelled.canceled_failure_info.details.payloads.append(Payload(metadata={"encoding": b"json/plain"}, data=b"1"))
    timeout.timeout_failure_info.timeout_type = 4  # type: ignore[assignment]  # heartbeat
    timeout.timeout_failure_info.last_heartbeat_details.payloads.append(await written(1, of_run("elsewhere")))
    assert isinstance(await at(of_run("r")).decode_failure(cancelled), CancelledError)
    read = await at(of_run("r")).decode_failure(timeout)
    assert isinstance(read, TimeoutError)
    assert read.type is TimeoutType.HEARTBEAT


# -- values of messages


def test_values_of_a_message_never_replace_sealed_inputs() -> None:
    sealed = {"inputs": {"path": "orders/"}, "run": {"id": "r"}}
    message = {"inputs": {"path": "/etc/passwd"}, "run": {}, "stages": {"a": {"metrics": {"n": 1}}}}
    assert environment(sealed, message) == {**sealed, "stages": message["stages"]}
