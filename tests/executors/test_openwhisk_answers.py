"""The meaning of each reply of OpenWhisk's API for the call."""

from __future__ import annotations

import json
import socket
from typing import Any

import pytest
from emulators.lambda_http import Reply, Request, Server

from treadle.executors.functions.invoker import Answer, NotRun, Throttled
from treadle.executors.openwhisk.client import OpenWhiskClient
from treadle.executors.openwhisk.invoker import OpenWhiskInvoker
from treadle.executors.openwhisk.responses import (
    Activation,
    Pending,
    answer_of,
    pause,
    read_record,
    read_reply,
    text_of,
)
from treadle.primitives.errors import StoreError, UsageError

ACTION = "treadle-256"


def record(code: int, result: Any, **more: Any) -> bytes:
    words = ("success", "application error", "action developer error", "whisk internal error")
    response = {"status": words[code], "statusCode": code, "success": code == 0, "result": result}
    return json.dumps({"activationId": "a1", "response": response, "duration": 1500, "logs": [], **more}).encode()


def answer(body: bytes) -> Answer:
    found = read_record(body)
    assert found is not None
    return answer_of(found)


def test_a_success_brings_the_result_as_it_came() -> None:
    found = answer(record(0, {"reports": "x"}))
    assert (found.ended, json.loads(found.response)) == ("answered", {"reports": "x"})
    assert not found.cold


@pytest.mark.parametrize(("said", "waited"), [(66, 0.066), (None, 0.0), ("long", 0.0)])
def test_answer_has_the_time_that_its_call_waited(said: object, waited: float) -> None:
    """annotations.md of apache/openwhisk, `waitTime`: milliseconds."""
    assert answer(record(0, {}, annotations=[{"key": "waitTime", "value": said}])).waited == waited


@pytest.mark.parametrize("status", [200, 202, 500])
def test_body_that_is_not_text_is_a_lost_reply(status: int) -> None:
    with pytest.raises(StoreError, match="lost"):
        read_reply(status, b'{"activationId": "\xff", "error": "\xff"}', {}, ACTION)


def test_a_call_that_was_initialised_was_cold() -> None:
    assert answer(record(0, {}, annotations=[{"key": "initTime", "value": 40}, {"key": "kind"}])).cold


@pytest.mark.parametrize(
    ("said", "ended"),
    [
        ("The action exceeded its time limits of 60000 milliseconds.", "timed out"),
        ("The action exceeded its time limits of 60000 milliseconds during initialization.", "timed out"),
        ("The action exhausted its memory and was aborted.", "out of memory"),
        ("The action did not produce a valid response and exited unexpectedly.", "crashed"),
        ("command exited", "crashed"),
        ({"code": 7}, "crashed"),
    ],
)
def test_developer_error_is_classified_by_its_words(said: Any, ended: str) -> None:
    found = answer(record(2, {"error": said}))
    assert (found.ended, found.response) == (ended, b"")
    assert found.how == (said if isinstance(said, str) else '{"code":7}')


def test_an_application_error_is_a_crash_of_the_entry() -> None:
    assert answer(record(1, {"error": "'run'"})).ended == "crashed"


def test_platform_error_leaves_the_outcome_open() -> None:
    with pytest.raises(StoreError, match="activation a1") as caught:
        answer(record(3, {"error": "There was an internal error."}))
    assert caught.value.retryable
    assert not isinstance(caught.value, NotRun)


@pytest.mark.parametrize(
    ("status", "code"), [("action developer error", 2), ("action_developer_error", 2), ("success", 0), ("odd", 3)]
)
def test_a_record_without_a_status_code_is_read_by_its_words(status: str, code: int) -> None:
    found = read_record(json.dumps({"activationId": "a", "response": {"status": status, "result": {}}}).encode())
    assert found is not None
    assert found.response.code() == code


@pytest.mark.parametrize("status", [200, 500, 502])
def test_activation_record_is_read_for_every_status(status: int) -> None:
    assert isinstance(read_reply(status, record(0, {}), {}, ACTION), Activation)


def test_a_call_that_outlives_the_blocking_wait_is_pending() -> None:
    assert read_reply(202, b'{"activationId": "a1"}', {}, ACTION) == Pending("a1")


@pytest.mark.parametrize("body", [b"<html>", b"{}", b'{"activationId": 7}'])
def test_a_call_that_was_taken_by_something_else_is_lost(body: bytes) -> None:
    with pytest.raises(StoreError, match="lost a call"):
        read_reply(202, body, {}, ACTION)


def refused(status: int, error: str, **headers: str) -> Exception:
    body = json.dumps({"error": error, "code": "c1"}).encode()
    with pytest.raises(Exception, match=r".") as caught:
        read_reply(status, body, headers, ACTION)
    return caught.value


