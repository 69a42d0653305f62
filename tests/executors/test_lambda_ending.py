"""Lambda's message at the end of a call."""

from __future__ import annotations

import json

import pytest

from treadle.executors.aws.responses import BrokenPackage, Metering, answer_of, metering

_MB = 1 << 20
_REPORT = (
    b"START RequestId: 7 Version: $LATEST\nhello\nEND RequestId: 7\n"
    b"REPORT RequestId: 7\tDuration: 2001.31 ms\tBilled Duration: 2312 ms\tMemory Size: 512 MB\t"
    b"Max Memory Used: 508 MB\tInit Duration: 310.11 ms\t\n"
)


def failed(kind: str, message: str) -> bytes:
    return json.dumps({"errorType": kind, "errorMessage": message}).encode()


def test_the_report_line_is_read() -> None:
    assert metering(_REPORT) == Metering(512 * _MB, 508 * _MB, True, 2.312)


def test_a_warm_call_has_no_init_duration() -> None:
    assert not metering(_REPORT.replace(b"\tInit Duration: 310.11 ms", b"")).cold


def test_the_report_is_read_in_the_json_format() -> None:
    record = {"metrics": {"billedDurationMs": 2312, "memorySizeMB": 512, "maxMemoryUsedMB": 508, "initDurationMs": 310}}
    line = json.dumps({"time": "t", "type": "platform.report", "record": record}).encode()
    assert metering(b"hello\n" + line + b"\n") == Metering(512 * _MB, 508 * _MB, True, 2.312)


@pytest.mark.parametrize("log", [b"", b"no report", b'"platform.report"', b"REPORT RequestId: 1"])
def test_a_log_without_figures_says_nothing(log: bytes) -> None:
    assert metering(log) == Metering()


def test_an_answer_brings_its_payload_log_and_figures() -> None:
    answer = answer_of(b'{"reports": ""}', "", _REPORT)
    assert (answer.ended, answer.response, answer.log) == ("answered", b'{"reports": ""}', _REPORT)
    assert (answer.peak_memory, answer.cold) == (508 * _MB, True)


@pytest.mark.parametrize(
    ("kind", "message", "ended"),
    [
        ("", "2026-01-01T00:00:00.000Z 7 Task timed out after 3.00 seconds", "timed out"),
        ("Sandbox.Timedout", "RequestId: 7 Error: Task timed out after 3.00 seconds", "timed out"),
        ("Runtime.ExitError", "RequestId: 7 Error: Runtime exited with error: signal: killed", "out of memory"),
        ("Runtime.OutOfMemory", "RequestId: 7 Error: Runtime exited with error: signal: killed", "out of memory"),
        ("Runtime.ExitError", "RequestId: 7 Error: Runtime exited with error: exit status 1", "crashed"),
        ("ValueError", "what the handler raised", "crashed"),
        ("Function.ResponseSizeTooLarge", "Response payload size exceeded", "crashed"),
    ],
)
def test_a_failed_call_is_classified(kind: str, message: str, ended: str) -> None:
    answer = answer_of(failed(kind, message), "Unhandled", _REPORT)
    assert (answer.ended, answer.response) == (ended, b"")
    assert message in answer.how


def test_a_kill_far_from_the_memory_limit_is_a_crash() -> None:
    log = _REPORT.replace(b"Max Memory Used: 508", b"Max Memory Used: 90")
    said = failed("Runtime.ExitError", "RequestId: 7 Error: Runtime exited with error: signal: killed")
    assert answer_of(said, "Unhandled", log).ended == "crashed"


@pytest.mark.parametrize("payload", [b"", b"null", b"not json", b"\xff"])
def test_a_failed_call_that_does_not_say_how_is_a_crash(payload: bytes) -> None:
    assert answer_of(payload, "Unhandled", b"").ended == "crashed"


def test_unloadable_package_has_a_failure_class_of_its_own() -> None:
    said = failed("Runtime.ImportModuleError", "Unable to import module 'treadle': No module named 'msgspec'")
    with pytest.raises(BrokenPackage, match="No module named 'msgspec'"):
        answer_of(said, "Unhandled", b"")