def test_too_many_calls_at_once_may_be_tried_again_at_any_time() -> None:
    error = refused(429, "Too many concurrent requests in flight (count: 101, allowed: 100).")
    assert isinstance(error, Throttled)
    assert error.retry_after == 0


def test_calls_over_the_limit_of_a_minute_are_repeated_in_the_servers_next_minute() -> None:
    said = "Too many requests in the last minute (count: 121, allowed: 120)."
    error = refused(429, said, date="Sat, 21 Nov 2026 10:00:48 GMT")
    assert isinstance(error, Throttled)
    assert error.retry_after == 12
    assert isinstance(error := refused(429, said, date="soon"), Throttled)
    assert error.retry_after == 0


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        *((status, UsageError) for status in (400, 401, 403, 404, 413)),
        *((status, StoreError) for status in (408, 500, 502, 504)),
        (503, NotRun),
    ],
)
def test_other_errors_are_classified_by_status(status: int, kind: type[Exception]) -> None:
    error = refused(status, "the reason")
    assert type(error) is kind
    assert "the reason" in str(error)


def test_body_that_is_not_json_is_quoted_in_part() -> None:
    with pytest.raises(StoreError) as caught:
        read_reply(502, b"<html>" + b"x" * 10_000, {}, ACTION)
    assert len(str(caught.value)) < 500


def test_logs_are_given_without_time_and_stream() -> None:
    lines = ["2026-11-21T10:00:00.1Z stdout: one", "2026-11-21T10:00:00.2Z   stderr:  two", "odd"]
    assert text_of(lines) == b"one\n two\nodd\n"


def test_records_are_asked_for_less_and_less_often() -> None:
    assert [pause(waited) for waited in (0, 1, 10, 100)] == [0.05, 0.1, 1.0, 2.0]


async def test_a_reply_that_cannot_be_decompressed_is_lost() -> None:
    async def answer(_: Request) -> Reply:
        return Reply(200, b"no gzip", {"Content-Encoding": "gzip"})

    server = Server(answer)
    try:
        async with OpenWhiskClient(f"http://127.0.0.1:{await server.start()}", "a:b") as client:
            with pytest.raises(StoreError, match="was lost"):
                await client.request("GET", "actions")
    finally:
        await server.close()


async def test_client_probes_a_silent_connection_for_15_seconds() -> None:
    async def answer(_: Request) -> Reply:
        return Reply(200, b"{}", {})

    server = Server(answer)
    try:
        async with OpenWhiskClient(f"http://127.0.0.1:{await server.start()}", "a:b") as client:
            reply = await client.open().get(client.url)
            connection = reply.extensions["network_stream"].get_extra_info("socket")
            asked = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT, socket.TCP_USER_TIMEOUT)
            idle, pause, probes, unheard = (connection.getsockopt(socket.IPPROTO_TCP, one) for one in asked)
            assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            assert idle + pause * probes == unheard / 1000 == 15
    finally:
        await server.close()


# -- settings


@pytest.mark.parametrize("key", ["", "uuid", ":", "uuid:", ":key"])
def test_a_key_of_another_shape_is_refused_without_being_shown(key: str) -> None:
    with pytest.raises(UsageError, match="UUID:KEY") as caught:
        OpenWhiskClient("https://host", key)
    assert not key.strip(":") or key not in str(caught.value)


@pytest.mark.parametrize("endpoint", ["host", "ftp://host", "https://", "http://openwhisk.example.com"])
def test_an_endpoint_that_is_none_or_sends_keys_in_clear_is_refused(endpoint: str) -> None:
    with pytest.raises(UsageError):
        OpenWhiskClient(endpoint, "a:b")


def test_plain_http_is_for_this_machine() -> None:
    assert OpenWhiskClient("http://127.0.0.1:3233/", "a:b").url == "http://127.0.0.1:3233/api/v1/namespaces/_"


def test_plain_http_to_another_host_may_be_allowed() -> None:
    assert OpenWhiskClient("http://openwhisk:3233", "a:b", allow_http=True).url.startswith("http://openwhisk:3233/")


def test_limits_leave_room_for_the_actions_own_parameters() -> None:
    limits = OpenWhiskInvoker(OpenWhiskClient("https://host", "a:b"), sizes=(512, 256)).limits
    assert limits.request < 1 << 20
    assert limits.memory == (256 << 20, 512 << 20)
    assert not limits.repeats


def test_invoker_refuses_an_action_without_room_for_tasks() -> None:
    with pytest.raises(UsageError, match="128 MB has no room for tasks: 192 MB are kept") as caught:
        OpenWhiskInvoker(OpenWhiskClient("https://host", "a:b"), sizes=(128, 512))
    assert "256" in caught.value.hint


def test_an_invoker_without_sizes_is_refused() -> None:
    with pytest.raises(UsageError, match="at least one size"):
        OpenWhiskInvoker(OpenWhiskClient("https://host", "a:b"), sizes=())
